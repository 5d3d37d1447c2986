"""Version chunks: the list of commits in immutable files of 4,096 each, which are read when somebody asks for them
(docs/log-format.md, "Version chunks").

A log checkpoint names its chunks and holds only the commits after them. So neither the size of a checkpoint nor the
time to open a store depends on the number of commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.log.entries import OPERATIONS, read_entry
from statestore.catalog.log.frames import MAX_FRAME_BYTES, corrupt, decode_frames, encode_frames, frame
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.storage import Storage, StorageExistsError
from statestore.catalog.log.store_spec import identity_guard
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.ipc_file import read_stream

CHUNK_VERSIONS = 4_096
CHUNKS = "log/_chunks/"
CHUNK_FORMAT = b"log-chunk/1"
CHUNK_FORMAT_OF_SOURCES = b"log-chunk/2"  # with commits that captured versions of a source
NO_TIME = -1_000  # Kafka's observed stream time starts at -1 ms
KEPT_APPLICATIONS = 1_000
_CACHED = 4

NUMBERS = ("timestamp", "stream_time", "rows", "tombstones", "closed", "bytes", "dropped")
TEXTS = ("operation", "writer", "transaction", "source")
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in NUMBERS),
        pa.field("operation", pa.string()),
        pa.field("writer", pa.string()),
        pa.field("application", pa.string()),
        pa.field("batch", pa.int64()),
    ]
)
SOURCE_SCHEMA = pa.schema(
    [
        pa.field("source_time", pa.int64()),
        pa.field("watermark", pa.int64()),
        pa.field("offsets", pa.string()),
        pa.field("missing_from", pa.int64()),
        pa.field("missing_to", pa.int64()),
    ]
)
"""The columns of captured versions, which stand behind the others where a commit has one; their number is the batch."""
SCHEMA_WITH_SOURCES = pa.schema([*SCHEMA, *SOURCE_SCHEMA])


class ChunkRef(NamedTuple):
    """A chunk as checkpoints name it: its first version, and the length and checksum of its file."""

    first: int
    bytes: int
    checksum: str

    @property
    def name(self) -> str:
        return f"{CHUNKS}{self.first:020d}-{self.checksum}.arrow"


def check_columns(table: pa.Table | pa.RecordBatch) -> None:
    """Raise ValueError for nulls and operations that no commit has."""
    required = [*NUMBERS, "operation", "writer"]
    if nulls := [name for name in required if table[name].null_count]:
        raise ValueError(f"nulls in {nulls}")
    if table["application"].is_null() != table["batch"].is_null():
        raise ValueError("transactions without an application or without a batch")
    operations = set(pc.unique(table["operation"]).to_pylist())
    if not operations <= set(OPERATIONS):
        raise ValueError(f"operations {operations - set(OPERATIONS)}")
    if has_sources(table):
        _check_sources(table)


def _check_sources(table: pa.Table | pa.RecordBatch) -> None:
    captured, missing = pc.is_valid(table["source_time"]), pc.is_valid(table["missing_from"])
    for name in ("watermark", "offsets", "missing_from"):
        if pc.any(pc.and_not(pc.is_valid(table[name]), captured)).as_py():
            raise ValueError(f"{name} of a version of a source without its time")
    if pc.any(pc.and_not(captured, pc.is_valid(table["batch"]))).as_py():
        raise ValueError("a version of a source without a transaction")
    ordered = pc.and_(
        pc.less_equal(table["missing_from"], table["missing_to"]), pc.less(table["missing_to"], table["batch"])
    )
    if pc.any(pc.xor(missing, pc.is_valid(table["missing_to"]))).as_py() or not pc.all(ordered, min_count=0).as_py():
        raise ValueError("missing versions of a source are not before the version that follows them")


def has_sources(table: pa.Table | pa.RecordBatch) -> bool:
    """Return whether commits have the columns of captured versions."""
    return len(table.schema) > len(SCHEMA)


def with_sources(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return commits with the columns of captured versions, which are null where they had none."""
    if has_sources(batch):
        return batch
    nulls = [pa.nulls(batch.num_rows, field.type) for field in SOURCE_SCHEMA]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=SCHEMA_WITH_SOURCES)


def sources_of(table: pa.Table | pa.RecordBatch) -> list[SourceVersion | None]:
    """Return the version of a source that each commit captured."""
    if not has_sources(table):
        return [None] * table.num_rows
    columns = (table[name].to_pylist() for name in ("batch", *SOURCE_SCHEMA.names))
    rows = zip(*columns, strict=True)
    return [
        None
        if time is None
        else SourceVersion(batch, time, watermark, offsets, None if first is None else (first, last))
        for batch, time, watermark, offsets, first, last in rows
    ]


def transactions_of(table: pa.Table | pa.RecordBatch) -> list[tuple[str, int] | None]:
    """Return the transaction of each commit."""
    if table["application"].null_count == table.num_rows:
        return [None] * table.num_rows
    pairs = zip(table["application"].to_pylist(), table["batch"].to_pylist(), strict=True)
    return [None if application is None else (application, batch) for application, batch in pairs]


def encode_chunk(store: str, first: int, versions: pa.RecordBatch) -> bytes | None:
    """Return the file of a run of commits; None if their texts are too long for one."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, versions.schema) as writer:
        writer.write_batch(versions)
    content = sink.getvalue()
    if len(content) > MAX_FRAME_BYTES:
        return None
    kind = CHUNK_FORMAT_OF_SOURCES if has_sources(versions) else CHUNK_FORMAT
    return encode_frames(kind, store, [frame(first, versions.num_rows, content)])


def decode_chunk(name: str, data: bytes, first: int) -> pa.RecordBatch:
    """Return the commits in the bytes of the chunk ``name``. Raises CorruptError LOG_CORRUPT for damage."""
    kind, _, frames = decode_frames(name, data, (CHUNK_FORMAT, CHUNK_FORMAT_OF_SOURCES), first, CHUNK_VERSIONS)
    schema = SCHEMA_WITH_SOURCES if kind == CHUNK_FORMAT_OF_SOURCES else SCHEMA
    if len(frames) != 1:
        raise corrupt(name, f"{len(frames)} frames, expected one")
    try:
        batches = list(read_stream(pa.py_buffer(frames[0].content(name))))
        if len(batches) != 1 or batches[0].schema != schema or batches[0].num_rows != CHUNK_VERSIONS:
            raise ValueError("it does not have the columns of a chunk")
        check_columns(batches[0])
    except StateStoreError:
        raise
    except (ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise corrupt(name, f"{type(error).__name__}: {error}") from error
    return batches[0]


class VersionChunks:
    """The chunks of a list of commits, from version 0 on, read when they are needed.

    ``newest`` has the greatest batch of each application with its version; ``complete`` says whether every application
    is in it. ``dropped`` is the sum of the commits' dropped records.
    """

    def __init__(
        self,
        storage: Storage | None = None,
        refs: tuple[ChunkRef, ...] = (),
        newest: Mapping[str, tuple[int, int]] | None = None,
        complete: bool = True,
        dropped: int = 0,
    ) -> None:
        self.storage = storage
        self.refs = refs
        self.newest = newest or {}
        self.complete = complete
        self.dropped = dropped
        self._batches: dict[int, pa.RecordBatch] = {}  # replaced, never changed: threads share it without a lock
        self._columns: dict[str, Ints] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return VersionChunks, (self.storage, self.refs, self.newest, self.complete, self.dropped)

    def __len__(self) -> int:
        return len(self.refs) * CHUNK_VERSIONS

    def column(self, name: str) -> Ints:
        """Return a column of all commits. Raises CorruptError LOG_CORRUPT."""
        found = self._columns.get(name)
        if found is None:
            parts = [self._chunk(number)[name].to_numpy() for number in range(len(self.refs))]
            found = np.concatenate(parts) if parts else np.empty(0, np.int64)
            self._columns[name] = found
        return found

    def texts(self, name: str) -> list[Any]:
        """Return the operations, writers, transactions or sources of all commits. Raises CorruptError LOG_CORRUPT."""
        chunks = (self._chunk(number) for number in range(len(self.refs)))
        return [text for chunk in chunks for text in texts_of(chunk, name)]

    def number(self, name: str, version: int) -> int:
        """Return the number of one commit. Raises CorruptError LOG_CORRUPT."""
        return int(self._chunk(version // CHUNK_VERSIONS)[name][version % CHUNK_VERSIONS].as_py())

    def find(self, application: str, batch: int) -> int | None:
        """Return the version of a transaction; None if no commit has it. Raises CorruptError LOG_CORRUPT.

        No chunk is read for a batch later than all others of its application, or equal to the latest.
        """
        latest = self.newest.get(application)
        if latest is None and self.complete:
            return None
        if latest is not None and batch >= latest[0]:
            return latest[1] if batch == latest[0] else None
        for number in reversed(range(len(self.refs))):
            chunk = self._chunk(number)
            same = pc.and_(pc.equal(chunk["batch"], batch), pc.equal(chunk["application"], application))
            found = pc.index(same, True).as_py()
            if found >= 0:
                return number * CHUNK_VERSIONS + int(found)
        return None

    def extended(self, storage: Storage, store: str, versions: Iterable[pa.RecordBatch]) -> VersionChunks:
        """Write further chunks, durably, and return the list with them; shorter if a chunk cannot be written."""
        chunks = self
        for batch in versions:
            ref = _written(storage, store, len(chunks), batch)
            if ref is None:
                break
            newest = dict(chunks.newest)
            for version, transaction in enumerate(transactions_of(batch), len(chunks)):
                if transaction is not None and transaction[1] >= newest.get(transaction[0], (-(2**63), 0))[0]:
                    newest[transaction[0]] = transaction[1], version
            kept = dict(sorted(newest.items(), key=lambda item: item[1][1])[-KEPT_APPLICATIONS:])
            dropped = chunks.dropped + int(pc.sum(batch["dropped"]).as_py())
            complete = chunks.complete and len(kept) == len(newest)
            chunks = VersionChunks(storage, (*chunks.refs, ref), kept, complete, dropped)
        return chunks

    def _chunk(self, number: int) -> pa.RecordBatch:
        recent = self._batches
        found = recent.get(number)
        if found is None:
            found = self._read(number)
            newest = [*recent.items()][-(_CACHED - 1) :]
            self._batches = {**dict(newest), number: found}
        return found

    def _read(self, number: int) -> pa.RecordBatch:
        """Return a chunk, from the log entries if its file is damaged or missing. Raises CorruptError LOG_CORRUPT."""
        ref = self.refs[number]
        if self.storage is None:
            raise corrupt(ref.name, "the list of commits was read without a store")
        try:
            return read_chunk(self.storage, ref)
        except (CorruptError, NotFoundError) as error:
            try:
                return self._from_entries(self.storage, ref.first)
            except (CorruptError, NotFoundError):
                raise CorruptError(
                    ErrorCode.LOG_CORRUPT,
                    f"{error.message}; {ref.name} is needed, as the log entries that have the same content are gone",
                ) from error

    def _from_entries(self, storage: Storage, first: int) -> pa.RecordBatch:
        entries = [read_entry(storage, version) for version in range(first, first + CHUNK_VERSIONS)]
        stream_time = NO_TIME
        if first and entries[0].stream_time is None:
            stream_time = self.number("stream_time", first - 1)
        columns: dict[str, list[Any]] = {
            name: [getattr(entry, name) for entry in entries] for name in (*NUMBERS, *TEXTS)
        }
        for place, time in enumerate(columns["stream_time"]):
            stream_time = columns["stream_time"][place] = stream_time if time is None else time
        return batch_of(columns)


def read_chunk(storage: Storage, ref: ChunkRef) -> pa.RecordBatch:
    """Return the commits of a chunk. Raises CorruptError LOG_CORRUPT, NotFoundError FILE_NOT_FOUND."""
    data = storage.read(ref.name)
    if len(data) != ref.bytes or data[-8:].hex() != ref.checksum:
        raise corrupt(ref.name, f"it has {len(data)} bytes and another checksum, expected {ref.bytes} bytes")
    return decode_chunk(ref.name, data, ref.first)


def batch_of(columns: Mapping[str, Sequence[Any] | Ints]) -> pa.RecordBatch:
    """Return commits as the columns of chunks and checkpoints."""
    transactions = columns["transaction"]
    arrays = [pa.array(columns[name], SCHEMA.field(name).type) for name in (*NUMBERS, "operation", "writer")]
    arrays.append(pa.array([None if t is None else t[0] for t in transactions], pa.string()))
    arrays.append(pa.array([None if t is None else t[1] for t in transactions], pa.int64()))
    sources = columns["source"]
    if not any(sources):
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    for name in ("time", "watermark", "offsets"):
        kind = SOURCE_SCHEMA.field("source_time" if name == "time" else name).type
        arrays.append(pa.array([None if s is None else getattr(s, name) for s in sources], kind))
    missing = [None if s is None else s.missing for s in sources]
    arrays += [pa.array([None if m is None else m[end] for m in missing], pa.int64()) for end in (0, 1)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_SOURCES)


def texts_of(commits: pa.RecordBatch, name: str) -> list[Any]:
    """Return the operation, writer, transaction or captured version of each commit."""
    if name == "transaction":
        return transactions_of(commits)
    return sources_of(commits) if name == "source" else commits[name].to_pylist()


def _written(storage: Storage, store: str, first: int, batch: pa.RecordBatch) -> ChunkRef | None:
    data = encode_chunk(store, first, batch)
    if data is None:
        return None
    ref = ChunkRef(first, len(data), data[-8:].hex())
    guard = identity_guard(store) if store else None
    try:
        storage.create(ref.name, data, guard)
    except StorageExistsError:
        if storage.read(ref.name) != data:  # the name has the checksum of the bytes, so the other file is damaged
            storage.delete(ref.name)
            storage.create(ref.name, data, guard)
    return ref
