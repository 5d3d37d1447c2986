"""The edit that changes amount to: whole units in the order of the state, and none that ends as it began."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statestore.connector.edit.net_edit import net_edit
from statestore.connector.edit.units import unit_numbers
from statestore.formats.errors import InvalidInputError

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("place", pa.int32())])
Row = tuple[str, float | None, int | None]


def state(before: Sequence[Row], now: Sequence[Row], *, is_keyed: bool = False) -> Any:
    """A state as `net_edit` sees it."""

    def table(rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)

    def numbers(*tables: pa.Table) -> list[Any]:
        found = unit_numbers(pa.concat_tables(tables), ("k",))
        return np.split(found, np.cumsum([each.num_rows for each in tables])[:-1])

    return SimpleNamespace(
        name="s",
        table=SimpleNamespace(state="s"),
        unit=("k",),
        placement=("place",),
        own=pa.schema([SCHEMA.field("k"), SCHEMA.field("v")]),
        is_keyed=is_keyed,
        before=table(before),
        now=table(now),
        numbers=numbers,
    )


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_units_are_whole_and_in_order() -> None:
    before = [("b", 1.0, 0), ("a", 1.0, 0), ("b", 2.0, 0), ("c", 3.0, 1), ("d", 4.0, 1)]
    now = [("b", 1.0, 0), ("a", 1.0, 0), ("b", 9.0, 0), ("d", 4.0, 1), ("e", 5.0, None), ("a", 7.0, None)]
    edit = net_edit(state(before, now))
    assert edit is not None and edit.unit == ("k",)
    assert rows(edit.removed) == [("b", 1.0), ("b", 2.0), ("a", 1.0), ("c", 3.0)]
    assert rows(edit.added) == [("b", 1.0), ("b", 9.0), ("a", 1.0), ("a", 7.0), ("e", 5.0)]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([], []),
        ([("a", 1.0, 0)], [("a", 1.0, 5)]),  # where a row is stored is no part of it
        ([("a", float("nan"), 0), ("b", None, 0)], [("b", None, 0), ("a", float("nan"), 0)]),
    ],
)
def test_what_ends_as_it_began_is_no_edit(before: Sequence[Row], now: Sequence[Row]) -> None:
    assert net_edit(state(before, now)) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([("a", 0.0, 0)], [("a", -0.0, 0)]),
        ([("a", None, 0)], [("a", 0.0, 0)]),
        ([("a", 1.0, 0), ("a", 2.0, 0)], [("a", 2.0, 0), ("a", 1.0, 0)]),
    ],
)
def test_bits_and_order_count(before: Sequence[Row], now: Sequence[Row]) -> None:
    edit = net_edit(state(before, now))
    assert edit is not None
    assert repr(rows(edit.added)) == repr([row[:2] for row in now])


def test_a_key_in_two_places_is_removed_from_both_or_left() -> None:
    before = [("a", 1.0, 0), ("a", 2.0, 1), ("b", 3.0, 0)]
    edit = net_edit(state(before, before[2:], is_keyed=True))
    assert edit is not None and rows(edit.removed) == [("a", 1.0), ("a", 2.0)]
    with pytest.raises(InvalidInputError, match=r"'s' has k 'a' in several places \(place\)"):
        net_edit(state(before, [("a", 1.0, 0), ("a", 9.0, 1)], is_keyed=True))
