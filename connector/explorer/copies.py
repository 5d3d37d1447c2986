"""Programs that ask what the page shows: in Python, DuckDB's SQL, Spark's SQL and on a command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.arguments import Point
from statestore.catalog.reads.difference import INTERVAL
from statestore.connector.explorer.questions import ShownView
from statestore.connector.key_text import asked_key
from statestore.connector.literals import DUCKDB, SPARK, Dialect, condition_of, python_literal
from statestore.formats.engine_arguments import CHANGE_FEED, arguments_of_engines, flag, python_name
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.state_table import Mode, Query, StateTable
from statestore.formats.values.filters import IS, Filter, check_filters
from statestore.formats.values.times import MAX_MS, MIN_MS, format_time


@dataclass(frozen=True)
class Source:
    """A table and how a program gets to it: the ``path`` of its place and the options of engines given with it."""

    table: StateTable
    path: str
    options: Mapping[str, str]


def copies_of(source: Source, view: ShownView) -> dict[str, dict[str, str]]:
    """Return for each language a ``text``, or the reason ``why`` there is none.

    Raises InvalidInputError INVALID_FILTER for filters that have no answer.
    """
    check_filters(view.filters, _schema(source.table, view))
    makers: dict[str, Callable[[Source, ShownView], str]] = {
        "python": _python,
        "sql": lambda source, view: _statement(source.table, view, DUCKDB),
        "spark": _spark,
        "cli": _command,
    }
    found: dict[str, dict[str, str]] = {}
    for name, make in makers.items():
        try:
            found[name] = {"text": make(source, view)}
        except UnsupportedError as error:
            found[name] = {"why": error.message}
    return found


def absolute(path: str) -> str:
    """Return a path that means the same in another directory; addresses stay."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())


def _schema(table: StateTable, view: ShownView) -> pa.Schema:
    mode: Mode = "history" if view.kind == "life" else "state"
    return table.schema(Query(mode=mode, version=view.new.version if view.kind == "state" else None))


def _python(source: Source, view: ShownView) -> str:
    arguments = _with_options(source, python_literal(source.path))
    name = python_literal(source.table.name)
    read = f"table = statestore.inspect({arguments}).table({name})\nrows = table."
    if view.kind == "compare":
        if view.filters:
            statement = _python_lines(_statement(source.table, view, DUCKDB))
            path, *options = [python_literal(source.path), *_options(source)]
            return f"import statestore\n\nrows = statestore.sql({', '.join([path, statement, *options])})\n"
        given = [*_python_point(view.old, "start_"), *_python_point(view.new, "end_")]
        return f"import statestore\n\n{read}diff({', '.join(given)}).to_arrow()\n"
    given = _python_point(view.new, "") if view.kind == "state" else []
    if view.kind == "life":
        given.append(f"columns={python_literal(view.life_columns(source.table))}")
    if view.filters:
        given.append(f"filter={_python_filters(view.filters)}")
    text = f"{read}{'history' if view.kind == 'life' else 'scan'}({', '.join(given)}).to_arrow()\n"
    if view.kind == "life":
        start = f"pc.cast(rows[{python_literal(view.life_start(source.table))}], 'int64')"
        text += f"rows = rows.take(pc.sort_indices(pc.fill_null({start}, -(2**63))))\n"
    elif view.sorting is not None:
        direction = "descending" if view.sorting.descending else "ascending"
        column = f"rows.column({python_literal(view.sorting.column)})"
        text += f"rows = rows.take(pc.sort_indices({column}, sort_keys=[('', {direction!r})]))\n"
    imports = ["import datetime\n"] if "datetime." in text else []
    imports += ["import decimal\n"] if "decimal." in text else []
    imports += ["import numpy as np\n"] if "np." in text else []
    imports += ["import pyarrow.compute as pc\n"] if "pc." in text else []
    return "".join(imports) + f"import statestore\n\n{text}"


def _python_lines(text: str) -> str:
    """Return a literal of Python with a line for each line of a text."""
    lines = "".join(f"    {python_literal(line)}\n" for line in text.splitlines(keepends=True))
    return f"(\n{lines})"


def _with_options(source: Source, first: str) -> str:
    return ", ".join([first, *_options(source)])


def _options(source: Source) -> list[str]:
    known = arguments_of_engines() if source.options else {}
    values: dict[str, Callable[[str], Any]] = {"int": int, "bool": lambda text: text == "true", "text": str}
    return [
        f"{name}={python_literal(values[known[name].kind](value))}"
        for name, value in ((python_name(option), value) for option, value in source.options.items())
        if name in known
    ]


def _python_point(point: Point, prefix: str) -> list[str]:
    time = "start_time" if prefix == "start_" else "end_time" if prefix == "end_" else "as_of"
    version = [] if point.version is None else [f"{prefix}version={point.version}"]
    return version if point.as_of is None else [*version, f"{time}={python_literal(_time(point.as_of))}"]


def _python_filters(filters: Sequence[Filter]) -> str:
    parts = []
    for each in filters:
        value = "" if each.op in ("is_null", "is_not_null") else f", {python_literal(each.value)}"
        parts.append(f"({each.name!r}, {(IS if each.exact else each.op)!r}{value})")
    return f"[{', '.join(parts)}]"


def _time(us: int) -> str:
    """Return a time as every door reads it."""
    return format_time(us) if MIN_MS * 1000 <= us <= MAX_MS * 1000 else f"{us // 1000}ms"


def _spark(source: Source, view: ShownView) -> str:
    statement = _statement(source.table, view, SPARK)
    if "${" in statement:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, "Spark would replace the ${ in the name of a table or column by a variable"
        )
    register = f"statestore.register(spark, {_with_options(source, python_literal(source.path))})"
    return f"import statestore\n\n{register}\nrows = spark.sql({_python_lines(statement)})\n"


def _command(source: Source, view: ShownView) -> str:
    options = flags_of(source.options)
    table = source.table.name
    if view.kind == "state" and not view.filters and view.sorting is None:
        options += [] if view.new.version is None else [f"--version={view.new.version}"]
        options += [] if view.new.as_of is None else [f"--as-of={_time(view.new.as_of)}"]
        words = ["scan", *options, "--", source.path, table]
    elif view.kind == "life" and _is_key(source.table, view):
        words = ["history", *options, "--", source.path, table, view.key]
    elif view.kind == "compare" and not view.filters:
        ends = [f"--from={_end(view.old)}", f"--to={_end(view.new)}"]
        words = ["diff", *ends, *options, "--", source.path, table]
    else:
        words = ["sql", *options, "--", source.path, _statement(source.table, view, DUCKDB)]
    if any("\0" in word for word in words):
        raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, "a command line cannot hold the character 0")
    return shlex.join(["statestore", *(word for word in words if word != "--" or _begins_with_dash(words))]) + "\n"


def flags_of(options: Mapping[str, str]) -> list[str]:
    """Return options of engines as a command line has them."""
    found: list[str] = []
    for option, value in options.items():
        if option != CHANGE_FEED:
            spelled = flag(option)
            is_bool = value in ("true", "false") and arguments_of_engines()[python_name(option)].kind == "bool"
            negated = f"--no-{spelled.removeprefix('--')}"
            found.append((spelled if value == "true" else negated) if is_bool else f"{spelled}={value}")
    return found


def _begins_with_dash(words: Sequence[str]) -> bool:
    """Return whether an argument after the options could be taken for an option."""
    return any(word.startswith("-") for word in words[words.index("--") + 1 :])


def _is_key(table: StateTable, view: ShownView) -> bool:
    """Return whether the command line understands the text of the key as the page does."""
    if not view.key:
        return False
    try:
        return asked_key(table, view.key, partial=True) == tuple(view.filters)
    except StateStoreError:
        return False


def _end(point: Point) -> str:
    time = "" if point.as_of is None else _time(point.as_of)
    version = "" if point.version is None else str(point.version)
    return f"{version}@{time}" if version and time else version or time or "latest"


def _statement(table: StateTable, view: ShownView, dialect: Dialect) -> str:
    if view.kind == "compare":
        return _comparison(table, view, dialect)
    schema = _schema(table, view)
    conditions = [condition_of(view.filters, schema, dialect)] if view.filters else []
    if view.kind == "life":
        columns = ", ".join(map(dialect.name, view.life_columns(table)))
        source = f"history({dialect.text(table.name)})" if dialect is DUCKDB else f"{_named(table, dialect)}.history"
        order = f"ORDER BY {view.life_start(table)} NULLS FIRST"
    else:
        columns, source, more = _moment(table, view.new, dialect)
        conditions += more
        order = _order(view, schema, dialect)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return "\n".join(part for part in (f"SELECT {columns}", f"FROM {source}", where, order) if part)


def _named(table: StateTable, dialect: Dialect) -> str:
    return dialect.name(table.name) if dialect is DUCKDB else f"state.{dialect.name(table.name)}"


def _moment(table: StateTable, point: Point, dialect: Dialect) -> tuple[str, str, list[str]]:
    """Return the columns, the relation and the conditions of a state at a point."""
    version = "" if point.version is None else f" VERSION AS OF {point.version}"
    time = "" if point.as_of is None else f" TIMESTAMP AS OF '{_time(point.as_of)}'"
    if dialect is DUCKDB or not (version and time):
        return "*", _named(table, dialect) + version + time, []
    # Spark takes one of the two clauses; the rows that were valid at a time are those of the history around it.
    history = table.schema(Query(mode="history", version=point.version)).names
    if not set(INTERVAL) <= set(history) or point.as_of is None or not MIN_MS * 1000 <= point.as_of <= MAX_MS * 1000:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, "Spark's SQL has no clause for a version and a state time together"
        )
    moment = f"TIMESTAMP '{format_time(point.as_of)}'"
    columns = ", ".join(map(dialect.name, table.schema(Query(version=point.version)).names))
    within = [f"(valid_from IS NULL OR valid_from <= {moment})", f"(valid_to IS NULL OR valid_to > {moment})"]
    return columns, f"{_named(table, dialect)}.history{version}", within


def _order(view: ShownView, schema: pa.Schema, dialect: Dialect) -> str:
    if view.sorting is None:
        return ""
    name = dialect.name(view.sorting.column)
    direction = " DESC" if view.sorting.descending else ""
    # NaN comes last in both directions here, and is the greatest number in SQL.
    is_floating = pa.types.is_floating(schema.field(view.sorting.column).type)
    return f"ORDER BY {f'isnan({name}), ' if is_floating else ''}{name}{direction} NULLS LAST"


def _comparison(table: StateTable, view: ShownView, dialect: Dialect) -> str:
    schema = table.schema(Query())
    keys = table.row_key
    names = [name for name in schema.names if name not in INTERVAL or name in keys]
    values = [name for name in names if name not in keys]
    compared = [name for name in values if name not in table.placement_columns]
    for name in compared:
        _check_comparable(schema.field(name))
    if not keys:
        return _comparison_of_bags(table, view, compared, dialect)
    there, before, after = _free("there", names), _free("old_", names, True), _free("new_", names, True)
    sides = []
    for side, point in (("old", view.old), ("new", view.new)):
        _, source, conditions = _moment(table, point, dialect)
        columns = ", ".join([*map(dialect.name, names), f"TRUE AS {there}"])
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sides.append(f"(SELECT {columns} FROM {source}{where}) AS {side}")
    chosen = [f"coalesce(old.{dialect.name(name)}, new.{dialect.name(name)}) AS {dialect.name(name)}" for name in keys]
    for prefix, side in ((before, "old"), (after, "new")):
        chosen += [f"{side}.{dialect.name(name)} AS {dialect.name(prefix + name)}" for name in values]
    join = " AND ".join(f"old.{dialect.name(name)} IS NOT DISTINCT FROM new.{dialect.name(name)}" for name in keys)
    differs = [f"old.{dialect.name(name)} IS DISTINCT FROM new.{dialect.name(name)}" for name in compared]
    where = " OR ".join([f"old.{there} IS NULL", f"new.{there} IS NULL", *differs])
    passes = ""
    if view.filters:
        tests = [f"(old.{there} AND {condition_of(view.filters, schema, dialect, 'old')})"]
        tests.append(f"(new.{there} AND {condition_of(view.filters, schema, dialect, 'new')})")
        passes = f"\n  AND ({' OR '.join(tests)})"
    return (
        f"SELECT CASE WHEN old.{there} IS NULL THEN 'added' WHEN new.{there} IS NULL THEN 'removed' ELSE 'changed' END "
        f"AS {dialect.name('_change')},\n  {', '.join(chosen)}\nFROM {sides[0]}\nFULL JOIN {sides[1]}\n  ON {join}\n"
        f"WHERE ({where}){passes}"
    )


def _comparison_of_bags(table: StateTable, view: ShownView, names: Sequence[str], dialect: Dialect) -> str:
    """Return the statement for rows that nothing identifies: whole rows were added or removed, as often as they are."""
    where = condition_of(view.filters, table.schema(Query()), dialect)
    columns = ", ".join(map(dialect.name, names))
    reads = []
    for point in (view.old, view.new):
        _, source, conditions = _moment(table, point, dialect)
        reads.append(f"SELECT {columns} FROM {source} WHERE {' AND '.join([where, *conditions])}")
    change = dialect.name("_change")
    return "\nUNION ALL\n".join(
        f"SELECT '{kind}' AS {change}, * FROM (\n  {first}\n  EXCEPT ALL\n  {second}\n) AS {kind}"
        for kind, first, second in (("removed", *reads), ("added", *reversed(reads)))
    )


def _check_comparable(field: pa.Field) -> None:
    if pa.types.is_map(field.type):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"column {field.name} has maps, which SQL compares by the order of their entries",
        )
    for number in range(field.type.num_fields):
        _check_comparable(field.type.field(number))


def _free(name: str, taken: Sequence[str], is_prefix: bool = False) -> str:
    """Return a name, or a beginning of names, that no column has."""
    known = [each.lower() for each in taken]
    while any(each.startswith(name) if is_prefix else each == name for each in known):
        name += "_"
    return name
