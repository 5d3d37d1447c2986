"""Rows of a state that tasks read, and tables as their answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from statestore.catalog.edits.task_shares import striped
from statestore.catalog.engines.engine_table import EngineSplit, EngineTable
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.kernels.arrays import Bools
from statestore.formats.places.reading_threads import limit_reading_threads
from statestore.formats.state_table import Query
from statestore.formats.values.without_pandas import arrow_numbers

Kept = Callable[[pa.RecordBatch], Bools]
"""Says which rows are kept."""


def rows_in_tasks(
    table: EngineTable, splits: Sequence[EngineSplit], query: Query, kept: Kept, schema: pa.Schema, runs: TaskRuns
) -> pa.Table:
    """Return the rows of the splits of a query that are kept, in their order."""
    shares = striped(list(enumerate(splits)), runs)
    work = partial(_rows_of_share, table.for_tasks(), shares, query, kept, schema)
    found = tables_of_answers(runs, work, len(shares))
    return pa.concat_tables([schema.empty_table(), *(found[number] for number in sorted(found))])


def _rows_of_share(
    table: EngineTable,
    shares: Sequence[Sequence[tuple[int, EngineSplit]]],
    query: Query,
    kept: Kept,
    schema: pa.Schema,
    share: int,
) -> str:
    limit_reading_threads(1)  # a task has one core; others run beside it
    found: dict[int, pa.Table] = {}
    for number, split in shares[share]:
        batches = [batch.filter(arrow_numbers(kept(batch))) for batch in table.read(split, query)]
        rows = pa.Table.from_batches(batches, schema=schema)
        if rows.num_rows:
            found[number] = rows
    return text_of_tables(found)


# Tables as answers


def text_of_tables(tables: Mapping[int, pa.Table]) -> str:
    return json.dumps({number: base64.b64encode(_packed(table)).decode() for number, table in tables.items()})


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def tables_of_answers(runs: TaskRuns, work: Callable[[int], str], count: int) -> dict[int, pa.Table]:
    """Return the tables of all answers by their numbers."""
    found: dict[int, pa.Table] = {}
    answers: Iterable[str] = runs.run(work, count) if count else ()
    for answer in answers:
        for number, packed in json.loads(answer).items():
            found[int(number)] = pa.ipc.open_stream(base64.b64decode(packed)).read_all()
    return found
