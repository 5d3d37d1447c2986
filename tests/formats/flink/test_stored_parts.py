"""Parts of a keyed state: each has all rows of its key groups, and about so many bytes for each thread of its read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from statestore.formats.flink.serializers.flink_types import VOID, Basic, Logical, RowDataOf
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RelativeHandle, RocksHandle
from statestore.formats.flink.stored_parts import (
    PART_BYTES,
    GroupsPart,
    asked_groups,
    asked_ranges,
    names_keys,
    parts_of,
)
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.places.reading_threads import limit_reading_threads, reading_in_tasks
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_groups import murmur_of

GROUPS = 8
BLOCK = PART_BYTES // 4


def savepoint(block: int) -> KeyGroupHandle:
    offsets = tuple(100 + number * block for number in range(GROUPS))
    return KeyGroupHandle("savepoint", 0, offsets, RelativeHandle("state", 100 + GROUPS * block))


def database(size: int) -> RocksHandle:
    tables = (("000001.sst", RelativeHandle("a", size)),)
    return RocksHandle(1, "backend", 0, GROUPS, RelativeHandle("header", 10), tables, ())


def spans(handle: KeyGroupHandle | RocksHandle, asked: set[int] | None = None) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in parts_of([handle], asked, is_local=True)]


@pytest.mark.parametrize("handle", [savepoint(BLOCK), database(GROUPS * BLOCK)], ids=["savepoint", "database"])
def test_a_task_gets_a_part_of_bounded_bytes_and_a_read_with_several_threads_a_larger_one(
    handle: KeyGroupHandle | RocksHandle,
) -> None:
    with reading_in_tasks():
        assert spans(handle) == [(0, 3), (4, 7)]
        limit_reading_threads(2)
        assert spans(handle) == [(0, 7)]


def test_large_key_groups_are_parts_of_their_own() -> None:
    with reading_in_tasks():
        assert spans(savepoint(2 * PART_BYTES)) == [(group, group) for group in range(GROUPS)]


def test_parts_have_only_the_asked_key_groups() -> None:
    with reading_in_tasks():
        assert spans(savepoint(BLOCK), {1, 2, 6}) == [(1, 2), (6, 6)]


def test_a_database_in_an_object_store_is_one_part_also_where_key_groups_between_are_not_asked_for() -> None:
    for asked, span in ((None, (0, 7)), ({1, 4, 6, 90}, (1, 6)), ({3}, (3, 3))):
        found = parts_of([database(GROUPS * BLOCK)], asked, is_local=False)
        assert [(part.first, part.last) for part in found] == [span]
    assert not parts_of([database(GROUPS * BLOCK)], {90}, is_local=False)


def test_few_keys_are_one_part_which_reads_the_asked_key_groups_alone() -> None:
    handles: list[KeyGroupHandle | RocksHandle] = [database(GROUPS * PART_BYTES), savepoint(PART_BYTES)]
    found = parts_of(handles, {1, 4, 6}, is_local=True, is_lookup=True)
    assert [(part.stored, part.first, part.last) for part in found] == [(0, 1, 6), (1, 1, 6)]
    assert {part.groups for part in found} == {frozenset((1, 4, 6))}


LONG = Basic("long")
FORM = KeyedForm("counts", "value", LONG, VOID, LONG, LONG)


def _asked(op: Any, value: Any) -> set[int] | None:
    return asked_groups(FORM, LONG, 128, [Filter("key_group", op, value)])


@pytest.mark.parametrize("value", [5, 5.0, Decimal(5), Decimal("5.0"), np.int32(5), np.float64(5), np.uint8(5)])
def test_a_key_group_is_a_number_of_any_python_type(value: Any) -> None:
    assert _asked("=", value) == {5}
    assert _asked("in", (None, value, 7)) == {5, 7}


@pytest.mark.parametrize(
    "value", [5.5, -1, 1 << 40, float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("1e99999"), None]
)
def test_a_number_that_is_no_key_group_asks_for_none(value: Any) -> None:
    assert _asked("in", (value, 7)) == {7}


@pytest.mark.parametrize("value", [True, "5", b"5", [5]])
def test_a_value_that_is_no_number_prunes_nothing_so_that_the_filter_raises(value: Any) -> None:
    assert _asked("=", value) is None


def test_both_zeros_are_looked_up_each_in_its_group() -> None:
    """They are equal for a filter, and two keys for Flink."""
    double = Basic("double")
    form, part = KeyedForm("counts", "value", double, VOID, LONG, LONG), GroupsPart(0, 0, 127)
    groups = {murmur_of(code) % 128 for code in (0, 1 << 31)}
    for value in (0.0, -0.0, 0):
        asked = [Filter("key", "=", value)]
        assert asked_groups(form, double, 128, asked) == groups
        firsts = {each.first for each in asked_ranges(form, double, 128, part, asked)}
        assert {first[1:] for first in firsts if first} == {bytes(8), b"\x80" + bytes(7)} and len(firsts) == 2


def test_few_keys_are_looked_up_and_others_are_not() -> None:
    assert names_keys(FORM, LONG, [Filter("key", "in", tuple(range(1000)))])
    assert not names_keys(FORM, LONG, [Filter("key", "in", tuple(range(1001)))])
    assert not names_keys(FORM, LONG, [Filter("key_group", "=", 5)])


def test_a_key_of_unknown_hash_is_looked_up_in_every_group() -> None:
    row = RowDataOf(Logical("ROW", children=(Logical("BIGINT"),)))
    form, asked = KeyedForm("counts", "value", row, VOID, LONG, LONG), [Filter("key", "=", (5,))]
    assert asked_groups(form, row, 128, asked) is None
    ranges = asked_ranges(form, row, 128, GroupsPart(0, 3, 9), asked)
    assert [each.first[0] for each in ranges if each.first] == list(range(3, 10))
    assert len({each.first[1:] for each in ranges if each.first}) == 1
    assert len(asked_ranges(form, row, 32768, GroupsPart(0, 0, 32767), asked)) == 1  # too many seeks
