"""A real S3 server and a proxy before it, in one process of their own, so that they take no turns with what is timed.

The server and the proxy are those of the tests (``tests/support/object_stores``). The process takes commands as lines
of JSON and answers each with one line: ``{"latency_ms": 10}`` sets the delay of each answer, ``{"seen": true}`` asks
for the requests since the last time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2] / "tests"
PARTS = ("log/_checkpoint", "log/", "segments/", "store.json", "warehouse.json", "list-type=2")


class NoServerError(RuntimeError):
    """There is no S3 server on this machine; the message says why."""


@dataclass(frozen=True)
class Seen:
    """Requests that the proxy has seen: how many, how long the longest chain of them, and bytes of both ways.

    ``kinds`` are the numbers of requests by method and the part of the store that they were for.
    """

    requests: int
    rounds: int
    received: int
    sent: int
    kinds: dict[str, int] = field(default_factory=dict)


class ObjectServer:
    """The parent's side of the process. ``access_key``, ``secret_key``, ``region`` and ``endpoint`` are for clients."""

    def __init__(self, process: subprocess.Popen[str], about: dict[str, str]) -> None:
        self._process = process
        self.bucket, self.endpoint = about["bucket"], about["endpoint"]
        self.access_key, self.secret_key, self.region = about["access_key"], about["secret_key"], about["region"]
        self._uri = about["uri"]

    def warehouse(self, prefix: str) -> str:
        """The URI of a warehouse behind the proxy, with all that a client needs."""
        return self._uri.replace("PREFIX", prefix, 1)

    def delay(self, latency_ms: float) -> None:
        """Let each answer come so much later."""
        self._ask(latency_ms=latency_ms)

    def seen(self) -> Seen:
        """The requests since the last call."""
        return Seen(**self._ask(seen=True))

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def object_server(folder: Path) -> Iterator[ObjectServer]:
    """A server with its objects in ``folder``, until the block ends. Raises NoServerError where there is none."""
    command = [sys.executable, "-m", "benchmarks.objects.served", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS.parent, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdin and process.stdout
        about = json.loads(process.stdout.readline() or '{"without": "the server did not start"}')
        if "without" in about:
            raise NoServerError(about["without"])
        try:
            yield ObjectServer(process, about)
        finally:
            process.stdin.close()
            process.wait(30)


def _kind(method: str, path: str) -> str:
    return f"{method} {next((part for part in PARTS if part in path), 'other')}"


def _serve(folder: Path) -> None:
    sys.path.insert(0, str(TESTS))
    from collections import Counter

    import pytest
    from support.object_stores.faults import Faults
    from support.object_stores.proxy import Proxy, proxy_before
    from support.object_stores.requests_seen import rounds
    from support.object_stores.s3_server import BUCKET, running_s3_server

    def answer(proxy: Proxy, command: dict[str, Any]) -> dict[str, Any]:
        if "latency_ms" in command:
            proxy.faults = Faults(latency_ms=command["latency_ms"])
            return {}
        found = proxy.requests
        proxy.clear()
        return {
            "requests": len(found),
            "rounds": rounds(found),
            "received": sum(request.received for request in found),
            "sent": sum(request.sent for request in found),
            "kinds": dict(Counter(_kind(request.method, request.path) for request in found)),
        }

    try:
        with running_s3_server(folder) as server, proxy_before(server.endpoint) as proxy:
            about = {
                "uri": server.warehouse("PREFIX", endpoint=proxy.endpoint), "bucket": BUCKET,
                "endpoint": proxy.endpoint, "access_key": server.access_key, "secret_key": server.secret_key,
                "region": server.region,
            }  # fmt: skip
            print(json.dumps(about), flush=True)
            for line in sys.stdin:
                print(json.dumps(answer(proxy, json.loads(line))), flush=True)
    except pytest.skip.Exception as error:
        print(json.dumps({"without": str(error)}), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
