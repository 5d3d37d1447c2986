"""The forms of Iceberg's and Paimon's connectors: splits of tables, and Iceberg's enumerator and committables.

Source: ``IcebergSourceSplitSerializer``, ``IcebergEnumeratorStateSerializer``, ``IcebergCommittableSerializer``, and
``FileStoreSourceSplitSerializer`` of Paimon.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.kafka_forms import SOURCE_STATE

_SPLIT_VERSIONS = range(2, 4)
_STATUSES = ("UNASSIGNED", "ASSIGNED", "COMPLETED")
_RECORDS_BYTES = 8
_TEXT, _INT, _LONG, _BYTES = pa.string(), pa.int32(), pa.int64(), pa.binary()
_TIME = pa.timestamp("us", "UTC")


def _iceberg_rows(source: ElementInput, version: int) -> list[Cells]:
    """A row for each file of a split: where its reader stands, and the file's task, which is JSON."""
    at = source.at_least(0, source.i32("a file's number"), "a file's number")
    record = source.at_least(0, source.i64("a record's number"), "a record's number")
    rows: list[Cells] = []
    for number in source.entries(2, "files"):
        start = source.at
        data = source.take(source.u16("a length"), "a task") if version == 2 else source.sized("a task")
        text = source.modified_utf8(data, "a task", start)
        rows.append((at, record, number, *_file_cells(source, text, start), text))
    if at >= len(rows):
        raise source.error(f"found file {at} of {len(rows)}, expected one of them")
    return rows


def _file_cells(source: ElementInput, text: str, start: int) -> Cells:
    """Path, start, length, number of records and of delete files; null where a task is of no file."""
    task = source.json(text, "a task", start)
    if not isinstance(task, dict):
        raise source.error("found a task that is not a document", start)
    data = task.get("data-file")
    if not isinstance(data, dict):
        return (None,) * 5
    deletes = task.get("delete-files", [])
    cells = (data.get("file-path"), task.get("start"), task.get("length"), data.get("record-count"))
    numbers = all(type(each) is int and 0 <= each < 1 << 63 for each in cells[1:])  # a boolean is none
    if not isinstance(cells[0], str) or not numbers or not isinstance(deletes, list):
        raise source.error("found a task without its file's path, start, length or number of records", start)
    return *cells, len(deletes)


def _iceberg_split(source: ElementInput, version: int) -> Iterator[Cells]:
    yield from _iceberg_rows(source, version)


def _iceberg_enumerator(source: ElementInput, version: int) -> Iterator[Cells]:
    snapshot = taken = None
    if source.boolean("whether there is a position"):
        _, position = source.versioned(range(1, 2), "a position")
        if position.boolean("whether there is a snapshot"):
            snapshot = position.i64("a snapshot's id")
        if position.boolean("whether there is a time"):
            taken = position.epoch_millis("a snapshot's time")
        position.end()
    split_version = source.i32("the version of splits")
    if split_version not in _SPLIT_VERSIONS:
        raise source.error(f"found version {split_version} of splits, expected 2 or 3", source.at - 4)
    rows: list[Cells] = []
    for number in source.entries(6, "splits"):
        split = source.inner(source.sized("a split"))
        files = _iceberg_rows(split, split_version)
        split.end()
        start, status = source.at, source.utf("a status")
        if status not in _STATUSES:
            raise source.error(f"found status {status[:80]!r}, expected {', '.join(_STATUSES)}", start)
        rows += [(number, status.lower(), *each) for each in files]
    if version >= 2:
        for _ in source.entries(4, "counts of splits"):
            source.i32("a count of splits")
    for row in rows or [(None,) * (len(_ICEBERG) + 2)]:
        yield *row, snapshot, taken


def iceberg_committable(source: ElementInput, version: int) -> Cells:
    """Read the manifests of files that are to be committed, which are bytes."""
    job, operator = source.utf("a job's id"), source.utf("an operator's id")
    return job, operator, source.i64("a checkpoint id"), source.sized("manifests")


def _paimon_split(source: ElementInput, version: int) -> Iterator[Cells]:
    split = source.utf("a split's id")
    if source.left < _RECORDS_BYTES:
        raise source.error(f"found {source.left} bytes left, expected a split and the records to skip")
    stored = source.as_java_object(source.take(source.left - _RECORDS_BYTES, "a split"), "a split")
    yield split, source.at_least(0, source.i64("records to skip"), "records to skip"), stored


_ICEBERG: list[tuple[str, pa.DataType]] = [
    ("current_file", _INT),
    ("records_read", _LONG),
    ("file", _INT),
    ("path", _TEXT),
    ("start", _LONG),
    ("length", _LONG),
    ("file_records", _LONG),
    ("delete_files", _INT),
    ("task", _TEXT),
]
ICEBERG_SPLIT = ConnectorForm(
    "iceberg_split",
    "a split of the Iceberg source",
    pa.schema(_ICEBERG),
    _iceberg_split,
    _SPLIT_VERSIONS,
    (SOURCE_STATE,),
    many=True,
)
ICEBERG_ENUMERATOR = ConnectorForm(
    "iceberg_enumerator",
    "the enumerator of the Iceberg source",
    pa.schema([("split", _INT), ("status", _TEXT), *_ICEBERG, ("snapshot_id", _LONG), ("snapshot_time", _TIME)]),
    _iceberg_enumerator,
    range(1, 3),
    many=True,
)
ICEBERG_COMMITTABLE_COLUMNS = [
    ("job_id", _TEXT),
    ("operator_id", _TEXT),
    ("iceberg_checkpoint_id", _LONG),
    ("manifests", _BYTES),
]
PAIMON_SPLIT = ConnectorForm(
    "paimon_split",
    "a split of the Paimon source",
    pa.schema([("split_id", _TEXT), ("records_to_skip", _LONG), ("split", _BYTES)]),
    _paimon_split,
    range(1, 2),
    (SOURCE_STATE,),
)
