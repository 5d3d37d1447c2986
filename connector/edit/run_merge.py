"""MERGE: rows of a state that match rows of a source change or go, and rows of the source that match none come.

The source is computed once. Each pair of matching rows, and each row that matches none, goes by the first clause whose
condition holds; all clauses see the state as it was before the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from statestore.connector.edit.editing import ROW, ROWS, Editing
from statestore.connector.edit.named_rows import Columns, Path, load_named, query_of
from statestore.connector.edit.row_changes import delete_rows, insert_rows, key_text, set_in_place
from statestore.connector.edit.run_statement import (
    as_units,
    assigned_path,
    can_ask_units,
    check_apart,
    fitted_to,
    numbers_of,
    whole_rows,
    with_tables,
)
from statestore.connector.edit.statements import Assignment, Merge, MergeInsert, Text, When
from statestore.connector.edit.units import repeated_row
from statestore.connector.edit.written_names import WrittenNames
from statestore.connector.sql.sql_statement import replace_table
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.without_pandas import arrow_numbers

SOURCE, SOURCE_ROW = "__statestore_source", "__statestore_source_row"
CHOSEN, CLAUSE = "__statestore_chosen", "__statestore_clause"


@dataclass(frozen=True)
class _Chosen:
    """Pairs of a row of the state and one of the source, and the clause of each; -1 for none of both."""

    rows: Ints
    sources: Ints
    clauses: Ints

    def of_clause(self, clause: int) -> _Chosen:
        mine = self.clauses == clause
        return _Chosen(self.rows[mine], self.sources[mine], self.clauses[mine])


def run_merge(editing: Editing, text: Text, merge: Merge) -> None:
    """Change, remove and add rows of a state as the clauses of a MERGE say.

    Raises InvalidInputError EDIT_REFUSED for a row of the state that several rows of the source change.
    """
    _Run(editing, text, merge).run()


class _Run:
    def __init__(self, editing: Editing, text: Text, merge: Merge) -> None:
        self.editing, self.text, self.merge = editing, text, merge
        self.state = editing.target(merge.target)
        self.name = merge.using.alias_or_name or "source"
        self.columns = Columns.of(merge.target.alias, self.state.schema, [merge.using])
        self.source = self._computed_source()
        self.merge = WrittenNames(self.columns, lambda: self.source.schema.names).merge(merge)
        self.using = exp.Table(
            this=exp.to_identifier(SOURCE, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(self.name, quoted=True)),
        )

    def run(self) -> None:
        merge, state = self.merge, self.state
        actions = [self._checked(when) for when in merge.whens]
        self._load()
        chosen = self._chosen()
        again = repeated_row(chosen.rows[(chosen.rows >= 0)])
        if again is not None:
            row = int(chosen.rows[chosen.rows >= 0][again])
            raise InvalidInputError(
                ErrorCode.EDIT_REFUSED,
                f"{state.name!r}: several rows of the source of MERGE match the row of "
                f"{key_text(state, state.now, row)}, so that it is not determined what becomes of "
                "it; let one row of the source match it, as by GROUP BY",
            )
        # All values are computed before the first row changes.
        updates: list[tuple[Ints, Mapping[Path, pa.Array]]] = []
        deleted: list[Ints] = [np.empty(0, np.int64)]
        added: list[pa.Table] = []
        for number, (when, paths) in enumerate(zip(merge.whens, actions, strict=True)):
            pairs = chosen.of_clause(number)
            if when.action is None or not len(pairs.clauses):
                continue
            if when.action == "delete":
                deleted.append(pairs.rows)
            elif isinstance(when.action, MergeInsert):
                added.append(self._new_rows(when.action, pairs))
            else:
                updates.append(self._values(when, paths, pairs))
        moved = [set_in_place(state, rows, values) for rows, values in updates]
        delete_rows(state, np.concatenate([*deleted, *(rows for rows, _ in moved)]))
        for each in (*(rows for _, rows in moved), *added):
            insert_rows(state, each)

    def _checked(self, when: When) -> list[Path]:
        """Return the columns that a clause sets."""
        if when.action == "all":
            return [(name,) for name in self._all_names()]
        if not isinstance(when.action, tuple):
            return []
        paths = [assigned_path(self.state, self.columns, each) for each in when.action]
        check_apart(paths, self.merge.target.position)
        return paths

    def _all_names(self) -> list[str]:
        """Return the columns of the state. Raises InvalidInputError INVALID_SQL where the source has not all."""
        known = {name.lower() for name in self.source.schema.names}
        missing = [name for name in self.state.own.names if name.lower() not in known]
        if missing:
            raise InvalidInputError(
                ErrorCode.INVALID_SQL,
                f"the source of MERGE has no {', '.join(missing)}, and * takes each column of {self.state.name!r} "
                "by its name; name the columns",
            )
        return list(self.state.own.names)

    # The rows that match

    def _computed_source(self) -> pa.Table:
        using = self.merge.using
        tree = with_tables(query_of([exp.Star()], [using], None), self.merge.with_)
        found = self.editing.select(tree, self.text)
        return found.append_column(SOURCE_ROW, arrow_numbers(np.arange(found.num_rows)))

    def _load(self) -> None:
        state, merge = self.state, self.merge
        if any(when.kind == "unsourced" for when in merge.whens) or not can_ask_units(state):
            state.load_all()
            return
        given = {SOURCE: self.source}

        def select(tree: exp.Query) -> pa.Table:
            return self.editing.select(with_tables(tree, merge.with_), self.text, given)

        if not load_named(state, self.columns, [self.using], merge.on, select):
            unit = [exp.column(name, table=merge.target.alias, quoted=True) for name in state.unit]
            state.load(as_units(state, select(query_of(unit, [merge.target.node, self.using], merge.on))))

    def _chosen(self) -> _Chosen:
        """Return the clause of each pair, of each row of the source without one, and of each row of the state without
        one. What no clause is for is left out."""
        pairs = self._cased("matched", [self.merge.target.node, self.using], self.merge.on)
        missing = np.setdiff1d(np.arange(self.source.num_rows), pairs.sources)
        unsourced = np.setdiff1d(np.arange(self.state.now.num_rows), pairs.rows)
        found = [pairs]
        if any(when.kind == "absent" for when in self.merge.whens):
            found.append(self._of(self._cased("absent", [self.using], None), "sources", missing))
        if any(when.kind == "unsourced" for when in self.merge.whens):
            found.append(self._of(self._cased("unsourced", [self.merge.target.node], None), "rows", unsourced))
        whole = _Chosen(
            *(np.concatenate([getattr(each, name) for each in found]) for name in ("rows", "sources", "clauses"))
        )
        mine = whole.clauses >= 0
        return _Chosen(whole.rows[mine], whole.sources[mine], whole.clauses[mine])

    @staticmethod
    def _of(chosen: _Chosen, side: str, numbers: Ints) -> _Chosen:
        mine = np.isin(getattr(chosen, side), numbers)
        return _Chosen(chosen.rows[mine], chosen.sources[mine], chosen.clauses[mine])

    def _cased(self, kind: str, tables: Sequence[exp.Expr], on: exp.Expr | None) -> _Chosen:
        """Return each row of joined tables with the number of its clause, -1 where none of the kind is for it."""
        branches = [
            exp.If(
                this=exp.true() if when.condition is None else when.condition.copy(), true=exp.Literal.number(number)
            )
            for number, when in enumerate(self.merge.whens)
            if when.kind == kind
        ]
        clause: exp.Expr = exp.Case(ifs=branches) if branches else exp.Null()
        has_state = len(tables) > 1 or kind == "unsourced"
        row = exp.column(ROW, table=self.merge.target.alias, quoted=True) if has_state else _none()
        source = exp.column(SOURCE_ROW, table=self.name, quoted=True) if kind != "unsourced" else _none()
        found = self._select([row, source, exp.Coalesce(this=clause, expressions=[_none()])], tables, on, has_state)
        return _Chosen(*(numbers_of(found.select([number])) for number in range(3)))

    def _select(
        self,
        columns: Sequence[exp.Expr],
        tables: Sequence[exp.Expr],
        on: exp.Expr | None,
        has_state: bool,
        **more: pa.Table,
    ) -> pa.Table:
        tree = with_tables(query_of(columns, tables, on), self.merge.with_)
        given = {SOURCE: self.source, **more}
        if has_state:
            replace_table(tree.args["from_"].this, ROWS, self.merge.target.alias)
            given[ROWS] = self.editing.rows_of(self.state)
        return self.editing.select(tree, self.text, given)

    # What becomes of them

    def _values(self, when: When, paths: list[Path], pairs: _Chosen) -> tuple[Ints, Mapping[Path, pa.Array]]:
        if when.action == "all":
            values: list[exp.Expr] = [exp.column(name, table=self.name, quoted=True) for name in self._all_names()]
        else:
            assert isinstance(when.action, tuple)
            values = [each.value.copy() for each in when.action if isinstance(each, Assignment)]
        found = self._of_pairs(values, pairs, has_state=True, has_source=when.kind == "matched")
        order = numbers_of(found)
        return pairs.rows[order], fitted_to(self.editing, self.state, paths, found.remove_column(0))

    def _new_rows(self, insert: MergeInsert, pairs: _Chosen) -> pa.Table:
        names = insert.columns
        if insert.values is None:
            names = tuple(self._all_names())
            values: list[exp.Expr] = [exp.column(name, table=self.name, quoted=True) for name in names]
        else:
            values = [each.copy() for each in insert.values]
        found = self._of_pairs(values, pairs, has_state=False, has_source=True)
        found = found.take(arrow_numbers(np.argsort(numbers_of(found), kind="stable"))).remove_column(0)
        return whole_rows(self.editing, self.state, found, names, False, self.merge.target, insert.positions)

    def _of_pairs(self, values: Sequence[exp.Expr], pairs: _Chosen, *, has_state: bool, has_source: bool) -> pa.Table:
        """Return the number of each pair and values that are computed of its rows."""
        numbers = {CLAUSE: np.arange(len(pairs.rows)), "row": pairs.rows, "source": pairs.sources}
        chosen = exp.Table(this=exp.to_identifier(CHOSEN, quoted=True))
        tables: list[exp.Expr] = [chosen]
        conditions: list[exp.Expr] = []
        if has_source:
            tables.insert(0, self.using)
            conditions.append(_equal(SOURCE_ROW, self.name, "source"))
        if has_state:
            tables.insert(0, self.merge.target.node)
            conditions.append(
                exp.column(ROW, table=self.merge.target.alias, quoted=True).eq(
                    exp.column("row", table=CHOSEN, quoted=True)
                )
            )
        columns = [exp.column(CLAUSE, table=CHOSEN, quoted=True), *values]
        return self._select(columns, tables, exp.and_(*conditions), has_state, **{CHOSEN: pa.table(numbers)})


def _equal(number: str, table: str, chosen: str) -> exp.Expr:
    ours, theirs = exp.column(number, table=table, quoted=True), exp.column(chosen, table=CHOSEN, quoted=True)
    return exp.EQ(this=ours, expression=theirs)


def _none() -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(1))
