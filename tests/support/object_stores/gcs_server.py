"""An emulator of Google Cloud Storage: fake-gcs-server with its data in memory, as a process of its own.

obstore speaks the XML API, of which the emulator has no puts; a translator before it adds them (`gcs_translator`).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from support.object_stores.gcs_translator import Translator, translator_before
from support.object_stores.server_process import HOST, ServerProcess, started
from support.object_stores.server_tools import gcs_emulator

BUCKET = "states"
# The key of an emulator's account: no token is fetched. obstore's ``skip_signature`` only holds for reads.
ACCOUNT = json.dumps({"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})


@dataclass(frozen=True)
class GcsServer:
    """A running emulator. ``endpoint`` is the URL of the translator before it."""

    process: ServerProcess = field(repr=False)
    translator: Translator = field(repr=False)

    @property
    def endpoint(self) -> str:
        return self.translator.endpoint

    def warehouse(self, prefix: str, bucket: str = BUCKET, endpoint: str = "") -> str:
        """The URI of a warehouse, with all that a client needs; ``endpoint`` is that of another translator."""
        options = {"base_url": endpoint or self.endpoint, "service_account_key": ACCOUNT}
        return f"gs://{bucket}/{prefix}?{urlencode(options)}"

    def make_bucket(self, bucket: str) -> None:
        """Make an empty bucket, if there is none of the name."""
        connection = http.client.HTTPConnection(HOST, self.process.port, timeout=30)
        try:
            body, headers = json.dumps({"name": bucket}), {"Content-Type": "application/json"}
            connection.request("POST", "/storage/v1/b?project=tests", body, headers)
            answer = connection.getresponse()
            assert answer.status in (200, 409), f"{answer.status} {answer.read()!r}"
        finally:
            connection.close()


@contextmanager
def running_gcs_server(folder: Path, *, buckets: Sequence[str] = (BUCKET,)) -> Iterator[GcsServer]:
    """An emulator and a translator before it, until the block ends, come what may; its log is in ``folder``."""
    program = gcs_emulator()

    def command(port: int) -> list[str]:
        place = ["-scheme", "http", "-host", HOST, "-port", str(port), "-public-host", HOST]
        return [str(program), *place, "-backend", "memory", "-log-level", "warn"]

    process = started(command, folder / "gcs.log")
    try:
        with translator_before(process.port) as translator:
            server = GcsServer(process, translator)
            for bucket in buckets:
                server.make_bucket(bucket)
            yield server
    finally:
        process.kill()
