"""Lookup of the tables that a statement names, and of the columns that it may need."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from statestore.catalog.warehouse import Warehouse
from statestore.connector.sql.sql_statement import TableReference, located
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.state_table import Query, StateTable


def find_table(warehouse: Warehouse, name: str, position: str = "") -> StateTable:
    """The table called ``name``. Case is ignored, as in DuckDB and Spark, unless two names differ by case only.

    Raises NotFoundError TABLE_NOT_FOUND, which names the position, the nearest table and the existing ones.
    """
    same = [n for n in (*warehouse.tables(), *warehouse.metadata_tables()) if n.lower() == name.lower()]
    try:
        return warehouse.open(same[0] if len(same) == 1 else name)
    except NotFoundError as error:
        raise located(error, position) from None


def is_qualified(warehouse: Warehouse, name: str) -> bool:
    """Return whether a name of several parts is a table of the warehouse, or belongs to a store whose tables have such
    names."""
    names = (*warehouse.tables(), *warehouse.metadata_tables())
    schema = name.rpartition(".")[0].lower()
    return any(schema == known.lower() for known in warehouse.schemas()) or name.lower() in map(str.lower, names)


def check_answerable(table: StateTable, query: Query, reference: TableReference) -> None:
    """Raise now, with the position in the statement, any error that planning the read would raise."""
    if reference.plain:
        return
    try:
        table.splits(query)
    except StateStoreError as error:
        raise located(error, reference.position) from None


def columns_named(tree: exp.Expr, references: Sequence[TableReference]) -> set[str] | None:
    """Lower-case names that include all columns the statement reads; None if it may read any column.

    Every name in the statement counts, so no column is missed. Constructs that read columns without naming them (stars,
    natural joins, pivots, aliases by position) give None.
    """
    if not isinstance(tree, exp.Query) or tree.find(exp.Pivot, exp.Command) is not None:
        return None
    for reference in references:
        alias = reference.node.args.get("alias")
        if not isinstance(reference.node.parent, exp.From | exp.Join) or (alias is not None and alias.columns):
            return None
    if any(join.method == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            return None
    if any(not select.expressions for select in tree.find_all(exp.Select)):
        return None
    return {str(identifier.this).lower() for identifier in tree.find_all(exp.Identifier)}
