"""The units of a state that a condition chooses, found in tasks.

A condition that a row decides by itself is asked of each part of the state in a task. One with a query in it, or with
the time of day, is asked in one process, where all rows have the same answer and the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

import pyarrow as pa
from sqlglot import exp

from statestore.catalog.edits.task_shares import striped
from statestore.catalog.engines.engine_table import EngineSplit
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.attach import connect
from statestore.connector.edit.edited_state import EditedState, StateTableOfEdit
from statestore.connector.edit.rows_in_tasks import tables_of_answers, text_of_tables
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
    found = tables_of_answers(runs, partial(_chosen_in_share, warehouse, tables, tree, text.placed), len(shares))
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
        return text_of_tables({share: select_on_duckdb(warehouse, connection, tree, text, opened)})
