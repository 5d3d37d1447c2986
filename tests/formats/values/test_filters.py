"""Filters as users write them, what they prune, and the keys that they pin."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.filter_truth import COMPARE, NUMBERS, ORDERINGS, TEXT, holds, number_columns

from statestore.formats.errors import InvalidInputError
from statestore.formats.values.filters import Filter, key_lookups, mask, may_match, parse_filters


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, ()),
        ([], ()),
        (("price", ">", 5), (Filter("price", ">", 5),)),
        (["price", ">", 5], (Filter("price", ">", 5),)),
        (Filter("price", ">", 5), (Filter("price", ">", 5),)),
        ([("a", "==", 1), Filter("b", "!=", 2)], (Filter("a", "=", 1), Filter("b", "!=", 2))),
        ([["c", "<>", 3]], (Filter("c", "!=", 3),)),
        ((("a", "=", 1), ("b", "=", 2)), (Filter("a", "=", 1), Filter("b", "=", 2))),
        (("item", "IN", ["x", "y"]), (Filter("item", "in", ("x", "y")),)),
        (("item", "in", (n for n in (1, 2))), (Filter("item", "in", (1, 2)),)),
        (("item", "in", pa.array([1, None])), (Filter("item", "in", (1, None)),)),
        (Filter("item", "in", [1]), (Filter("item", "in", (1,)),)),
        (("item", "is null"), (Filter("item", "is_null"),)),
        (("item", "IS NOT NULL", None), (Filter("item", "is_not_null"),)),
        (("item", "=", None), (Filter("item", "=", None),)),
    ],
)  # fmt: skip
def test_what_users_write(spec: Any, expected: tuple[Filter, ...]) -> None:
    """One condition, several, spellings of operators; sequences become tuples."""
    assert parse_filters(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        "price > 5",
        5,
        {"price": 5},
        ("price",),
        ("price", ">"),
        ("price", ">", 5, 6),
        ("price", "~", 5),
        ("price", None, 5),
        (5, "=", "price"),
        [None],
        ["price"],
        [[("price", ">", 5)]],
        ("item", "in", "abc"),
        ("item", "in", b"abc"),
        ("item", "in", 5),
        ("item", "in", {"a": 1}),
        ("item", "is_null", False),
        Filter("item", "in", "abc"),
        Filter("item", "~", 1),  # type: ignore[arg-type]
        Filter(5, "=", 1),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_a_filter(spec: Any) -> None:
    """INVALID_FILTER, in words that show what was found."""
    with pytest.raises(InvalidInputError) as caught:
        parse_filters(spec)
    assert caught.value.code == "INVALID_FILTER"
    assert "expected" in caught.value.message or "operator" in caught.value.message or "no" in caught.value.message


@given(number_columns(), ORDERINGS | st.just("in"), NUMBERS, NUMBERS)
def test_bounds_never_prune_a_number_that_passes(
    column: tuple[pa.DataType, list[Any]], op: Any, value: Any, other: Any
) -> None:
    """Whatever the bounds leave out: NaN of floats, infinities, constants between the values of the type."""
    _, rows = column
    known = [row for row in rows if row is not None and row == row]
    condition = Filter("x", op, (value, other) if op == "in" else value)
    if known and any(holds(op, row, condition.value) for row in rows):
        assert may_match([condition], "x", min(known), max(known), None in rows)


@given(
    st.lists(st.text("ab", max_size=3), min_size=1),
    st.sampled_from([*COMPARE, *TEXT]),
    st.text("abc", max_size=3),
)
def test_bounds_never_prune_a_text_that_passes(rows: list[str], op: Any, value: str) -> None:
    """Orderings and the text operators."""
    if any(holds(op, row, value) for row in rows):
        assert may_match([Filter("x", op, value)], "x", min(rows), max(rows), False)


@pytest.mark.parametrize(
    ("condition", "low", "high", "has_null"),
    [
        (Filter("x", "=", 9), 1, 5, True),
        (Filter("x", "=", Decimal("0.5")), 1, 5, True),
        (Filter("x", "<=>", 9), 1, 5, True),
        (Filter("x", "in", (0, 6, None)), 1, 5, True),
        (Filter("x", "in", ()), 1, 5, True),
        (Filter("x", "<", 1), 1, 5, True),
        (Filter("x", "<=", 0.5), 1, 5, True),
        (Filter("x", ">", 5), 1, 5, True),
        (Filter("x", ">=", 6), 1, 5, True),
        (Filter("x", "=", 1.5), 2.0, 3.0, True),
        (Filter("x", "=", None), 1, 5, True),
        (Filter("x", "starts_with", "b"), "c", "d", True),
        (Filter("x", "starts_with", "ce"), "a", "cd", True),
        (Filter("x", "is_null"), 1, 5, False),
        (Filter("x", "<=>", None), 1, 5, False),
    ],
)
def test_bounds_prune(condition: Filter, low: Any, high: Any, has_null: bool) -> None:
    """Data that cannot pass is not read."""
    assert not may_match([condition], "x", low, high, has_null)


@pytest.mark.parametrize(
    ("condition", "low", "high", "has_null"),
    [
        (Filter("y", "=", 9), 1, 5, False),
        (Filter("x", "=", 9), None, 5, False),
        (Filter("x", "=", 9), 1, None, False),
        (Filter("x", "=", "a"), 1, 5, False),
        (Filter("x", "is_null"), 1, 5, True),
        (Filter("x", "<", math.nan), 1, 5, False),
        (Filter("x", "<", Decimal("sNaN")), 1, 5, False),
        (Filter("x", ">", 9.0), 1.0, 5.0, False),
        (Filter("x", ">", math.inf), 1.0, 5.0, False),
        (Filter("x", "<", np.float32(2**24 + 4)), 2**24 + 3, 2**24 + 3, False),
        (Filter("x", "=", np.zeros(2)), 1, 5, False),
    ],
)
def test_bounds_in_doubt_let_pass(condition: Filter, low: Any, high: Any, has_null: bool) -> None:
    """Another column, unknown bounds, NaN, and constants that only ``mask`` can judge."""
    assert may_match([condition], "x", low, high, has_null)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([Filter("a", "=", 1), Filter("b", "=", "x")], [(1, "x")]),
        ([Filter("b", "in", ("x", "y", "x")), Filter("a", "<=>", 1), Filter("c", ">", 5)], [(1, "x"), (1, "y")]),
        ([Filter("a", "in", (1, 2, 3)), Filter("a", "in", (2, 9)), Filter("b", "=", "x")], [(2, "x"), (9, "x")]),
        ([Filter("a", "=", None), Filter("b", "=", "x")], []),
        ([Filter("a", "in", (None, 1)), Filter("b", "=", "x")], [(1, "x")]),
        ([Filter("a", "=", [1]), Filter("b", "in", ((1, 2), (1, 2)))], [([1], (1, 2))]),
        ([Filter("a", "=", 1)], None),
        ([Filter("a", "=", 1), Filter("b", ">", "x")], None),
        ([Filter("a", "in", ([1], [1])), Filter("b", "=", 1)], [([1], 1)]),
        ([Filter("a", "in", tuple(range(101))), Filter("b", "in", tuple(range(100)))], None),
        ([], None),
    ],
)
def test_lookups_of_pinned_keys(filters: list[Filter], expected: list[Any] | None) -> None:
    """Each key once; None where a key column is free or the list would be long."""
    assert key_lookups(filters, ("a", "b")) == expected


@given(
    st.lists(
        st.builds(Filter, st.sampled_from("ab"), st.just("="), st.integers(0, 3))
        | st.builds(Filter, st.sampled_from("ab"), st.just("in"), st.lists(st.integers(0, 3)).map(tuple))
    )
)
def test_lookups_hold_every_key_that_passes(filters: list[Filter]) -> None:
    """Against all keys there could be."""
    keys = [(a, b) for a in range(4) for b in range(4)]
    found = mask(filters, pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in keys]))
    lookups = key_lookups(filters, ("a", "b"))
    if lookups is not None and found is not None:
        assert len(set(lookups)) == len(lookups)
        assert {key for key, passes in zip(keys, found.to_pylist(), strict=True) if passes} <= set(lookups)


def test_no_key_columns_no_lookups() -> None:
    """A table without keys is scanned."""
    assert key_lookups([Filter("a", "=", 1)], ()) is None


def test_filters_cross_process_borders() -> None:
    """Spark pickles them."""
    filters = parse_filters([("a", "in", [1, 2]), ("t", ">", datetime(2020, 1, 1, tzinfo=UTC))])
    assert pickle.loads(pickle.dumps(filters)) == filters
