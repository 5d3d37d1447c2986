"""The key groups to which filters limit an answer: never fewer than those of the rows that pass."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from statestore.formats.flink.serializers.flink_types import Basic, Logical, RowDataOf
from statestore.formats.flink.stored_parts import GroupsPart, asked_groups, asked_ranges
from statestore.formats.flink.streams.state_form import VOID, KeyedForm
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_groups import murmur_of

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


def test_a_key_of_unknown_hash_is_looked_up_in_every_group() -> None:
    row = RowDataOf(Logical("ROW", children=(Logical("BIGINT"),)))
    form, asked = KeyedForm("counts", "value", row, VOID, LONG, LONG), [Filter("key", "=", (5,))]
    assert asked_groups(form, row, 128, asked) is None
    ranges = asked_ranges(form, row, 128, GroupsPart(0, 3, 9), asked)
    assert [each.first[0] for each in ranges if each.first] == list(range(3, 10))
    assert len({each.first[1:] for each in ranges if each.first}) == 1
    assert len(asked_ranges(form, row, 32768, GroupsPart(0, 0, 32767), asked)) == 1  # too many seeks
