"""Messages of HTTP/1.1 as bytes: where a request or an answer ends, and what its first lines say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

LIMIT = 1 << 20  # bytes of a head or of a line
INTERIM = range(100, 200)
WITHOUT_BODY = (204, 304)


@dataclass(frozen=True)
class Message:
    """``head`` ends with the empty line; ``body`` is as it was sent, with the frames of chunks."""

    head: bytes
    body: bytes

    @property
    def first_words(self) -> list[str]:
        return self.head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)

    @property
    def method(self) -> str:
        return self.first_words[0]

    @property
    def path(self) -> str:
        return self.first_words[1]

    @property
    def status(self) -> int:
        return int(self.first_words[1])

    @property
    def closes(self) -> bool:
        """Whether the sender closes the connection after this message."""
        connection = header(self.head, "connection").lower()
        return connection == "close" or (b"HTTP/1.0" in self.head[:40] and connection != "keep-alive")


def header(head: bytes, name: str) -> str:
    """The value of a header, empty where it is missing."""
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.strip().lower() == name.encode():
            return value.strip().decode("latin-1")
    return ""


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The first lines of a message with the empty one. Raises IncompleteReadError at the end of the connection."""
    return await reader.readuntil(b"\r\n\r\n")


async def read_answer(reader: asyncio.StreamReader, method: str) -> Message:
    """The final answer to a request of a method."""
    while True:
        found = Message(await read_head(reader), b"")
        if found.status not in INTERIM:
            break
    if method == "HEAD" or found.status in WITHOUT_BODY:
        return found
    until_closed = not header(found.head, "content-length") and not header(found.head, "transfer-encoding")
    return Message(found.head, await (reader.read() if until_closed else read_body(reader, found.head)))


async def read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body of a message, none where the head names neither length nor chunks."""
    if header(head, "transfer-encoding").lower().endswith("chunked"):
        return await _chunks(reader)
    return await reader.readexactly(int(header(head, "content-length") or 0))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        parts.append(line := await reader.readuntil(b"\r\n"))
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        parts.append(await reader.readexactly(size + 2))
    while line != b"\r\n":  # trailers
        parts.append(line := await reader.readuntil(b"\r\n"))
    return b"".join(parts)


def refusal(status: int, method: str) -> Message:
    """An answer that a store gives in trouble, in the form that S3 and Azure share."""
    code = {429: "SlowDown", 503: "SlowDown"}.get(status, "InternalError")
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>as told</Message></Error>'
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return Message(head.encode(), b"" if method == "HEAD" else body.encode())
