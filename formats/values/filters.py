"""Row filters: a conjunction of comparisons between a column and constants, with SQL's treatment of null.

Doors translate what their users write into `Filter`s. ``mask`` evaluates them exactly on a batch. ``may_match`` checks
them against the least and greatest value of a segment. ``key_lookups`` finds the keys to which a conjunction is
limited.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, close_matches, shown
from statestore.formats.values.canonical import ErrorPath, canonical, of_scalars
from statestore.formats.values.comparison import any_of, compare, has_floats, match_text, same_key
from statestore.formats.values.times import parse_instant, to_datetime
from statestore.formats.values.without_pandas import without_nulls

Op = Literal[
    "=", "<=>", "!=", "<", "<=", ">", ">=", "in", "is_null", "is_not_null", "starts_with", "ends_with", "contains"
]
OPERATORS: tuple[str, ...] = get_args(Op)
SPELLINGS = {"==": "=", "<>": "!=", "is null": "is_null", "is not null": "is_not_null"}
IS = "is"
"""How users write "=" that is `Filter.exact`."""
TEXT_OPERATORS = ("starts_with", "ends_with", "contains")
NULL_TESTS = ("is_null", "is_not_null")
MAX_LOOKUPS = 10_000


@dataclass(frozen=True)
class Filter:
    """``column op value``; ``value`` is a sequence for "in" and unused for "is_null" and "is_not_null".

    ``path`` leads into a struct column, field by field; a field of a null struct is null. ``exact``, of "=" alone: the
    equality is that of keys (`statestore.formats.values.comparison.same_key`), where 0.0 and -0.0 are two. Users write
    it "is".
    """

    column: str
    op: Op
    value: Any = None
    path: tuple[str, ...] = ()
    exact: bool = False

    @property
    def name(self) -> str:
        """The column with its path, as users write it."""
        return ".".join((self.column, *self.path))


def parse_filters(spec: Any) -> tuple[Filter, ...]:
    """Parse filters as users write them: None, ("price", ">", 5), a list of such tuples, or Filter objects.

    Raises InvalidInputError INVALID_FILTER naming the part that is not understood.
    """
    if spec is None:
        return ()
    if isinstance(spec, Filter) or _is_condition(spec):
        return (_parse_condition(spec),)
    if isinstance(spec, list | tuple):
        return tuple(_parse_condition(part) for part in spec)
    raise _invalid(f"{shown(spec)}; expected a tuple like ('price', '>', 5), or a list of such that must all hold")


def _is_condition(spec: Any) -> bool:
    return isinstance(spec, list | tuple) and len(spec) > 0 and isinstance(spec[0], str)


def _parse_condition(spec: Any) -> Filter:
    if isinstance(spec, Filter):
        checked = _checked(spec.column, spec.op, spec.value)
        return replace(checked, path=spec.path, exact=spec.exact)
    if not _is_condition(spec) or len(spec) not in (2, 3):
        raise _invalid(f"{shown(spec)}; expected a tuple (column, operator, value) like ('price', '>', 5)")
    if not isinstance(spec[1], str):
        raise _invalid(f"{shown(spec)}: operator {shown(spec[1])} is not a text")
    op = spec[1].strip().lower()
    op = SPELLINGS.get(op, op)
    if len(spec) == 2 and op in (*OPERATORS, IS) and op not in NULL_TESTS:
        raise _invalid(f"{shown(spec)}: operator {shown(spec[1])} needs a value")
    value = spec[2] if len(spec) == 3 else None
    if op != IS:
        return _checked(spec[0], op, value)
    return _checked(spec[0], "is_null", None) if value is None else replace(_checked(spec[0], "=", value), exact=True)


def _checked(column: Any, op: Any, value: Any) -> Filter:
    if not isinstance(column, str):
        raise _invalid(f"column {shown(column)} is not a text")
    if op not in OPERATORS:
        raise _invalid(f"column {column!r}: operator {shown(op)}; expected one of {', '.join((*OPERATORS, IS))}")
    if op in NULL_TESTS and value is not None:
        raise _invalid(f"column {column!r} {op} {shown(value)}; {op} takes no value")
    return Filter(column, op, of_scalars(_members(column, value) if op == "in" else value))


def _members(column: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return tuple(value.to_pylist())
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _invalid(f"column {column!r} in {shown(value)}; expected a list of values")
    return tuple(value)


def has_texts(filters: Sequence[Filter]) -> bool:
    """Return whether a text is compared, which may be a time."""
    return any(isinstance(item.value, str) or (item.op == "in" and _any_text(item.value)) for item in filters)


def with_times(filters: Sequence[Filter], schema: pa.Schema) -> tuple[Filter, ...]:
    """Return the filters with the texts that a column of times or dates is compared with as datetimes or dates.

    A text for timestamps with zone has a zone, one for timestamps without zone has none. Raises InvalidInputError
    INVALID_FILTER for another text.
    """
    return tuple(_with_time(item, schema) for item in filters)


def _any_text(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in values)


def _with_time(item: Filter, schema: pa.Schema) -> Filter:
    if item.path or schema.names.count(item.column) != 1:
        return item
    kind = schema.field(item.column).type
    if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        return item
    if item.op == "in":
        return replace(item, value=tuple(_time(value, item, kind) for value in item.value))
    return replace(item, value=_time(item.value, item, kind))


def _time(value: Any, item: Filter, kind: pa.DataType) -> Any:
    if not isinstance(value, str):
        return value
    if pa.types.is_date(kind):
        return _day(value, item)
    if kind.tz is None:
        return _local_time(value, item)
    try:
        return to_datetime(parse_instant(value, f"the time for column {item.column!r}"))
    except InvalidInputError as error:
        raise _invalid(error.message) from error


def _day(text: str, item: Filter) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise _invalid(f"the day for column {item.column!r} is {shown(text)}; expected one like 2024-05-01") from None


def _local_time(text: str, item: Filter) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise _invalid(
            f"the time for column {item.column!r}, whose times have no zone, is {shown(text)}; expected one like "
            "2024-05-01 09:30"
        )
    return found


def check_filters(filters: Sequence[Filter], schema: pa.Schema) -> None:
    """Raise what ``mask`` would raise on batches of ``schema``, before any work and even if all rows will be pruned."""
    mask(filters, pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema))


def resolved(filters: Sequence[Filter], names: Sequence[str]) -> tuple[Filter, ...]:
    """Resolve filters on ``column.field`` to a field of a column, where no column has the dotted name itself."""
    return tuple(item if item.column in names else _on_field(item, names) for item in filters)


def _on_field(item: Filter, names: Sequence[str]) -> Filter:
    parts = item.column.split(".")
    for count in range(len(parts) - 1, 0, -1):
        column = ".".join(parts[:count])
        if column in names:
            return replace(item, column=column, path=(*parts[count:], *item.path))
    return item


def mask(filters: Sequence[Filter], batch: pa.RecordBatch) -> pa.BooleanArray | None:
    """The rows of ``batch`` that pass all filters, as a mask without nulls; None if no filter excludes a row.

    Raises InvalidInputError INVALID_FILTER for an unknown column and for a value that its column cannot be compared
    with.
    """
    parts = [_evaluate(item, _column(item, batch)) for item in filters]
    masks = [part for part in parts if part is not None]
    return functools.reduce(pc.and_, masks) if masks else None


def _column(item: Filter, batch: pa.RecordBatch) -> pa.Array:
    names = batch.schema.names
    if names.count(item.column) != 1:
        close = close_matches(item.column, names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(names)}"
        raise _invalid(
            f"column {item.column!r} {'occurs more than once' if item.column in names else 'does not exist'}; {hint}"
        )
    column = batch.column(item.column)
    for name in item.path:
        kind = column.type
        if not pa.types.is_struct(kind) or [field.name for field in kind].count(name) != 1:
            fields = ", ".join(field.name for field in kind) if pa.types.is_struct(kind) else "none"
            raise _invalid(f"column {item.name!r}: {kind} has no field {name!r}, or several; it has {fields}")
        column = pc.struct_field(column, [name])
    return column


def _evaluate(item: Filter, column: pa.Array) -> pa.BooleanArray | None:
    if item.op == "is_null":
        return pc.is_null(column)
    if item.op == "is_not_null":
        return None if column.null_count == 0 else pc.is_valid(column)
    error_path = ErrorPath(ErrorCode.INVALID_FILTER, item.name, column.type)
    if item.exact:
        return same_key(column, item.value, error_path)
    if item.op == "in":
        return any_of(column, item.value, error_path)
    if item.op in TEXT_OPERATORS:
        return _without_nulls(match_text(column, item.op, item.value, error_path))
    if item.op == "<=>":
        return (
            pc.is_null(column) if item.value is None else _without_nulls(compare(column, "=", item.value, error_path))
        )
    return _without_nulls(compare(column, item.op, item.value, error_path))


def _without_nulls(found: pa.BooleanArray) -> pa.BooleanArray:
    return without_nulls(found)


def may_match(filters: Sequence[Filter], column: str, low: Any, high: Any, has_null: bool) -> bool:
    """Return False only if no value from ``low`` to ``high`` (nor null, if ``has_null``) passes the filters on
    ``column``.

    An unknown bound is None, and then everything may match. Bounds of floats do not cover NaN, which may occur besides
    them.
    """
    if low is None or high is None:
        return True
    if isinstance(high, float):
        high = math.inf  # NaN is greater than every bound
    return all(_may_pass(item, low, high, has_null) for item in filters if item.column == column and not item.path)


def _may_pass(item: Filter, low: Any, high: Any, has_null: bool) -> bool:
    if item.op == "is_null" or (item.op == "<=>" and item.value is None):
        return has_null
    values = item.value if item.op == "in" else (item.value,)
    return any(_in_bounds(item.op, value, low, high) for value in values)


def _in_bounds(op: str, value: Any, low: Any, high: Any) -> bool:
    if value is None:
        return op == "is_not_null"
    if isinstance(value, np.integer | np.floating):
        value = value.item()  # numpy would round the bounds to its own type
    try:
        if _is_nan(value):
            return True  # NaN is not between any bounds
        if op in ("=", "<=>", "in"):
            return bool(low <= value <= high)
        if op in ("<", "<="):
            return bool(low < value if op == "<" else low <= value)
        if op in (">", ">="):
            return bool(high > value or high == math.inf if op == ">" else high >= value)
        if op == "starts_with":
            return bool(high >= value and low[: len(value)] <= value)
    except (TypeError, ValueError, InvalidOperation):
        return True  # no comparison here: ``mask`` raises the error
    return True


def _is_nan(value: Any) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else bool(value != value)


def key_lookups(filters: Sequence[Filter], key_columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The keys that the filters allow, each once, if "=" or "in" limits every key column to few enough values; else
    None.

    The caller still applies the filters: not every conjunct is used here.
    """
    if not key_columns:
        return None
    allowed: list[list[Any]] = []
    for name in key_columns:
        values = _pinned([item for item in filters if item.column == name and not item.path])
        if values is None:
            return None
        allowed.append(values)
    if math.prod(len(values) for values in allowed) > MAX_LOOKUPS:
        return None
    return list(itertools.product(*allowed))


def with_whole_structs(filters: Sequence[Filter], schema: pa.Schema) -> tuple[Filter, ...]:
    """Return the filters and, for each struct all of whose fields they limit to values, the limit that follows.

    So a look-up finds a key that is named field by field. The limit is for plans: it excludes no other rows.
    """
    given: dict[str, dict[tuple[str, ...], list[Any]]] = {}
    for item in filters:
        if item.path and (values := _limits(item)) is not None:
            given.setdefault(item.column, {}).setdefault(item.path, values)
    implied = []
    for name, limits in given.items():
        if schema.names.count(name) != 1 or math.prod(map(len, limits.values())) > MAX_LOOKUPS:
            continue
        kind = schema.field(name).type
        chosen = (dict(zip(limits, each, strict=True)) for each in itertools.product(*limits.values()))
        try:
            convert = canonical(ErrorPath(ErrorCode.INVALID_FILTER, name, kind))
            wholes = tuple(convert(_whole_struct(kind, values, ())) for values in chosen)
        except (StateStoreError, KeyError):  # a field is not given, has a type of no key, or equals other types' values
            continue
        implied.append(Filter(name, "in", wholes) if len(wholes) != 1 else Filter(name, "=", wholes[0]))
    return (*filters, *implied)


def one_of(branches: Sequence[Sequence[Filter]], schema: pa.Schema) -> Filter | None:
    """Return the one filter that passes the rows that all filters of one of the branches pass; None without such.

    There is one where every branch names values of the same column or field, or every field of the same struct.
    """
    names = [_named_values(branch, schema) for branch in branches]
    known = [each for each in names if each is not None]
    if not known or len(known) < len(names) or len({(each.column, each.path) for each in known}) > 1:
        return None
    values = tuple(value for each in known for value in each.value)
    return replace(known[0], value=values) if len(values) <= MAX_LOOKUPS else None


def limits_of_either(branches: Sequence[Sequence[Filter]]) -> tuple[Filter, ...]:
    """Return the filters that all rows pass that pass one of the branches: each column or field that every branch
    limits to values has one of all these.

    They pass other rows, too, and are for plans, where a key of several columns is named with OR.
    """
    given = [{(item.column, item.path): item for item in branch if _limits(item) is not None} for branch in branches]
    shared = [name for name in given[0] if all(name in each for each in given)] if given else []
    found = []
    for name in shared:
        values = _distinct([value for each in given for value in _limits(each[name]) or ()])
        if values is not None and len(values) <= MAX_LOOKUPS:
            found.append(Filter(name[0], "in", tuple(values), name[1]))
    return tuple(found)


def _named_values(branch: Sequence[Filter], schema: pa.Schema) -> Filter | None:
    """Return a conjunction as membership of its only column or field, or of a struct whose fields it names, each once;
    None where it is none."""
    if any(item.exact or item.op not in ("=", "in") or _limits(item) is None for item in branch):
        return None
    if len(branch) == 1:
        return replace(branch[0], op="in", value=tuple(_limits(branch[0]) or ()))
    column = schema.field(branch[0].column)
    if {item.column for item in branch} != {column.name} or len({item.path for item in branch}) < len(branch):
        return None
    wholes = with_whole_structs(branch, pa.schema([column]))[len(branch) :]
    if len(wholes) != 1 or len(branch) != _leaves(column.type):
        return None
    return Filter(column.name, "in", wholes[0].value if wholes[0].op == "in" else (wholes[0].value,))


def _leaves(kind: pa.DataType) -> int:
    """Return the number of fields of a struct at any depth that are no structs."""
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _limits(item: Filter) -> list[Any] | None:
    """Return the values to which a filter limits its column or field; None where it does not, or null is among them."""
    if item.op in ("=", "<=>"):
        return None if item.value is None else [item.value]
    return _distinct([value for value in item.value if value is not None]) if item.op == "in" else None


def _whole_struct(kind: pa.DataType, values: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    """The value at a path. Raises KeyError where it is not given in whole."""
    if path in values:
        return values[path]
    if not pa.types.is_struct(kind) or len({field.name for field in kind}) < kind.num_fields:
        raise KeyError(path)
    return tuple(_whole_struct(field.type, values, (*path, field.name)) for field in kind)


def _pinned(filters: list[Filter]) -> list[Any] | None:
    """The values of the conjunct that allows the fewest. Key columns hold no null, so None adds no value."""
    choices = [item.value if item.op == "in" else (item.value,) for item in filters if item.op in ("=", "<=>", "in")]
    if not choices:
        return None
    return _distinct([value for value in min(choices, key=len) if value is not None])


def _distinct(values: list[Any]) -> list[Any] | None:
    try:
        return list({_hashable(value): value for value in values}.values())
    except TypeError:  # a value that no column has
        return values if len(values) == 1 else None


def _hashable(value: Any) -> Any:
    """Return a value, or one in place of a dict, list or array for nested keys, whose hash distinguishes them."""
    if isinstance(value, Mapping):
        return Mapping, *((name, _hashable(value[name])) for name in sorted(value, key=repr))
    if isinstance(value, list | tuple | np.ndarray):
        return list, *map(_hashable, value)
    return value


def with_both_zeros(keys: list[tuple[Any, ...]] | None, kinds: Sequence[pa.DataType]) -> list[tuple[Any, ...]] | None:
    """Return the keys of `key_lookups` with all that are equal to them and have other bits: 0.0 equals -0.0.

    ``kinds`` are the types of the key columns. Keys with floats become canonical. None where one cannot.
    """
    if keys is None or not any(map(has_floats, kinds)):
        return keys
    converts = [canonical(ErrorPath(ErrorCode.INVALID_FILTER, "key", kind)) for kind in kinds]
    found: list[tuple[Any, ...]] = []
    try:
        for key in keys:
            cells = (_signed(convert(cell)) for convert, cell in zip(converts, key, strict=True))
            found += itertools.islice(itertools.product(*cells), MAX_LOOKUPS)
            if len(found) >= MAX_LOOKUPS:
                return None
    except StateStoreError:  # the filter raises, or compares numbers of two types
        return None
    return found


def _signed(value: Any) -> list[Any]:
    """Return a canonical value with each of its zeros in both signs."""
    if isinstance(value, float) and value == 0:
        return [0.0, -0.0]
    if isinstance(value, tuple):
        return list(itertools.product(*map(_signed, value)))
    return [value]


def _invalid(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_FILTER, f"filter: {found}")
