"""Bytes of a file of records from its beginning, any number of times, decompressed where its name says so."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.places.regular_files import open_regular

CODECS = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4", ".bz2": "bz2"}
_MARK = b"\xef\xbb\xbf"
_PART = 1 << 20
_CODES = {character: ord(character) for character in '\\" \n'}
_OPENING, _CLOSING, _BETWEEN, _SPACE = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
"""The part that a byte outside of texts has in the structure of JSON; 0: none."""
for _characters, _kind in ((b"[{", _OPENING), (b"]}", _CLOSING), (b",", _BETWEEN), (b"\r\n", _SPACE)):
    _KINDS[list(_characters)] = _kind


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


class _Filtered(io.RawIOBase):
    """Bytes that are made of those of another stream; a seek to 0 begins anew."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def close(self) -> None:
        self._source.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _JoinedLines(_Filtered):
    """Objects that are printed over several indented lines, as one line each.

    Programs escape line breaks within texts, so each break before a space or a closing brace lies between two tokens.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._held = self._ready = b""

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


class _ArrayLines:
    """The elements of a JSON array as one line each, from its bytes in parts."""

    def __init__(self) -> None:
        self._held = b""
        self._depth = self._inside = 0

    def lines(self, part: bytes) -> bytes:
        """Return what a part adds."""
        block = self._held + part
        keep = len(block.rstrip(b"\\"))  # what backslashes escape follows them
        self._held, block = block[keep:], block[:keep]
        if not block:
            return b""
        data = np.frombuffer(block, np.uint8).copy()
        quotes = data == _CODES['"']
        quotes[_escaped(data)] = False
        inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)) ^ self._inside
        places = np.flatnonzero(_KINDS[data] & ~(inside * 0xFF))
        kinds = _KINDS[data[places]]
        depth = self._depth + np.cumsum((kinds == _OPENING).astype(np.int64) - (kinds == _CLOSING))
        starts = (kinds == _SPACE) | ((kinds == _OPENING) & (depth == 1))
        data[places[starts]] = _CODES[" "]
        data[places[((kinds == _CLOSING) & (depth == 0)) | ((kinds == _BETWEEN) & (depth == 1))]] = _CODES["\n"]
        self._depth, self._inside = int(depth[-1]) if len(depth) else self._depth, int(inside[-1])
        return data.tobytes()

    def end(self) -> None:
        """Raise ArrowInvalid where the array has no end."""
        if self._depth or self._inside or self._held:
            raise pa.ArrowInvalid("it ends within its array, so records at the end are missing")


def _escaped(data: Bytes) -> Ints:
    """Positions that an odd number of backslashes precedes."""
    places = np.flatnonzero(data == _CODES["\\"])
    if not len(places):
        return places
    last = np.flatnonzero(np.diff(places, append=-2) != 1)
    lengths = np.diff(last, prepend=-1)
    found: Ints = places[last[lengths % 2 == 1]] + 1
    return found


def _lines_of(source: Any) -> Any:
    """A temporary file with the elements of an array as lines."""
    lines = _ArrayLines()
    found = tempfile.TemporaryFile()  # noqa: SIM115 - for the caller to close
    try:
        while part := source.read(_PART):
            found.write(lines.lines(part))
        lines.end()
    except BaseException:
        found.close()
        raise
    finally:
        source.close()
    found.seek(0)
    return found


class _Unmarked(_Filtered):
    """A text without the mark of UTF-8 in front."""

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
    return _ArrayLines().lines(start).lstrip()


def opened(path: str, *, over_lines: bool = False, in_array: bool = False) -> Any:
    """Open a file of records for reading; ``over_lines``, ``in_array``: with each object in one line."""
    codec = next((codec for end, codec in CODECS.items() if path.endswith(end)), None)
    stream: Any = (
        os.fdopen(open_regular(path), "rb") if codec is None else io.BufferedReader(_Decompressed(path, codec), 1 << 20)
    )
    if stream.read(len(_MARK)) == _MARK:
        stream = io.BufferedReader(_Unmarked(stream), 1 << 20)
    stream.seek(0)
    if in_array:
        return _lines_of(stream)
    return io.BufferedReader(_JoinedLines(stream), 1 << 20) if over_lines else stream
