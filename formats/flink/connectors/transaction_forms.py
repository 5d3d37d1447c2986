"""The forms of transactions of databases (XA) that the JDBC sink keeps when it is exactly once.

    writer         hanging:int32 | (size:int8 | transaction)* | prepared:int32 | (size:int8 | transaction)*
    transaction    job:16 | subtask:int32 | subtasks:int32 | checkpoint:int64 | attempts:int32
    committable    202:int32 | size:int8 | job:16, subtask:int32 | size:int8 | subtasks:int32, checkpoint:int64

The connector writes its whole buffers, also within each other, so zeros follow each of these, and sizes count them.
Source: ``JdbcWriterStateSerializer``, ``JdbcCommitableSerializer``, ``TransactionId``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from statestore.formats.flink.connectors.connector_form import Cells, ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.connectors.kafka_forms import WRITER_STATE

_FORMAT = 202
_JOB = 16
_TRANSACTION = _JOB + 4 + 4 + 8 + 4
_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()
TRANSACTION_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("job_id", _TEXT),
    ("subtask", _INT),
    ("of_subtasks", _INT),
    ("transaction_checkpoint_id", _LONG),
]


def _writer(source: ElementInput, version: int) -> Iterator[Cells]:
    for state in ("hanging", "prepared"):
        for _ in source.entries(1 + _TRANSACTION, f"{state} transactions"):
            one = _sized(source, "a transaction")
            yield state, *_job_and_subtask(one), *_subtasks_and_checkpoint(one), one.i32("attempts")
            _end(one)
    _end(source)


def jdbc_committable(source: ElementInput, version: int) -> Cells:
    """The cells of a committable of the JDBC sink."""
    number = source.i32("the format of a transaction")
    if number != _FORMAT:
        raise source.error(f"found format {number} of a transaction, expected {_FORMAT}, which is Flink's", 0)
    job, branch = _sized(source, "a transaction"), _sized(source, "the branch of a transaction")
    cells = *_job_and_subtask(job), *_subtasks_and_checkpoint(branch)
    for each in (job, branch, source):
        _end(each)
    return cells


def has_transactions(element: bytes) -> bool:
    """Return whether the state of a writer, with its header, has any; one that has none is zeros, as others may be."""
    return any(element[8:])


def _job_and_subtask(source: ElementInput) -> tuple[str, int]:
    job = source.take(_JOB, "the id of a job").hex()
    return job, source.at_least(0, source.i32("a subtask"), "a subtask")


def _subtasks_and_checkpoint(source: ElementInput) -> tuple[int, int]:
    subtasks = source.at_least(0, source.i32("a number of subtasks"), "a number of subtasks")
    return subtasks, source.at_least(-1, source.i64("a checkpoint id"), "a checkpoint id")


def _sized(source: ElementInput, what: str) -> ElementInput:
    """The input of ``size:int8 | bytes``."""
    size = source.u8(f"the size of {what}")
    return source.inner(source.take(size, what))


def _end(source: ElementInput) -> None:
    """Take the zeros behind what was written: a buffer that grows has less than twice the bytes it needs, and some."""
    written = source.at
    rest = source.rest()
    if any(rest) or len(rest) > written + 16:
        raise source.error(f"found {len(rest)} bytes behind the value, expected the zeros of its buffer", written)


JDBC_WRITER = ConnectorForm(
    "jdbc_writer",
    "a writer of the JDBC sink that is exactly once",
    pa.schema([("state", _TEXT), *TRANSACTION_COLUMNS, ("attempts", _INT)]),
    _writer,
    range(2, 3),
    (WRITER_STATE,),
    many=True,
)
