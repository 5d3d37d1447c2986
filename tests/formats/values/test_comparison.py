"""Rows selected from a batch are those that plain Python selects."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.filter_truth import NUMBERS, ORDERINGS, TEXT, holds, number_columns
from support.key_strategies import SCALARS, key_types
from support.properties import few_or_many

from statestore.formats.errors import InvalidInputError
from statestore.formats.values import comparison
from statestore.formats.values.canonical import ErrorPath, canonical
from statestore.formats.values.filters import Filter, Op, check_filters, mask, parse_filters

CANONICAL: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [t for t in SCALARS if not pa.types.is_decimal(t[0])]


def batch_of(rows: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    """One column ``x``, sliced out of a longer one."""
    around = pa.array([None, *rows, None], kind)
    return pa.RecordBatch.from_arrays([around], ["x"]).slice(1, len(rows))


def selected(condition: Filter, rows: list[Any], kind: pa.DataType) -> list[bool]:
    found = mask([condition], batch_of(rows, kind))
    if found is None:
        return [True] * len(rows)
    assert found.null_count == 0
    answer: list[bool] = found.to_pylist()
    return answer


def error_of(spec: Any, kind: pa.DataType) -> str:
    with pytest.raises(InvalidInputError) as caught:
        mask(parse_filters(spec), batch_of([None], kind))
    assert caught.value.code == "INVALID_FILTER"
    return caught.value.message


@given(number_columns(), ORDERINGS, NUMBERS)
def test_numbers_compare_exactly_beyond_the_type_too(column: tuple[pa.DataType, list[Any]], op: Op, value: Any) -> None:
    """No rounding to the column's type, no error outside its range."""
    kind, rows = column
    assert selected(Filter("x", op, value), rows, kind) == [holds(op, row, value) for row in rows]


@pytest.mark.parametrize(
    ("kind", "row", "value"),
    [
        (pa.decimal128(38, 0), Decimal(1 - 10**38), -(10**38)),
        (pa.decimal128(38, 0), Decimal(10**38 - 1), 10**38),
        (pa.decimal128(38, 0), Decimal(10**37), Decimal("9" * 37 + ".5")),
        (pa.decimal128(38, 20), Decimal("-0.1"), -0.1),
        (pa.int64(), 2**63 - 1, float(2**63)),
        (pa.int64(), -(2**63), -float(2**63)),
        (pa.int64(), 2**53 + 1, float(2**53)),
        (pa.float64(), float(2**53), 2**53 + 1),
        (pa.float64(), 0.1, Decimal("0.1")),
        (pa.float64(), 1.7976931348623157e308, 10**400),
        (pa.float64(), float("inf"), 10**400),
        (pa.float64(), float("-inf"), -(10**400)),
        (pa.float64(), 0.0, Decimal("-1e-999")),
    ],
)
def test_numbers_at_the_edges_of_types(kind: pa.DataType, row: Any, value: Any) -> None:
    """The places where rounding would show."""
    operators: tuple[Op, ...] = ("=", "!=", "<", "<=", ">", ">=")
    for op in operators:
        assert selected(Filter("x", op, value), [row], kind) == [holds(op, row, value)], op


@given(number_columns(), st.lists(st.none() | NUMBERS, max_size=4))
def test_in_is_equality_with_any_member(column: tuple[pa.DataType, list[Any]], values: list[Any]) -> None:
    """Members that the type cannot hold match nothing, null members match nothing."""
    kind, rows = column
    values += rows[:2]
    assert selected(Filter("x", "in", tuple(values)), rows, kind) == [holds("in", row, values) for row in rows]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.int64(), pa.uint64()])
def test_whole_numbers_beyond_a_type_are_no_members(kind: pa.DataType) -> None:
    low, high = (
        (0, 2**kind.bit_width - 1)
        if "u" in str(kind)
        else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    )
    rows, members = [low, 5, None, high], (low - 1, high, 2**70, 5)
    assert selected(Filter("x", "in", members), rows, kind) == [False, True, False, True]


def test_texts_are_converted_once_for_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of bytes has the same texts as no members: they are of another type."""
    texts, asked = tuple(f"item {number}" for number in range(1000)), list[str]()

    def counted(error_path: ErrorPath) -> Any:
        convert = canonical(error_path)

        def noted(value: Any) -> Any:
            asked.append(value)
            return convert(value)

        return noted

    monkeypatch.setattr(comparison, "canonical", counted)
    for _ in range(5):
        assert selected(Filter("x", "in", texts), ["item 7", "item", None], pa.string()) == [True, False, False]
    assert asked == list(texts)
    assert "found str 'item 0'" in error_of(("x", "in", texts), pa.binary())


@few_or_many(25, 100, st.data())
def test_other_values_compare_as_in_python(data: st.DataObject) -> None:
    """Texts, bytes, booleans, dates, times and durations."""
    kind, values = data.draw(st.sampled_from(CANONICAL))
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    value = data.draw(st.none() | values | (st.sampled_from(rows) if rows else values))
    op: Any = data.draw(ORDERINGS)
    assert selected(Filter("x", op, value), rows, kind) == [holds(op, row, value) for row in rows]
    assert selected(Filter("x", "in", (value, None)), rows, kind) == [holds("=", row, value) for row in rows]


@few_or_many(25, 100, st.data())
def test_nested_values_are_equal_or_not(data: st.DataObject) -> None:
    """Structs (from tuples) and lists to any depth; inside them null equals null."""
    kind, values = data.draw(key_types().filter(lambda typed: pa.types.is_nested(typed[0])))
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    value = data.draw(values | st.sampled_from(rows))
    op: Any = data.draw(st.sampled_from(["=", "!=", "<=>"]))
    column = [as_arrow(row, kind) for row in rows]
    assert selected(Filter("x", op, value), column, kind) == [holds(op, row, value) for row in rows]
    members = (value, rows[0])
    assert selected(Filter("x", "in", members), column, kind) == [holds("in", row, members) for row in rows]


KEY = pa.struct([("a", pa.string()), ("b", pa.struct([("n", pa.int32()), ("at", pa.timestamp("us", "UTC"))]))])
CELLS = st.sampled_from([None, 1, 2])
STRUCTS = st.tuples(
    st.sampled_from([None, "x", "y"]),
    st.none() | st.tuples(CELLS, st.none() | st.just(datetime(2024, 5, 1, tzinfo=UTC))),
)


@few_or_many(25, 200, st.lists(st.none() | STRUCTS, max_size=12), st.lists(STRUCTS, min_size=1, max_size=20))
def test_many_structs_are_members_as_few_are(rows: list[Any], members: list[Any]) -> None:
    column = [as_arrow(row, KEY) for row in rows]
    found = selected(Filter("x", "in", tuple(members)), column, KEY)
    assert found == [row is not None and row in members for row in rows]


def test_structs_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "hash_keys", lambda columns: np.zeros(len(columns[0]), np.uint64))
    members = [(f"item {number}", None) for number in range(30)]
    rows = [*members[::3], ("item", None), None]
    found = selected(Filter("x", "in", tuple(members)), [as_arrow(row, KEY) for row in rows], KEY)
    assert found == [True] * 10 + [False, False]


def as_arrow(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_arrow(cell, field.type) for field, cell in zip(kind, value, strict=True)}
    return [as_arrow(cell, kind.value_type) for cell in value] if pa.types.is_list(kind) else value


@given(
    st.lists(st.none() | st.text("aé😀\x00", max_size=4)), st.text("aé😀\x00", max_size=2), st.sampled_from(list(TEXT))
)
def test_text_operators(rows: list[str | None], value: str, op: Any) -> None:
    """Text operators agree with the methods of str, and on bytes with those of bytes."""
    expected = [holds(op, row, value) for row in rows]
    assert selected(Filter("x", op, value), rows, pa.string()) == expected
    raw = [row if row is None else row.encode() for row in rows]
    assert selected(Filter("x", op, value.encode()), raw, pa.binary()) == expected


@pytest.mark.parametrize("op", ["is_null", "is_not_null"])
@pytest.mark.parametrize("rows", [[None, 1], [1, 2], [None], []])
def test_null_tests(op: Op, rows: list[int | None]) -> None:
    """Test for null with and without nulls in the column."""
    assert selected(Filter("x", op), rows, pa.int64()) == [holds(op, row, None) for row in rows]


@pytest.mark.parametrize("op", [op for op in get_args(Op) if op not in ("is_null", "is_not_null", "in", "<=>")])
def test_a_null_constant_selects_nothing(op: Op) -> None:
    """SQL: a comparison with null is not true."""
    assert selected(Filter("x", op, None), ["a", None], pa.string()) == [False, False]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=["large", "view", "dict"]
)
def test_other_encodings_of_text(kind: pa.DataType) -> None:
    """Tables that are not ours may hold them."""
    rows = ["a", None, "ab"]
    assert selected(Filter("x", "=", "ab"), rows, kind) == [False, False, True]
    assert selected(Filter("x", "in", ("a",)), rows, kind) == [True, False, False]
    assert selected(Filter("x", "starts_with", "a"), rows, kind) == [True, False, True]


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    """Aware datetimes compare as moments."""
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    value = noon.astimezone(timezone(timedelta(hours=5)))
    assert selected(Filter("x", "=", value), [noon], pa.timestamp("us", "UTC")) == [True]


def test_coarser_times_compare_with_finer_constants() -> None:
    """A column of whole seconds against half a second."""
    rows = [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 0, 0, 1, tzinfo=UTC)]
    value = datetime(2020, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert selected(Filter("x", "<", value), rows, pa.timestamp("s", "UTC")) == [True, False]


def test_structs_from_dicts_and_rows_by_name() -> None:
    """Users write a struct as a dict too, in any order."""
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    rows = [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]
    assert selected(Filter("x", "=", {"b": "y", "a": 1}), rows, kind) == [False, True]


def test_several_filters_must_all_hold() -> None:
    """A conjunction over two columns."""
    batch = pa.record_batch({"x": [1, 2, 3, None], "y": ["a", "b", "c", "d"]})
    found = mask([Filter("x", ">", 1), Filter("y", "<", "c")], batch)
    assert found is not None
    assert found.to_pylist() == [False, True, False, False]


def test_no_filter_and_filters_that_all_pass_are_none() -> None:
    """None spares the caller the filtering."""
    batch = pa.record_batch({"x": [1, 2]})
    assert mask([], batch) is None
    assert mask([Filter("x", "is_not_null")], batch) is None


@pytest.mark.parametrize(
    ("spec", "kind", "said"),
    [
        (("x", "=", "a"), pa.int64(), "found str 'a', expected int64"),
        (("x", "=", True), pa.int64(), "found bool True"),
        (("x", "<", Decimal("NaN")), pa.float64(), "float('nan')"),
        (("x", "=", 1), pa.bool_(), "found int 1, expected bool"),
        (("x", "=", b"a"), pa.string(), "found bytes"),
        (("x", "=", "a"), pa.binary(), "found str"),
        (("x", "=", "\ud800"), pa.string(), "surrogate"),
        (("x", "=", datetime(2020, 1, 1)), pa.date32(), "found datetime"),
        (("x", "=", datetime(2020, 1, 1)), pa.timestamp("us", "UTC"), "without a time zone"),
        (("x", "=", date(2020, 1, 1)), pa.timestamp("us"), "found date"),
        (("x", "=", 5), pa.timestamp("us", "UTC"), "found int 5"),
        (("x", "in", [1, "a"]), pa.int64(), "found str 'a'"),
        (("x", "starts_with", "a"), pa.int64(), "needs a column of text"),
        (("x", "contains", 5), pa.string(), "found int 5"),
        (("x", "<", (1,)), pa.struct([("a", pa.int64())]), "no order"),
        (("x", "=", {"b": 1}), pa.struct([("a", pa.int64())]), "write a dict or tuple of a"),
        (("x", "=", {}), pa.map_(pa.string(), pa.int64()), "no one equality"),
        (("x", "=", [{}]), pa.list_(pa.map_(pa.string(), pa.int64())), "no one equality"),
        (("x", "=", 5), pa.time64("us"), "write a datetime.time"),
        (("y", "=", 5), pa.int64(), "did you mean|expected one of x"),
    ],
)
def test_values_that_can_not_be_compared(spec: Any, kind: pa.DataType, said: str) -> None:
    """An error that names column, value and type; it does not depend on the rows."""
    message = error_of(spec, kind)
    assert any(part in message for part in said.split("|"))
    assert spec[0] in message
    with pytest.raises(InvalidInputError):
        check_filters(parse_filters(spec), pa.schema([("x", kind)]))


def test_an_unknown_column_names_the_nearest() -> None:
    """A slip of the pen is easy to mend."""
    with pytest.raises(InvalidInputError, match="did you mean 'price'"):
        check_filters([Filter("prise", "=", 1)], pa.schema([("item", pa.string()), ("price", pa.float64())]))


def test_filters_that_fit_a_schema_are_accepted() -> None:
    """Nothing is raised, nothing is returned."""
    check_filters(parse_filters([("x", ">", 1), ("y", "is null")]), pa.schema([("x", pa.int8()), ("y", pa.string())]))
