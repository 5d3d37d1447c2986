"""Names in statements as people write them: a field without its struct, and a key of one field by its value.

``sum`` is ``value.sum`` where no column is called so and no other struct has such a field, and ``key = 'a'`` is
``key.k = 'a'`` where ``k`` is all that the key has. Each is written out before the statement runs. Queries inside a
statement are left as they are: their names may be those of other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from statestore.connector.edit.named_rows import Columns, Path, fields_of, type_at
from statestore.connector.edit.statements import Assignment, Delete, Merge, Update, When, parts_of
from statestore.connector.sql.sql_statement import DuckDBSQL
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

Names = Callable[[], Sequence[str]]
"""The columns of the other tables of a statement, which are asked for only where a name is not one of the state."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike)


class WrittenNames:
    """The names of one statement. Each method raises InvalidInputError INVALID_SQL for a field that several structs
    have."""

    def __init__(self, columns: Columns, others: Names) -> None:
        self.columns = columns
        self.others = others

    def update(self, given: Update) -> Update:
        """Return a statement whose names of fields of the state are whole."""
        return replace(given, assignments=self._assignments(given.assignments), where=self._condition(given.where))

    def delete(self, given: Delete) -> Delete:
        """Return a statement as `update` does."""
        return replace(given, where=self._condition(given.where))

    def merge(self, given: Merge) -> Merge:
        """Return a statement as `update` does."""
        return replace(given, on=self._expression(given.on), whens=tuple(map(self._when, given.whens)))

    def _assignments(self, given: tuple[Assignment, ...] | None) -> tuple[Assignment, ...] | None:
        return None if given is None else tuple(map(self._assignment, given))

    def _assignment(self, given: Assignment) -> Assignment:
        value = self._expression(given.value)
        own = replace(self.columns, others=frozenset())
        path = None if own.resolved(given.names) is not None else self._field(given.names)
        return replace(given, names=given.names if path is None else path, value=value)

    def _when(self, given: When) -> When:
        if not isinstance(given.action, tuple):
            return replace(given, condition=self._condition(given.condition))
        action = tuple(map(self._assignment, given.action))
        return replace(given, condition=self._condition(given.condition), action=action)

    def _condition(self, given: exp.Expr | None) -> exp.Expr | None:
        return None if given is None else self._expression(given)

    def _expression(self, given: exp.Expr) -> exp.Expr:
        holder = exp.Paren(this=given.copy())
        for node in list(_own_columns(holder)):
            names = parts_of(node)
            if names is not None and self.columns.resolved(names) is None and not self._is_of_others(names):
                path = self._field(names)
                if path is not None:
                    node.replace(self._written(path))
        for node in list(holder.find_all(*_COMPARISONS, exp.In, exp.Between)):
            self._compare_field(node)
        found: exp.Expr = holder.this
        return found

    def _field(self, names: Sequence[str]) -> Path | None:
        """Return the only field of the state that is called so; None where there is none."""
        wanted = [name.lower() for name in names]
        if len(wanted) > 1 and wanted[0] == self.columns.alias.lower():
            del wanted[0]
        paths = [path for path in fields_of(self.columns.state) if [each.lower() for each in path[1:]] == wanted]
        paths = paths or [
            path for path in fields_of(self.columns.state) if [each.lower() for each in path[-len(wanted) :]] == wanted
        ]
        if len(paths) > 1:
            raise InvalidInputError(
                ErrorCode.INVALID_SQL,
                f"{'.'.join(names)} may be {' or '.join('.'.join(path) for path in paths)}; write which",
            )
        return paths[0] if paths else None

    def _is_of_others(self, names: Sequence[str]) -> bool:
        first = names[0].lower()
        return bool(self.columns.others) and (
            first in self.columns.others or first in {name.lower() for name in self.others()}
        )

    def _written(self, path: Path) -> exp.Expr:
        found: exp.Expr = exp.column(path[0], table=self.columns.alias, quoted=True)
        for name in path[1:]:
            found = exp.Dot(this=found, expression=exp.to_identifier(name, quoted=True))
        return found

    def _compare_field(self, node: exp.Expr) -> None:
        """Compare the only field of a struct where the struct is compared with a number or text."""
        others = [*node.expressions, *(node.args.get(name) for name in ("this", "expression", "low", "high"))]
        given = [each for each in others if each is not None]
        columns = [each for each in given if parts_of(each.unnest()) is not None]
        if len(columns) != 1 or node.args.get("query") is not None or node.find_ancestor(exp.Query) is not None:
            return
        path = self.columns.path_of(columns[0])
        if path is None or not all(each is columns[0] or _is_plain(each.unnest()) for each in given):
            return
        inner = _only_field(self.columns.state, path)
        self._check_single(inner, node)
        if inner != path:
            columns[0].replace(self._written(inner))

    def _check_single(self, path: Path, node: exp.Expr) -> None:
        """Raise InvalidInputError INVALID_SQL for a struct of several fields that is compared with one value."""
        kind = type_at(self.columns.state, path)
        if not pa.types.is_struct(kind) or not kind.num_fields or node.find_ancestor(exp.Lambda, exp.Comprehension):
            return
        fields = [".".join((*path, field.name)) for field in kind]
        raise InvalidInputError(
            ErrorCode.INVALID_SQL,
            f"{node.sql(dialect=DuckDBSQL)}: {'.'.join(path)} is no single value, it has {', '.join(fields)}; compare "
            f"these, as in {' AND '.join(f'{field} = …' for field in fields[:2])}",
        )


def _own_columns(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the columns of an expression, each with the fields behind it, without those of queries inside."""
    for node in tree.walk(prune=lambda each: isinstance(each, exp.Query | exp.Subquery | exp.Comprehension)):
        if isinstance(node, exp.Column | exp.Dot) and not isinstance(node.parent, exp.Dot):
            yield node


def _only_field(schema: pa.Schema, path: Path) -> Path:
    """Return the path of the only field in a struct, at any depth; the path itself where there are several or none."""
    inner, kind = path, type_at(schema, path)
    while pa.types.is_struct(kind) and kind.num_fields == 1:
        inner, kind = (*inner, kind.field(0).name), kind.field(0).type
    return path if pa.types.is_struct(kind) else inner


def _is_plain(node: exp.Expr) -> bool:
    """Return whether an expression is a number or a text that is none of a struct."""
    if isinstance(node, exp.Neg):
        return _is_plain(node.this)
    if isinstance(node, exp.Literal):
        return not (node.is_string and node.name.lstrip()[:1] in ("{", "("))
    return isinstance(node, exp.Boolean)
