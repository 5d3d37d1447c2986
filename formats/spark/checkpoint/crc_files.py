"""Checksums that Hadoop's local file system keeps beside a file, in ``.<name>.crc``.

The file holds ``crc\\0``, the bytes of a chunk as int32, then the CRC-32 of each chunk of the file, all big-endian.
Hadoop's ``FileSystem`` verifies them (``ChecksumFileSystem``), its ``FileContext`` does not. Spark copies zips and
table files through the former, and reads all else of a checkpoint through the latter. Here every file is verified but
the logs of offsets and commits, whose JSON shows what is in them, and which have no rows. A copy made without hidden
files has no checksums, and is read without verification.
"""

from __future__ import annotations

import posixpath
import zlib
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.places.regular_files import read_regular, stream_regular
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, without_advice

_HEADER = b"crc\0"
_READ_BYTES = 1 << 20
_MAX_CHUNK = 1 << 20
_MAX_SIDE_BYTES = 1 << 28


@dataclass(frozen=True)
class SideChecksums:
    """The checksums of the chunks of one file."""

    chunk_bytes: int
    values: npt.NDArray[np.uint32]


def side_checksums(path: str) -> SideChecksums | None:
    """The checksums beside the local file ``path``; None where there are none, or the file is not of this form."""
    folder, name = posixpath.split(path)
    try:
        content = read_regular(posixpath.join(folder, side_name(name)), _MAX_SIDE_BYTES)
    except (OSError, StateStoreError):
        return None
    chunk_bytes = int.from_bytes(content[4:8], "big", signed=True)
    if (
        content[:4] != _HEADER
        or len(content) % 4
        or len(content) > _MAX_SIDE_BYTES
        or not 0 < chunk_bytes <= _MAX_CHUNK
    ):
        return None
    return SideChecksums(chunk_bytes, np.frombuffer(content, ">u4", offset=8).astype(np.uint32))


def side_difference(path: str) -> str | None:
    """A sentence about a small local file that differs from the checksums beside it; None where it does not, or where
    there are none.

    Raises no error: a file that cannot be read has no difference.
    """
    checksums = side_checksums(path)
    if checksums is None:
        return None
    try:
        with stream_regular(path) as stream:
            VerifiedStream(stream, checksums, path).read()
    except CorruptError as error:
        return without_advice(error)
    except (OSError, StateStoreError):
        return None
    return None


def side_name(name: str) -> str:
    """The name of the file with the checksums of the file of a name."""
    return f".{name}.crc"


def side_content(content: bytes, chunk: int) -> bytes:
    """The bytes of the file with the checksums of a small file's chunks; those of no such file if there are none."""
    if not 0 < chunk <= _MAX_CHUNK:
        return b""
    parts = [_HEADER, chunk.to_bytes(4)]
    parts += [zlib.crc32(content[at : at + chunk]).to_bytes(4) for at in range(0, len(content), chunk)]
    return b"".join(parts)


@dataclass
class VerifiedStream:
    """The bytes of ``source``, of which none is returned before its chunk is verified.

    Raises, while it is read, CorruptError SPARK_STATE_FILE.
    """

    source: IO[bytes]
    checksums: SideChecksums
    path: str
    _ready: bytes = b""
    _at: int = 0
    _verified: int = 0
    _ended: bool = False

    def read(self, size: int = -1) -> bytes:
        parts, left = [], size
        while left:
            if self._at == len(self._ready) and not self._fill():
                break
            end = len(self._ready) if left < 0 else self._at + left
            part = self._ready[self._at : end]
            self._at += len(part)
            left -= len(part) if left > 0 else 0
            parts.append(part)
        return b"".join(parts)

    def _fill(self) -> bool:
        """Read and verify the next whole chunks; returns false at the end of the file."""
        if self._ended:
            return False
        chunk = self.checksums.chunk_bytes
        size = max(1, _READ_BYTES // chunk) * chunk
        chunks = self.source.read(size)
        while len(chunks) < size and (more := self.source.read(size - len(chunks))):
            chunks += more
        self._ended = len(chunks) < size
        self._verify(chunks)
        self._ready, self._at = chunks, 0
        return bool(chunks)

    def _verify(self, data: bytes) -> None:
        chunk, expected = self.checksums.chunk_bytes, self.checksums.values
        first, count = self._verified, -(-len(data) // chunk)
        if first + count > len(expected) or (self._ended and first + count < len(expected)):
            more = "more" if first + count > len(expected) else "fewer"
            raise self._damaged(f"{more} bytes than the {len(expected)} checksums in {self._side} are for")
        actual = _chunk_checksums(data, chunk)
        wrong = np.flatnonzero(actual != expected[first : first + count])
        if len(wrong):
            at = first + int(wrong[0])
            difference = f"checksum {int(actual[wrong[0]]):08x} where {self._side} says {int(expected[at]):08x}"
            raise self._damaged(f"bytes {at * chunk}-{(at + 1) * chunk - 1} have {difference}")
        self._verified += count

    @property
    def _side(self) -> str:
        return side_name(posixpath.basename(self.path))

    def _damaged(self, what: str) -> Exception:
        return corrupt_file(
            self.path, f"{what}: it was changed or damaged after it was written (without {self._side} it is read as is)"
        )

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> VerifiedStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _chunk_checksums(data: bytes, chunk: int) -> npt.NDArray[np.uint32]:
    """The CRC-32 of each ``chunk`` bytes of the data."""
    count = -(-len(data) // chunk)
    if is_loaded():
        from statestore.formats.kernels.checksum_kernels import chunk_checksums

        found = np.empty(count, np.uint32)
        chunk_checksums(np.frombuffer(data, np.uint8), chunk, found)
        return found
    view = memoryview(data)
    return np.fromiter((zlib.crc32(view[at : at + chunk]) for at in range(0, len(data), chunk)), np.uint32, count)
