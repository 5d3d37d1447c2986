"""An S3 server on this machine, in this process: moto behind a door that counts requests and can refuse them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow.fs as pafs
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "states"
CODES = {403: "AccessDenied", 404: "NoSuchKey"}


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing: each request would be a line on stderr."""


def _nothing(method: str, path: str) -> int:
    return 0


@dataclass
class ObjectStore:
    """``requests`` are (method, path) since the last `clear`, and ``listed`` the prefixes of listings. ``refuses`` is
    asked about each request and answers a status such as 403 for those that it refuses, else 0."""

    host: str
    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    refuses: Callable[[str, str], int] = _nothing
    answering: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def uri(self, path: str, *, user: str = "us:er") -> str:
        """The URI of an object or folder, with all parameters that a client needs."""
        endpoint = f"endpoint_override={self.host}%3A{self.port}&scheme=http&region=us-east-1"
        return f"s3://{user}@{BUCKET}/{path}?{endpoint}"

    @property
    def filesystem(self) -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key="us", secret_key="er", scheme="http", region="us-east-1",
            endpoint_override=f"{self.host}:{self.port}", allow_bucket_creation=True,
        )  # fmt: skip

    def upload(self, folder: Path, prefix: str) -> str:
        """Copy a folder to the store and return its URI.

        The objects are those that Arrow's client would make, an empty one for each folder among them. They are given
        to moto without requests, each of which would take it ten milliseconds.
        """
        objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for path in [folder, *folder.rglob("*")]:
            key = f"{prefix}/{path.relative_to(folder).as_posix()}".removesuffix("/.")
            if path.is_dir():
                objects.put_object(BUCKET, f"{key}/", b"")
            else:
                objects.put_object(BUCKET, key, path.read_bytes())
        return self.uri(prefix)

    def change(self, put: Mapping[str, bytes], removed: Iterable[str]) -> None:
        """Put objects, then remove others, between two answers."""
        objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        with self.answering:
            for key, data in put.items():
                objects.put_object(BUCKET, key, data)
            for key in removed:
                objects.delete_object(BUCKET, key)

    def contents(self, prefix: str) -> dict[str, bytes]:
        """Every object below a folder."""
        found = self.filesystem.get_file_info(pafs.FileSelector(f"{BUCKET}/{prefix}", recursive=True))
        files = [info.path for info in found if info.type == pafs.FileType.File]
        return {path: self.filesystem.open_input_file(path).read() for path in files}

    def clear(self) -> None:
        self.requests.clear()
        self.listed.clear()
        self.bytes_sent = 0


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server with one bucket, until the block ends."""
    moto = DomainDispatcherApplication(create_backend_app)
    found = ObjectStore("127.0.0.1", 0)

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        found.requests.append((method, path))
        found.listed += parse_qs(environ["QUERY_STRING"]).get("prefix", []) if method == "GET" else []
        status = found.refuses(method, path)
        if status:
            start(f"{status} {CODES[status]}", [("Content-Type", "application/xml")])
            return [f"<?xml version='1.0'?><Error><Code>{CODES[status]}</Code><Message>no</Message></Error>".encode()]
        with found.answering:
            body = list(moto(environ, start))
        if method == "GET":
            found.bytes_sent += sum(map(len, body))
        return body

    server = make_server(found.host, 0, application, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.port = server.server_port
    try:
        found.filesystem.create_dir(BUCKET)
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
