"""The XML API of Google Cloud Storage, which obstore's client speaks, before an emulator that only has the JSON API.

fake-gcs-server answers reads, listings and deletes of the XML API, but no puts. Here a put becomes an upload of the
JSON API with the same condition (``x-goog-if-generation-match`` becomes ``ifGenerationMatch``), so the emulator itself
decides who creates an object. Uploads in parts are put together here and become one upload.
"""

from __future__ import annotations

import http.client
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from support.object_stores.server_process import HOST

CONDITION = "x-goog-if-generation-match"
_PART = re.compile(r"<PartNumber>(\d+)</PartNumber>")
_PASSED = ("Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")
_HOP = ("transfer-encoding", "connection", "content-length", "date")


@dataclass
class Translator:
    """A running translator: its URL, and what it has seen as (method, path with query).

    Without ``conditional`` it leaves the conditions of puts out, as a store that does not know them.
    """

    endpoint: str
    upstream: int
    conditional: bool = True
    seen: list[tuple[str, str]] = field(default_factory=list)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    translator: Translator

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        body = self._body()
        with self.translator.lock:
            self.translator.seen.append((self.command, self.path))
        answer = self._translated(body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _translated(self, body: bytes) -> _Answer:
        address = urlsplit(self.path)
        query = parse_qs(address.query, keep_blank_values=True)
        bucket, _, key = address.path.lstrip("/").partition("/")
        key = unquote(key)
        if self.command == "POST" and "uploads" in query:
            return self._initiated(bucket, key)
        if "uploadId" in query:
            return self._of_upload(query["uploadId"][0], int(query.get("partNumber", ["0"])[0]), bucket, key, body)
        if self.command == "PUT":
            return self._put(bucket, key, body)
        return self._asked(self.command, self.path)

    def _put(self, bucket: str, key: str, body: bytes) -> _Answer:
        options = {"uploadType": "media", "name": key}
        condition = self.headers.get(CONDITION)
        if condition is not None and self.translator.conditional:
            options["ifGenerationMatch"] = condition
        answer = self._asked("POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(options)}", body)
        if answer.status != 200:
            return answer
        return _Answer(200, {"ETag": f'"{uuid.uuid4().hex}"', "x-goog-generation": "1"}, b"")

    def _initiated(self, bucket: str, key: str) -> _Answer:
        upload = uuid.uuid4().hex
        with self.translator.lock:
            self.translator.uploads[upload] = {}
        names = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
        return _xml(f"<InitiateMultipartUploadResult>{names}</InitiateMultipartUploadResult>")

    def _of_upload(self, upload: str, part: int, bucket: str, key: str, body: bytes) -> _Answer:
        state = self.translator
        with state.lock:
            parts = state.uploads.get(upload)
            if parts is None:
                return _Answer(404, {}, b"")
            if self.command == "PUT":
                parts[part] = body
                return _Answer(200, {"ETag": f'"part-{part}"'}, b"")
            del state.uploads[upload]
        if self.command == "DELETE":
            return _Answer(204, {}, b"")
        named = [int(number) for number in _PART.findall(body.decode())]
        done = self._put(bucket, key, b"".join(parts[number] for number in named))
        if done.status != 200:
            return done
        tag = f"<ETag>{done.headers['ETag']}</ETag>"
        return _xml(f"<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>")

    def _asked(self, method: str, path: str, body: bytes = b"") -> _Answer:
        connection = http.client.HTTPConnection(HOST, self.translator.upstream, timeout=60)
        try:
            headers = {name: self.headers[name] for name in _PASSED if name in self.headers}
            connection.request(method, path, body or None, headers)
            found = connection.getresponse()
            names = {name: value for name, value in found.getheaders() if name.lower() not in _HOP}
            if method == "HEAD":
                names["Content-Length"] = found.getheader("Content-Length") or "0"
            return _Answer(found.status, names, found.read())
        finally:
            connection.close()


def _xml(text: str) -> _Answer:
    return _Answer(200, {"Content-Type": "application/xml"}, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode())


@contextmanager
def translator_before(upstream: int, *, conditional: bool = True) -> Iterator[Translator]:
    """A translator before the emulator at a port, until the block ends."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer((HOST, 0), handler)
    server.daemon_threads = True
    found = Translator(f"http://{HOST}:{server.server_port}", upstream, conditional)
    handler.translator = found  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
