"""A real server of Azure's blobs: Azurite with its data in a folder, as a process of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from support.object_stores.server_process import HOST, ServerProcess, started
from support.object_stores.server_tools import azurite

CONTAINER = "states"
# The account of every Azurite, which its documentation names.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


@dataclass(frozen=True)
class AzureServer:
    """A running server. ``endpoint`` is its URL with the account."""

    endpoint: str
    account_name: str
    account_key: str = field(repr=False)
    folder: Path
    process: ServerProcess = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return self.process.port

    def warehouse(self, prefix: str, container: str = CONTAINER, endpoint: str = "") -> str:
        """The URI of a warehouse, with all that a client needs; ``endpoint`` is that of a proxy before the server."""
        options = {
            "account_name": self.account_name,
            "account_key": self.account_key,
            "endpoint": endpoint or self.endpoint,
        }
        return f"az://{container}/{prefix}?{urlencode(options)}"

    def make_container(self, container: str) -> None:
        """Make an empty container, if there is none of the name."""
        headers = {"Content-Length": "0", "x-ms-date": formatdate(usegmt=True), "x-ms-version": VERSION}
        named = "".join(f"{name}:{headers[name]}\n" for name in ("x-ms-date", "x-ms-version"))
        resource = f"/{self.account_name}/{self.account_name}/{container}\nrestype:container"
        signed = "PUT" + "\n" * 12 + named + resource
        digest = hmac.digest(base64.b64decode(self.account_key), signed.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {self.account_name}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request("PUT", f"/{self.account_name}/{container}?restype=container", headers=headers)
            answer = connection.getresponse()
            assert answer.status in (201, 409), f"{answer.status} {answer.read()!r}"
        finally:
            connection.close()

    def kill(self) -> None:
        """End the server with SIGKILL. `running_azure_server` starts it again, given its folder and port."""
        self.process.kill()


@contextmanager
def running_azure_server(
    folder: Path, *, containers: Sequence[str] = (CONTAINER,), port: int = 0
) -> Iterator[AzureServer]:
    """A server with its data in ``folder``, until the block ends, come what may. Port 0 is a free one."""
    program, data = azurite(), folder / "blobs"
    data.mkdir(parents=True, exist_ok=True)

    def command(chosen: int) -> list[str]:
        place = ["--blobHost", HOST, "--blobPort", str(chosen), "--location", str(data)]
        # The versions of the protocol that clients ask for move on more quickly than Azurite.
        return [str(program), *place, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    process = started(command, folder / "azurite.log", port)
    try:
        found = AzureServer(f"http://{HOST}:{process.port}/{ACCOUNT}", ACCOUNT, KEY, data, process)
        for container in containers:
            found.make_container(container)
        yield found
    finally:
        process.kill()
