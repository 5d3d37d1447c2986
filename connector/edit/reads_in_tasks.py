"""Rows of a state that tasks find for a statement: those of some units, and the units that a condition chooses.

A condition that a row decides by itself is asked of each part of the state in a task. One with a query in it, or with
the time of day, is asked in one process, where all rows have the same answer and the same moment.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

import pyarrow as pa
from sqlglot import exp

from statestore.catalog.edits.task_shares import striped
from statestore.catalog.engines.engine_table import EngineSplit, EngineTable
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.attach import connect
from statestore.connector.edit.edited_state import EditedState, Kept, StateTableOfEdit
from statestore.connector.edit.statements import Delete, Text, Update
from statestore.connector.sql.sql_duckdb import select_on_duckdb
from statestore.connector.sql.sql_statement import TableReference
from statestore.formats.places.reading_threads import limit_reading_threads
from statestore.formats.state_table import Query, StateTable

_OF_THE_MOMENT = frozenset(
    {"now", "today", "age", "localtime", "localtimestamp", "transaction_timestamp", "txid_current", "getvariable"}
)
_BEGINS_OF_THE_MOMENT = ("current_", "get_current_", "utc_", "unix_")


def is_of_the_row(statement: Update | Delete) -> bool:
    """Return whether the condition of a statement depends on the values of a row alone."""
    if statement.sources or statement.with_ is not None or statement.where is None:
        return False
    if statement.where.find(exp.Query, exp.Subquery, exp.Placeholder, exp.Parameter) is not None:
        return False
    names = [
        (each.name if isinstance(each, exp.Anonymous) else each.sql_name()).lower()
        for each in statement.where.find_all(exp.Func)
    ]
    return not any(name in _OF_THE_MOMENT or name.startswith(_BEGINS_OF_THE_MOMENT) for name in names)


# The rows of some units


def rows_in_tasks(
    table: EngineTable, splits: Sequence[EngineSplit], query: Query, kept: Kept, schema: pa.Schema, runs: TaskRuns
) -> pa.Table:
    """Return the rows of the splits of a query that are kept, in their order."""
    shares = striped(list(enumerate(splits)), runs)
    work = partial(_rows_of_share, table.for_tasks(), shares, query, kept, schema)
    found = _answers(runs, work, len(shares))
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
        batches = [batch.filter(pa.array(kept(batch))) for batch in table.read(split, query)]
        rows = pa.Table.from_batches(batches, schema=schema)
        if rows.num_rows:
            found[number] = rows
    return _text_of(found)


# The units that a condition chooses


@dataclass(frozen=True)
class _ShareOfState(StateTableOfEdit):
    """A state of which only some splits are read, whatever a query asks of their rows."""

    share: tuple[EngineSplit, ...] = ()

    def splits(self, query: Query) -> Sequence[EngineSplit]:
        return self.share


def chosen_in_tasks(warehouse: Warehouse, state: EditedState, tree: exp.Query, text: Text, runs: TaskRuns) -> pa.Table:
    """Return the answer of a query over a state as statements have left it, asked of each part by itself.

    The query has no other table, and the answer is that of all parts in any order.
    """
    table = state.edited_table()
    shares = striped(table.splits(Query(version=state.version)), runs)
    known = {each.name: getattr(table, each.name) for each in fields(StateTableOfEdit)}
    tables = tuple(_ShareOfState(**known, share=share) for share in shares)
    found = _answers(runs, partial(_chosen_in_share, warehouse, tables, tree, text.placed), len(shares))
    return pa.concat_tables(found.values())


def _chosen_in_share(
    warehouse: Warehouse, tables: Sequence[_ShareOfState], tree: exp.Query, text: str, share: int
) -> str:
    limit_reading_threads(1)

    def opened(reference: TableReference) -> tuple[StateTable, bool]:
        return tables[share], True

    with connect(False) as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET lock_configuration = true")
        return _text_of({share: select_on_duckdb(warehouse, connection, tree, text, opened)})


# Tables as answers


def _text_of(tables: Mapping[int, pa.Table]) -> str:
    return json.dumps({number: base64.b64encode(_packed(table)).decode() for number, table in tables.items()})


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _answers(runs: TaskRuns, work: Callable[[int], str], count: int) -> dict[int, pa.Table]:
    """Return the tables of all answers by their numbers."""
    found: dict[int, pa.Table] = {}
    answers: Iterable[str] = runs.run(work, count) if count else ()
    for answer in answers:
        for number, packed in json.loads(answer).items():
            found[int(number)] = pa.ipc.open_stream(base64.b64decode(packed)).read_all()
    return found
