"""Bytes of a file of records from its beginning, any number of times, decompressed where its name says so."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.places.regular_files import open_regular

CODECS = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4", ".bz2": "bz2"}
_MARK = b"\xef\xbb\xbf"
_PART = 1 << 20
_CODES = {character: ord(character) for character in '\\"[]{} \r'}
_BREAK, _COMMA = ord("\n"), ord(",")
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


class _ArrayLines(io.RawIOBase):
    """The elements of a JSON array as one line each; a seek to 0 begins anew. Raises ArrowInvalid where it is cut."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._held, self._ready = b"", b""
        self._depth, self._inside, self._ended = 0, False, False

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = 0) -> int:
        self._source.seek(to, whence)
        self._begin()
        return 0

    def readinto(self, into: Any) -> int:
        while not self._ready and not self._ended:
            part = self._source.read(_PART)
            block = self._held + part
            keep = len(block.rstrip(b"\\")) if part else len(block)  # what they escape follows them
            self._held, block = block[keep:], block[:keep]
            self._ready, self._ended = self._lines(block), not part
            if not part and (self._depth or self._inside):
                raise pa.ArrowInvalid("it ends within its array, so records at the end are missing")
        count = min(len(into), len(self._ready))
        into[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _lines(self, block: bytes) -> bytes:
        if not block:
            return b""
        data = np.frombuffer(block, np.uint8).copy()
        place = np.arange(len(data))
        # A quote is escaped by an odd number of backslashes in front of it.
        other = np.maximum.accumulate(np.where(data != _CODES["\\"], place, -1))
        before = np.concatenate([[-1], other[:-1]])
        quotes = (data == _CODES['"']) & ((place - 1 - before) % 2 == 0)
        outside = ((np.cumsum(quotes) + self._inside) % 2 == 0) & ~quotes
        opening = outside & ((data == _CODES["["]) | (data == _CODES["{"]))
        closing = outside & ((data == _CODES["]"]) | (data == _CODES["}"]))
        depth = self._depth + np.cumsum(opening.astype(np.int64) - closing)
        data[outside & ((data == _BREAK) | (data == _CODES["\r"]))] = _CODES[" "]
        data[opening & (depth == 1)] = _CODES[" "]
        data[(closing & (depth == 0)) | (outside & (depth == 1) & (data == _COMMA))] = _BREAK
        self._depth, self._inside = int(depth[-1]), bool((int(quotes.sum()) + self._inside) % 2)
        return data.tobytes()


class _Unmarked(io.RawIOBase):
    """A text without the mark of UTF-8 in front; a seek to 0 begins anew."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, to: int, whence: int = 0) -> int:
        self._source.seek(to, whence)
        self._source.read(len(_MARK))
        return 0

    def readinto(self, into: Any) -> int:
        part = self._source.read(len(into))
        into[: len(part)] = part
        return len(part)


def array_lines(start: bytes) -> bytes:
    """The first elements of a JSON array as lines, of which the last one may be cut."""
    return _ArrayLines(io.BytesIO())._lines(start).lstrip()


def opened(path: str, *, over_lines: bool = False, in_array: bool = False) -> io.BufferedReader:
    """Open a file of records for reading; ``over_lines``, ``in_array``: with each object in one line."""
    codec = next((codec for end, codec in CODECS.items() if path.endswith(end)), None)
    stream: Any = (
        os.fdopen(open_regular(path), "rb") if codec is None else io.BufferedReader(_Decompressed(path, codec), 1 << 20)
    )
    if stream.read(len(_MARK)) == _MARK:
        stream = io.BufferedReader(_Unmarked(stream), 1 << 20)
    stream.seek(0)
    if in_array:
        return io.BufferedReader(_ArrayLines(stream), 1 << 20)
    return io.BufferedReader(_JoinedLines(stream), 1 << 20) if over_lines else stream
