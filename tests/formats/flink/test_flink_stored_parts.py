"""The key groups to which filters limit an answer: never fewer than those of the rows that pass."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from statestore.formats.flink.serializers.flink_types import Basic
from statestore.formats.flink.stored_parts import asked_groups
from statestore.formats.flink.streams.state_form import VOID, KeyedForm
from statestore.formats.values.filters import Filter

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
