"""Files of compressed frames, each a run of versions: the container of version chunks and entry packs
(docs/log-format.md, "Frames").

The bytes are an Arrow IPC file with one row for each frame, followed by the checksum of everything before it. The
checksum is compared before anything is interpreted. The length of a decompressed frame is bounded and known before it
is decompressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.segments.ipc_file import read_batches

CHECKSUM_BYTES = 8
MAX_FRAME_BYTES = 1 << 28
FRAMES = pa.schema(
    [
        pa.field("first", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("frame", pa.large_binary(), nullable=False),
    ]
)
_FORMAT, _STORE = b"statestore.format", b"statestore.store"
_LEVEL = 9


@dataclass(frozen=True)
class Frame:
    """Content of ``count`` versions from ``first`` on, compressed with zstd; ``length`` is that of the content."""

    first: int
    count: int
    length: int
    compressed: pa.Buffer

    def content(self, name: str) -> bytes:
        """Return the content. Raises CorruptError LOG_CORRUPT if it has not the recorded length."""
        try:
            data: bytes = pa.decompress(self.compressed, self.length, codec="zstd", asbytes=True)
        except (pa.ArrowException, OSError, MemoryError) as error:
            raise corrupt(name, f"frame of version {self.first}: {error}") from error
        return data


def frame(first: int, count: int, content: bytes | pa.Buffer) -> Frame:
    """Return the compressed frame of some content."""
    compressed = pa.Codec("zstd", compression_level=_LEVEL).compress(content)
    return Frame(first, count, len(content), compressed)


def encode_frames(kind: bytes, store: str, frames: Sequence[Frame]) -> bytes:
    """Return the bytes of a file of the format ``kind`` that belongs to the store with the identity ``store``."""
    schema = FRAMES.with_metadata({_FORMAT: kind, _STORE: store.encode()})
    columns = [
        [frame.first for frame in frames],
        [frame.count for frame in frames],
        [frame.length for frame in frames],
        [frame.compressed.to_pybytes() for frame in frames],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FRAMES, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return sealed(sink.getvalue().to_pybytes())


def decode_frames(
    name: str, data: bytes, kinds: Sequence[bytes], first: int, count: int
) -> tuple[bytes, str, list[Frame]]:
    """Return which of the formats ``kinds`` the bytes of the file ``name`` have, the store's identity and the frames,
    which cover ``count`` versions from ``first`` on without a gap. Raises CorruptError LOG_CORRUPT for anything else.
    """
    body = unsealed(name, data)

    def check(schema: pa.Schema) -> None:
        found = (schema.metadata or {}).get(_FORMAT)
        if found not in kinds:
            raise ValueError(f"format {found!r}, expected {' or '.join(map(repr, kinds))}")
        if schema.remove_metadata() != FRAMES:
            raise ValueError(f"columns {schema.remove_metadata()}")

    try:
        schema, batches = read_batches(pa.py_buffer(body), check)
        frames = [found for batch in batches for found in _frames(batch)]
        expected = first
        for found in frames:
            if found.first != expected:
                raise ValueError(f"version {found.first} stands where version {expected} is expected")
            expected += found.count
        if expected != first + count:
            raise ValueError(f"it has the versions {first} to {expected - 1}, expected {count} versions")
        return schema.metadata[_FORMAT], schema.metadata.get(_STORE, b"").decode(), frames
    except StateStoreError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException, MemoryError) as error:
        raise corrupt(name, f"{type(error).__name__}: {error}") from error


def _frames(batch: pa.RecordBatch) -> list[Frame]:
    if nulls := [field.name for field in FRAMES if batch[field.name].null_count]:
        raise ValueError(f"nulls in {nulls}")
    found = []
    firsts, counts, lengths = (batch[name].to_pylist() for name in ("first", "count", "length"))
    for first, count, length, compressed in zip(firsts, counts, lengths, batch["frame"], strict=True):
        if not (0 <= first < 10**18 and 0 < count < 10**9 and 0 <= length <= MAX_FRAME_BYTES):
            raise ValueError(f"frame of version {first} with {count} versions and {length} bytes")
        found.append(Frame(first, count, length, compressed.as_buffer()))
    return found


def sealed(body: bytes) -> bytes:
    """Return the bytes with their checksum behind them."""
    return body + xxhash.xxh3_64_digest(body)


def unsealed(name: str, data: bytes) -> bytes:
    """Return the bytes before the checksum. Raises CorruptError LOG_CORRUPT if the checksum does not match."""
    body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if len(checksum) < CHECKSUM_BYTES or xxhash.xxh3_64_digest(body) != checksum:
        raise corrupt(name, "its checksum does not match")
    return body


def corrupt(name: str, problem: str) -> CorruptError:
    return CorruptError(
        ErrorCode.LOG_CORRUPT,
        f"{name}: {problem}. The file was changed or damaged after it was written; restore it from a copy",
    )
