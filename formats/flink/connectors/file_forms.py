"""The forms of the source and the sink of files: splits, pending splits, buckets with their files, committables.

Source: ``FileSourceSplitSerializer``, ``PendingSplitsCheckpointSerializer``, ``FileWriterBucketStateSerializer``,
``FileSinkCommittableSerializer``, ``OutputStreamBasedPartFileWriter``, ``LocalRecoverableSerializer``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.kafka_forms import SOURCE_STATE, WRITER_STATE

_BUCKET, _COMMITTABLE, _PENDING = 0x1E764B79, 0x1E765C80, 0xDEADBEEF
_IN_PROGRESS_FILE, _PENDING_FILE, _LOCAL_FILE = 0xB3A4073D, 0x2C853C89, 0x1E744B57
_NO_OFFSET = -1
_TEXT, _LONG = pa.string(), pa.int64()
_TIME = pa.timestamp("us", "UTC")
FILE = pa.struct([("target", _TEXT), ("temporary", _TEXT), ("bytes", _LONG), ("stored", pa.binary())])
"""A file that is not finished: its paths and bytes, and what another file system than a local disk needs for it."""


def _path(source: ElementInput) -> str | None:
    """The parts of a URI, put together; None for a path without one."""
    if not source.boolean("whether there is a path"):
        return None
    scheme, user, host = (source.nullable_string(each) for each in ("a scheme", "a user", "a host"))
    port = source.at_least(-1, source.i32("a port"), "a port")
    path, query, fragment = (source.nullable_string(each) for each in ("a path", "a query", "a fragment"))
    authority = None if host is None else (f"{user}@" if user else "") + host + (f":{port}" if port >= 0 else "")
    return (
        ("" if scheme is None else f"{scheme}:")
        + ("" if authority is None else f"//{authority}")
        + (path or "")
        + ("" if query is None else f"?{query}")
        + ("" if fragment is None else f"#{fragment}")
    )


def _split_cells(source: ElementInput) -> Cells:
    split, path = source.utf("a split's id"), _path(source)
    offset, length = (source.at_least(0, source.i64(each), each) for each in ("an offset", "a length"))
    modified = source.epoch_millis("a time")
    size = source.at_least(0, source.i64("a file's size"), "a file's size")
    hosts = [source.utf("a host") for _ in source.entries(2, "hosts")]
    position: Cells = (None, None)
    if source.boolean("whether there is a reader's position"):
        start = source.at_least(_NO_OFFSET, source.i64("a reader's offset"), "a reader's offset")
        records = source.at_least(0, source.i64("records behind an offset"), "records behind an offset")
        position = (None if start == _NO_OFFSET else start, records)
    return split, path, offset, length, modified, size, hosts, *position


def _split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield _split_cells(source)


def _enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    """Pending splits, and the paths that are done; numbers in front of them are little-endian."""
    head = [int.from_bytes(source.take(4, "a number"), "little") for _ in range(4)]
    if head[0] != _PENDING or head[1] != 1:
        raise source.error(f"found 0x{head[0]:08X} and version {head[1]}, expected 0x{_PENDING:08X} and version 1")
    splits, paths = source.count(head[2], 4, "splits"), source.count(head[3], 4, "paths")
    for _ in range(splits):
        inner = source.inner(_little_sized(source))
        cells = _split_cells(inner)
        inner.end()
        yield "pending", *cells
    for _ in range(paths):
        yield "processed", None, source.text(_little_sized(source), "a path"), *[None] * (len(_SPLIT) - 2)


def _little_sized(source: ElementInput) -> bytes:
    return source.take(int.from_bytes(source.take(4, "a length"), "little"), "a value")


def _file(source: ElementInput, magic: int, what: str) -> dict[str, Any]:
    """A file that the sink has not finished: what its file system's writer needs to go on with it or to commit it."""
    outer, file = source.versioned(range(1, 3), what)
    file.magic(magic, what)
    found: dict[str, Any] = {}
    if outer == 2:
        if file.boolean("whether there is a path"):
            found["target"] = file.utf("a path")
        if magic == _PENDING_FILE:
            size = file.at_least(-1, file.i64("a file's bytes"), "a file's bytes")
            found["bytes"] = None if size < 0 else size
    version, stored = file.versioned(range(1 << 31), "a file")
    file.end()
    if version == 1 and _is_local(stored):
        return _local_file(stored) | {name: cell for name, cell in found.items() if cell is not None}
    return {**found, "stored": stored.data}


def _is_local(stored: ElementInput) -> bool:
    return stored.data[:4] == _LOCAL_FILE.to_bytes(4, "little")


def _local_file(stored: ElementInput) -> dict[str, Any]:
    stored.skip(4)
    size = stored.at_least(0, int.from_bytes(stored.take(8), "little", signed=True), "a file's bytes")
    lengths = [int.from_bytes(stored.take(4), "little") for _ in range(2)]
    target, temporary = (stored.text(stored.take(length, "a path"), "a path") for length in lengths)
    stored.end()
    return {"target": target, "temporary": temporary, "bytes": size}


def _bucket(source: ElementInput, version: int) -> Iterator[Cells]:
    source.magic(_BUCKET, "a bucket")
    _, text = source.versioned(range(1, 2), "a bucket's id")
    bucket = text.text(_little_sized(text), "a bucket's id")
    text.end()
    path, at = source.utf("a bucket's path"), source.at
    source.skip(8, "a time")  # without a meaning where there is no file
    created = current = None
    if source.boolean("whether there is a file in progress"):
        created = source.inner(source.data[at : at + 8]).epoch_millis("a time")
        current = _file(source, _IN_PROGRESS_FILE, "a file in progress")
    yield bucket, path, created, current


def file_committable(source: ElementInput, version: int) -> Cells:
    """Read a file that is to be committed, or files that are to be removed."""
    source.magic(_COMMITTABLE, "a committable")
    bucket = source.utf("a bucket's id")
    pending = in_progress = compacted = None
    if source.boolean("whether there is a pending file"):
        pending = _file(source, _PENDING_FILE, "a pending file")
    if source.boolean("whether there is a file in progress"):
        in_progress = _file(source, _IN_PROGRESS_FILE, "a file in progress")
    if source.boolean("whether there is a compacted file"):
        compacted = source.utf("a compacted file")
    return bucket, pending, in_progress, compacted


_SPLIT: list[tuple[str, pa.DataType]] = [
    ("split_id", _TEXT),
    ("path", _TEXT),
    ("offset", _LONG),
    ("length", _LONG),
    ("modified", _TIME),
    ("file_bytes", _LONG),
    ("hosts", pa.list_(_TEXT)),
    ("reader_offset", _LONG),
    ("records_after_offset", _LONG),
]
FILE_SPLIT = ConnectorForm(
    "file_split", "a split of the file source", pa.schema(_SPLIT), _split, range(1, 2), (SOURCE_STATE,)
)
FILE_ENUMERATOR = ConnectorForm(
    "file_enumerator",
    "the enumerator of the file source",
    pa.schema([("state", _TEXT), *_SPLIT]),
    _enumerator,
    range(1, 2),
    many=True,
)
FILE_WRITER = ConnectorForm(
    "file_writer",
    "a bucket of the file sink",
    pa.schema([("bucket", _TEXT), ("path", _TEXT), ("created", _TIME), ("in_progress", FILE)]),
    _bucket,
    range(3, 4),
    (WRITER_STATE,),
)
COMMITTABLE_COLUMNS = [("bucket", _TEXT), ("pending", FILE), ("in_progress", FILE), ("compacted", _TEXT)]
