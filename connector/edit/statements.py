"""Statements that change states, parsed: UPDATE, DELETE, INSERT and MERGE in DuckDB's SQL, and what they may have.

Parts that a `StateEdit` cannot express, or that would be dropped without a word, are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from statestore.connector.sql.sql_statement import DuckDBSQL, full_name, parse, position_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError

ALLOWED = "expected UPDATE, DELETE, INSERT or MERGE"
_BY_CHANCE = frozenset({"random", "rand", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval"})
_WORDS = {
    "returning": "RETURNING",
    "conflict": "ON CONFLICT",
    "alternative": "INSERT OR",
    "default": "DEFAULT VALUES",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "overwrite": "OVERWRITE",
    "version": "AS OF",
    "when": "AT",
    "sample": "TABLESAMPLE",
    "joins": "a join",
    "tables": "a name before FROM",
}

_INSTEAD = {
    "returning": "leave it out; a preview shows the rows before and after",
    "conflict": "write MERGE INTO for rows that may be there",
    "alternative": "write MERGE INTO for rows that may be there",
    "limit": "leave it out, and choose rows by a condition, such as key IN (SELECT …)",
    "order": "leave it out, and choose rows by a condition, such as key IN (SELECT …)",
    "tables": "write DELETE FROM, and USING for other tables",
}
_TRANSACTIONS = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})


@dataclass(frozen=True)
class Target:
    """The state that a statement changes. ``node`` names it, ``alias`` is what qualifies its columns."""

    node: exp.Table
    position: str

    @property
    def name(self) -> str:
        return full_name(self.node)

    @property
    def alias(self) -> str:
        return str(self.node.alias or self.node.name)


@dataclass(frozen=True)
class Assignment:
    """``names`` are the parts of the target as they were written: a column, fields in it, an alias before it."""

    names: tuple[str, ...]
    value: exp.Expr
    position: str


@dataclass(frozen=True)
class Update:
    """UPDATE; ``assignments`` of None: all columns by their names, in a MERGE."""

    target: Target
    assignments: tuple[Assignment, ...] | None
    sources: tuple[exp.Expr, ...] = ()
    where: exp.Expr | None = None
    with_: exp.With | None = None


@dataclass(frozen=True)
class Delete:
    target: Target
    sources: tuple[exp.Expr, ...] = ()
    where: exp.Expr | None = None
    with_: exp.With | None = None


@dataclass(frozen=True)
class Insert:
    """INSERT; ``columns`` of None: all, in their order or ``by_name``. ``positions`` are those of the columns."""

    target: Target
    columns: tuple[str, ...] | None
    by_name: bool
    query: exp.Query
    with_: exp.With | None = None
    positions: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeInsert:
    """The row that a MERGE inserts; ``values`` of None: the columns of its source by their names."""

    columns: tuple[str, ...] | None
    values: tuple[exp.Expr, ...] | None
    positions: tuple[str, ...] = ()


@dataclass(frozen=True)
class When:
    """A clause of MERGE: for rows of both sides, of the source alone, or of the state alone (``unsourced``).

    An ``action`` of None is DO NOTHING.
    """

    kind: Literal["matched", "absent", "unsourced"]
    condition: exp.Expr | None
    action: tuple[Assignment, ...] | MergeInsert | Literal["delete", "all"] | None


@dataclass(frozen=True)
class Merge:
    target: Target
    using: exp.Expr
    on: exp.Expr
    whens: tuple[When, ...]
    with_: exp.With | None = None


Statement = Update | Delete | Insert | Merge


@dataclass(frozen=True)
class Text:
    """A statement of a text: as it was written, and behind as much room as it has before it, so that positions fit."""

    written: str
    placed: str


def statements_of(text: str) -> Iterator[Text]:
    """Yield the statements of a text, which semicolons separate. Raises InvalidInputError INVALID_SQL."""
    if not isinstance(text, str):
        raise InvalidInputError(ErrorCode.INVALID_SQL, f"the statement is a {type(text).__name__}; expected a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = ascii(text[max(0, error.start - 10) : error.end])
        raise InvalidInputError(
            ErrorCode.INVALID_SQL, f"the statement has characters that are no UTF-8, near {found}; write them as UTF-8"
        ) from None
    try:
        tokens = sqlglot.tokenize(text, read=DuckDBSQL)
    except SqlglotError:
        parse(text, DuckDBSQL)
        raise
    start, has_words = 0, False
    for token in tokens:
        if token.text != ";" or token.token_type.name != "SEMICOLON":
            has_words = True
            continue
        if has_words:
            yield _text(text, start, token.start)
        start, has_words = token.start + 1, False
    if has_words:
        yield _text(text, start, len(text))


def _text(text: str, start: int, end: int) -> Text:
    before, written = text[:start], text[start:end]
    column = start - (before.rfind("\n") + 1)
    return Text(written.strip(), "\n" * before.count("\n") + " " * column + written)


def parsed(text: Text) -> Statement:
    """Parse a statement. Raises InvalidInputError INVALID_SQL, UnsupportedError UNSUPPORTED_STATEMENT."""
    return _Parser(text.placed).statement(parse(text.placed, DuckDBSQL))


class _Parser:
    """The parts of one statement."""

    def __init__(self, text: str) -> None:
        self.text = text

    def statement(self, tree: exp.Expr) -> Statement:
        self._check_sample(tree)
        if isinstance(tree, exp.Update):
            self._only(tree, "this", "expressions", "from_", "where", "with_")
            source = tree.args.get("from_")
            return Update(
                self._target(tree.this),
                self._assignments(tree.expressions),
                (source.this,) if source is not None else (),
                self._condition(tree.args.get("where"), "WHERE"),
                tree.args.get("with_"),
            )
        if isinstance(tree, exp.Delete):
            self._only(tree, "this", "using", "where", "with_")
            where = self._condition(tree.args.get("where"), "WHERE")
            return Delete(self._target(tree.this), tuple(tree.args.get("using") or ()), where, tree.args.get("with_"))
        if isinstance(tree, exp.TruncateTable):
            if len(tree.expressions) != 1:
                self._refuse("TRUNCATE of several states; write DELETE FROM for each")
            return Delete(self._target(tree.expressions[0]))
        if isinstance(tree, exp.Insert):
            return self._insert(tree)
        if isinstance(tree, exp.Merge):
            return self._merge(tree)
        word = self.text.split(maxsplit=1)[0].upper() if self.text.split() else "nothing"
        if word in _TRANSACTIONS:
            self._refuse(f"{word}: an edit is a transaction by itself; leave it out")
        self._refuse(f"{word} is no statement that changes rows; {ALLOWED}")

    def _insert(self, tree: exp.Insert) -> Insert:
        self._only(tree, "this", "expression", "by_name", "with_")
        target, columns = tree.this, None
        positions: tuple[str, ...] = ()
        if isinstance(target, exp.Schema):
            names = [each for each in target.expressions if isinstance(each, exp.Identifier)]
            if len(names) < len(target.expressions):
                self._refuse("INSERT names something else than whole columns; name columns, and give whole values")
            target, columns, positions = target.this, tuple(each.name for each in names), self._positions(names)
        query = tree.expression
        if isinstance(query, exp.Values):
            for each in query.find_all(exp.Var):
                if each.name.upper() == "DEFAULT":
                    self._refuse("DEFAULT: columns of states have no defaults; write the value, or NULL")
            query = exp.select("*").from_(exp.Values(expressions=query.expressions, alias=_values_alias()))
        if not isinstance(query, exp.Query):
            self._refuse("INSERT without rows; write INSERT INTO … SELECT, or VALUES")
        is_by_name = bool(tree.args.get("by_name"))
        return Insert(self._target(target), columns, is_by_name, query, tree.args.get("with_"), positions)

    def _merge(self, tree: exp.Merge) -> Merge:
        self._only(tree, "this", "using", "on", "whens", "with_", "using_cond")
        if tree.args.get("using_cond"):
            self._refuse("MERGE with USING (columns); write ON with a condition")
        target = self._target(tree.this)
        whens = tuple(self._when(each) for each in tree.args["whens"].expressions)
        for number, each in enumerate(whens):
            if any(before.kind == each.kind and before.condition is None for before in whens[:number]):
                raise InvalidInputError(
                    ErrorCode.INVALID_SQL,
                    "a WHEN clause of MERGE stands behind one of its kind without a condition, and is never reached; "
                    "put it before that one",
                )
        on = self._condition(tree.args["on"], "ON")
        assert on is not None
        return Merge(target, tree.args["using"], on, whens, tree.args.get("with_"))

    def _when(self, tree: exp.When) -> When:
        self._only(tree, "matched", "source", "condition", "then")
        kind: Any = "matched" if tree.args["matched"] else "unsourced" if tree.args.get("source") else "absent"
        condition, then = self._condition(tree.args.get("condition"), "WHEN"), tree.args["then"]
        if isinstance(then, exp.Var):
            word = then.name.upper()
            if word not in ("DELETE", "DO NOTHING"):
                self._refuse(f"WHEN … THEN {word}; expected UPDATE, DELETE, INSERT or DO NOTHING")
            return When(kind, condition, "delete" if word == "DELETE" else None)
        if isinstance(then, exp.Update):
            self._only(then, "expressions")
            is_all = not then.expressions or isinstance(then.expressions[0], exp.Star)
            if is_all and kind == "unsourced":
                self._refuse("WHEN NOT MATCHED BY SOURCE THEN UPDATE has no source row; write SET column = value")
            return When(kind, condition, "all" if is_all else self._assignments(then.expressions))
        if isinstance(then, exp.Insert) and kind == "absent":
            self._only(then, "this", "expression")
            return When(kind, condition, self._merge_insert(then))
        self._refuse("a WHEN clause of MERGE; expected UPDATE or DELETE of rows that match, INSERT of others")

    def _merge_insert(self, tree: exp.Insert) -> MergeInsert:
        given, values = tree.this, tree.args.get("expression")
        is_by_name = isinstance(given, exp.Tuple) and any(isinstance(each, exp.Alias) for each in given.expressions)
        if not values:
            if given is None or isinstance(given, exp.Star) or is_by_name:
                return MergeInsert(None, None)
            self._refuse("INSERT of MERGE without VALUES; write INSERT (columns) VALUES (…)")
        names = None
        positions: tuple[str, ...] = ()
        if given is not None:
            columns = given.expressions if isinstance(given, exp.Tuple) else [given]
            if not all(isinstance(each, exp.Column) and not each.table for each in columns):
                self._refuse("INSERT names something else than whole columns; name columns, and give whole values")
            names, positions = tuple(each.name for each in columns), self._positions(columns)
        rows = values.expressions if isinstance(values, exp.Tuple) else [values]
        return MergeInsert(names, tuple(rows), positions)

    def _target(self, node: Any) -> Target:
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            self._refuse("the target is no table; name a state, as in UPDATE state")
        position, name = position_of(node, self.text), full_name(node)
        alias = node.args.get("alias")
        named = {part for part, value in node.args.items() if value} - {"this", "db", "catalog", "alias"}
        if named & {"version", "when"}:
            self._refuse(f"{name!r} AS OF is the past, which cannot be changed; name the state alone", position)
        if "$" in full_name(node):
            self._refuse(f"{name!r} is metadata, which cannot be changed; name a state", position)
        if named or (alias is not None and alias.columns):
            self._refuse(f"{name!r} with {', '.join(map(_word, named)) or 'other names of columns'}", position)
        for part in node.parts:  # a state may be called left
            part.set("quoted", True)
        return Target(node, position)

    def _assignments(self, given: Sequence[exp.Expr]) -> tuple[Assignment, ...]:
        found: list[Assignment] = []
        for each in given:
            if not isinstance(each, exp.EQ):
                self._refuse(f"SET {each.sql(dialect=DuckDBSQL)}; expected column = value")
            left, right = each.this, each.expression
            if isinstance(left, exp.Tuple):
                if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
                    self._refuse(f"SET {each.sql(dialect=DuckDBSQL)}; assign each column by itself")
                found += map(self._assignment, left.expressions, right.expressions)
            else:
                found.append(self._assignment(left, right))
        return tuple(found)

    def _assignment(self, left: exp.Expr, right: exp.Expr) -> Assignment:
        names = parts_of(left)
        if names is None:
            shown = left.sql(dialect=DuckDBSQL)
            self._refuse(
                f"SET {shown} = …: an element or entry cannot be set by itself; set the whole column, or a field of a "
                "struct as value.n"
            )
        if isinstance(right, exp.Var | exp.Column) and right.name.upper() == "DEFAULT" and not right.find(exp.Dot):
            self._refuse("SET … = DEFAULT: columns of states have no defaults; write the value, or NULL")
        inside = right.walk(prune=_is_query)
        over_rows = next((each for each in inside if isinstance(each, exp.AggFunc | exp.Window)), None)
        if over_rows is not None:
            self._refuse(
                f"SET {'.'.join(names)} = {over_rows.sql(dialect=DuckDBSQL)} is of several rows, and a row is set by "
                "its own values; write a query in brackets, as in SET n = (SELECT max(n) FROM state)"
            )
        if any(isinstance(each, exp.Explode | exp.Unnest) for each in right.walk(prune=_is_query)):
            self._refuse(
                f"SET {'.'.join(names)} = {right.sql(dialect=DuckDBSQL)} has several values for one row; set one, such "
                "as an element of the list, or the list as a whole"
            )
        return Assignment(names, right, position_of(left, self.text))

    def _positions(self, names: Sequence[exp.Expr]) -> tuple[str, ...]:
        return tuple(position_of(each, self.text) for each in names)

    def _condition(self, given: Any, clause: str) -> exp.Expr | None:
        if given is None:
            return None
        condition: exp.Expr = given.this if isinstance(given, exp.Where) else given
        for each in condition.find_all(exp.Func):
            name = each.name if isinstance(each, exp.Anonymous) else each.sql_name()
            if name.lower() in _BY_CHANCE:
                self._refuse(f"{clause} with {name.lower()}() names other rows each time; choose rows by their values")
        for compared in condition.find_all(exp.EQ, exp.NEQ):
            if any(isinstance(side.unnest(), exp.Null) for side in (compared.this, compared.expression)):
                sign, meant = ("=", "IS NULL") if isinstance(compared, exp.EQ) else ("<>", "IS NOT NULL")
                self._refuse(f"{clause} with {sign} NULL holds for no row; write {meant}")
        return condition

    def _check_sample(self, tree: exp.Expr) -> None:
        """Refuse a sample by which an edit would change other rows than its preview. INSERT may add a sample's rows."""
        if isinstance(tree, exp.Update | exp.Delete | exp.Merge) and tree.find(exp.TableSample) is not None:
            self._refuse("USING SAMPLE and TABLESAMPLE take other rows each time; choose rows by their values")

    def _only(self, tree: exp.Expr, *known: str) -> None:
        for name, value in tree.args.items():
            if value and name not in known:
                self._refuse(f"{_word(name)} does not go with an edit; {_INSTEAD.get(name, 'leave it out')}")

    def _refuse(self, what: str, position: str = "") -> NoReturn:
        raise UnsupportedError(ErrorCode.UNSUPPORTED_STATEMENT, f"{position}: {what}" if position else what)


def _values_alias() -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier("values", quoted=True))


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query | exp.Subquery)


def _word(name: str) -> str:
    return _WORDS.get(name, name.strip("_").replace("_", " ").upper())


def parts_of(node: exp.Expr) -> tuple[str, ...] | None:
    """Return the names of a column and of the fields behind it, as they were written; None for another expression."""
    if isinstance(node, exp.Column):
        return tuple(part.name for part in node.parts)
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = parts_of(node.this)
        return None if before is None else (*before, node.expression.name)
    return None
