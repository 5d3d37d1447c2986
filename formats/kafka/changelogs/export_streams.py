"""Bytes of a file of records from its beginning, any number of times, decompressed where its name says so."""

from __future__ import annotations

import io
import os
from typing import Any

import pyarrow as pa

from statestore.formats.places.regular_files import open_regular

CODECS = {".gz": "gzip", ".zst": "zstd"}
"""Compressions by the end of a name."""


class _Decompressed(io.RawIOBase):
    """The content of a compressed file; a seek to 0 begins anew. Raises ArrowInvalid for damaged or cut content."""

    def __init__(self, path: str, codec: str) -> None:
        self._path, self._codec = path, codec
        self._file: Any = None
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = 0) -> int:
        if to or whence:
            raise io.UnsupportedOperation("only the beginning can be sought")
        self._close_file()
        self._file = os.fdopen(open_regular(self._path), "rb")
        self._stream = pa.CompressedInputStream(pa.PythonFile(self._file, "r"), self._codec)
        return 0

    def close(self) -> None:
        self._close_file()
        super().close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def readinto(self, into: Any) -> int:
        try:
            found = self._stream.read(len(into))
        except (OSError, pa.ArrowInvalid) as error:
            raise pa.ArrowInvalid(f"its {self._codec} stream is damaged or cut ({error})") from error
        into[: len(found)] = found
        return len(found)


class _JoinedLines(io.RawIOBase):
    """Objects that are printed over several indented lines, as one line each; a seek to 0 begins anew.

    Programs escape line breaks within texts, so each break before a space or a closing brace lies between two tokens.
    """

    def __init__(self, source: Any) -> None:
        self._source, self._held, self._ready = source, b"", b""

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = 0) -> int:
        self._source.seek(to, whence)
        self._held = self._ready = b""
        return 0

    def readinto(self, into: Any) -> int:
        while not self._ready:
            part = self._source.read(1 << 20)
            block = (self._held + part).replace(b"\r\n", b"\n") if part else self._held
            if not block:
                return 0
            # A break at the end is held until what follows it is known.
            keep = len(block.rstrip(b"\r\n")) if part else len(block)
            self._held, block = block[keep:], block[:keep]
            self._ready = block.replace(b"\n ", b"  ").replace(b"\n}", b" }")
        count = min(len(into), len(self._ready))
        into[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def opened(path: str, *, over_lines: bool = False) -> io.BufferedReader:
    """Open a file of records for reading; ``over_lines``: with each object in one line."""
    codec = next((codec for end, codec in CODECS.items() if path.endswith(end)), None)
    stream: Any = (
        os.fdopen(open_regular(path), "rb") if codec is None else io.BufferedReader(_Decompressed(path, codec), 1 << 20)
    )
    return io.BufferedReader(_JoinedLines(stream), 1 << 20) if over_lines else stream
