"""The state of committers of sinks: committables by checkpoint and subtask, each in the form of its connector.

Source: ``CommittableCollectorSerializer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from statestore.formats.flink.connectors import file_forms, kafka_forms, lake_forms, transaction_forms
from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput

COMMITTER_STATE = "streaming_committer_raw_states"
_MAGIC = 0xB91F252C
_REQUESTS = ("received", "retry", "failed", "committed")
_INT, _LONG, _TEXT = pa.int32(), pa.int64(), pa.string()
ReadCommittable = Callable[[ElementInput, int], Cells]

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("checkpoint_id", _LONG),
    ("subtasks", _INT),
    ("from_subtask", _INT),
    ("expected", _INT),
    ("drained", _INT),
    ("failed", _INT),
    ("state", _TEXT),
    ("retries", _INT),
]
"""``subtasks`` is the number of writers, ``from_subtask`` the one whose committables are counted."""


def _collector(width: int, version_of: range, read: ReadCommittable, source: ElementInput, _: int) -> Iterator[Cells]:
    """One row for each committable, and one for a checkpoint and a subtask that have none."""
    source.magic(_MAGIC, "committables")
    for version, checkpoint in _list(source, range(2), "checkpoints"):
        number = checkpoint.i64("a checkpoint id")
        subtasks = checkpoint.at_least(0, checkpoint.i32("subtasks"), "subtasks") if version else None
        rows = [
            (number, subtasks, *row)
            for inner, subtask in _list(checkpoint, range(2), "subtasks")
            for row in _subtask(width, version_of, read, subtask, inner)
        ]
        checkpoint.end()
        yield from rows or [(number, subtasks, *[None] * (width + len(_COLUMNS) - 2))]


def _subtask(
    width: int, version_of: range, read: ReadCommittable, source: ElementInput, version: int
) -> Iterator[Cells]:
    number = source.at_least(0, source.i32("a subtask"), "a subtask") if version else None
    requests: list[tuple[Cells, Cells]] = []
    for _, request in _list(source, range(1), "requests"):
        inner, content = request.versioned(version_of, "a committable")
        cells = read(content, inner)
        content.end()
        retries, state = request.i32("retries"), request.i32("a request's state")
        if not 0 <= state < len(_REQUESTS):
            raise request.error(f"found state {state} of a request, expected 0 to 3", request.at - 4)
        request.end()
        requests.append(((_REQUESTS[state], request.at_least(0, retries, "retries")), cells))
    counts = tuple(source.at_least(0, source.i32(each), each) for each in ("a count", "a count", "a count"))
    source.end()
    for state_cells, cells in requests or [((None, None), (None,) * width)]:
        yield number, *counts, *state_cells, *cells


def _list(source: ElementInput, versions: range, what: str) -> Iterator[tuple[int, ElementInput]]:
    """The version of a list's serializer with each of its elements."""
    version = source.i32(f"the version of {what}")
    if version not in versions:
        raise source.error(f"found version {version} of {what}, expected 0 to {versions.stop - 1}", source.at - 4)
    for _ in source.entries(4, what):
        yield version, source.inner(source.sized(what))


def _stored(source: ElementInput, version: int) -> Cells:
    return version, source.rest()


def _form(
    name: str, about: str, columns: list[tuple[str, pa.DataType]], read: ReadCommittable, versions: range
) -> ConnectorForm:
    collect = partial(_collector, len(columns), versions, read)
    schema = pa.schema([*_COLUMNS, *columns])
    return ConnectorForm(name, about, schema, collect, range(2, 3), (COMMITTER_STATE,), many=True)


KAFKA_COMMITTABLES = _form(
    "kafka_committables",
    "committables of the Kafka sink",
    kafka_forms.COMMITTABLE_COLUMNS,
    kafka_forms.kafka_committable,
    range(1, 2),
)
FILE_COMMITTABLES = _form(
    "file_committables",
    "committables of the file sink",
    file_forms.COMMITTABLE_COLUMNS,
    file_forms.file_committable,
    range(2, 3),
)
ICEBERG_COMMITTABLES = _form(
    "iceberg_committables",
    "committables of the Iceberg sink",
    lake_forms.ICEBERG_COMMITTABLE_COLUMNS,
    lake_forms.iceberg_committable,
    range(1, 2),
)
JDBC_COMMITTABLES = _form(
    "jdbc_committables",
    "committables of the JDBC sink",
    transaction_forms.TRANSACTION_COLUMNS,
    transaction_forms.jdbc_committable,
    range(1, 2),
)
COMMITTABLES = _form(
    "committables",
    "committables of a sink",
    [("version", _INT), ("committable", pa.binary())],
    _stored,
    range(1 << 31),
)
"""Committables of any sink, as bytes; it fits those of the other forms, too."""
