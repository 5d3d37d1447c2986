"""The state that a tracking function gets, and the specification of tracking: the rules of Spark's first
trackStateByKey."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.keyed.keyed_backends import refused
from support.keyed.tracked_cases import STATE_RULES, count, count_only

from statestore.connector.tracked.spec import State
from statestore.tracked import StateSpec

CODES = {"no state": "NO_STATE", "already removed": "STATE_REMOVED", "timing out": "STATE_TIMING_OUT"}
CALLS: dict[str, tuple[Any, ...]] = {"get": (), "update": (9,), "remove": ()}


def after(steps: list[list[Any]]) -> State:
    state = State()
    for name, *values in steps:
        match name:
            case "wrap":
                state._wrap(*values)
            case "wrap_timing_out":
                state._wrap(*values, timing_out=True)
            case _:
                getattr(state, name)(*values)
    return state


def seen(state: State) -> dict[str, Any]:
    return {
        "exists": state.exists(),
        "updated": state._is_updated,
        "removed": state._is_removed,
        "timing_out": state.is_timing_out(),
        "get_option": state.get_option(),
    }


@pytest.mark.parametrize("rule", STATE_RULES, ids=[rule["id"] for rule in STATE_RULES])
def test_rules(rule: dict[str, Any]) -> None:
    state, expected = after(rule["steps"]), dict(rule["expect"])
    raises, value = expected.pop("raises", {}), expected.pop("get", None)
    before = seen(state)
    assert before == {**before, **expected}
    assert state.get_option() == value
    if value is None:
        with refused("NO_STATE", "get_option()"):
            state.get()
    else:
        assert state.get() == value
    for call, why in raises.items():
        with refused(CODES[why], "the state" if call != "get" else "no state"):
            getattr(state, call)(*CALLS[call])
    assert seen(state) == before, "a call that is refused changes nothing"


def test_what_the_original_allows() -> None:
    """More than one update in a call; a remove where nothing is; a state that is wrapped again forgets all."""
    state = after([["update", 1], ["update", 2]])
    assert (state.get(), state._is_updated) == (2, True)
    state = after([["wrap", None], ["remove"]])
    assert (state.exists(), state._is_removed) == (False, True)
    for steps in ([["update", 1], ["remove"]], [["wrap_timing_out", 3]], [["update", 1]]):
        assert seen(after([*steps, ["wrap", 7]])) == seen(after([["wrap", 7]]))


def test_states_that_python_takes_for_nothing() -> None:
    values: list[Any] = [0, "", False, [], {}]
    for value in values:
        state = after([["wrap", value]])
        assert state.exists()
        assert state.get() == value
        assert state.get_option() == value


def test_none_is_no_state() -> None:
    for steps in ([["wrap", 1]], [["wrap", None]]):
        state = after(steps)
        with refused("NULL_VALUE", "call remove()"):
            state.update(None)
        assert seen(state) == seen(after(steps))
    with refused("STATE_REMOVED"):
        after([["remove"]]).update(None)


# StateSpec


class Counting:
    def __call__(self, value: int, state: State) -> int:
        return count(value, state)

    def of_key(self, batch_time: Any, key: str, value: int, state: State, scale: int = 1) -> int:
        return scale * count(value, state)


def test_the_form_is_told_by_the_parameters() -> None:
    forms: dict[Any, str] = {
        count: "value",
        count_only: "record",
        (lambda value, state: None): "value",
        (lambda value, state, scale=2: None): "value",
        (lambda batch_time, key, value, state: None): "record",
        Counting(): "value",
        Counting().of_key: "record",
        functools.partial(count_only, datetime(2015, 11, 11), "a"): "value",
    }
    for function, form in forms.items():
        spec = StateSpec.function(function)
        assert (spec.call, spec.form) == (function, form)
    assert StateSpec.vectorized(count_only).form == "columns"


@pytest.mark.parametrize("wrong", [None, "count", 3, len, lambda: 1, lambda v: 1, lambda b, v, s: 1, lambda *a: 1])
def test_what_is_no_function(wrong: Any) -> None:
    with refused("INVALID_OPTION", "f(value, state) or f(batch_time, key, value, state)"):
        StateSpec.function(wrong)
    if not callable(wrong):
        with refused("INVALID_OPTION"):
            StateSpec.vectorized(wrong)


@pytest.mark.parametrize("told", [1500, timedelta(seconds=1.5), "1500 ms"])
def test_timeouts(told: Any) -> None:
    assert StateSpec.function(count).timeout(told).timeout_ms == 1500


NO_TIMEOUTS = [0, -1, timedelta(0), timedelta(seconds=-1), "0 seconds", "1500", "soon", 1.5, True, None]


@pytest.mark.parametrize("wrong", NO_TIMEOUTS)
def test_what_is_no_timeout(wrong: Any) -> None:
    with refused("INVALID_DURATION", repr(wrong)):
        StateSpec.function(count).timeout(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, None, "2"])
def test_what_is_no_number_of_partitions(wrong: Any) -> None:
    with refused("INVALID_OPTION", repr(wrong)):
        StateSpec.function(count).num_partitions(wrong)


def test_each_step_answers_a_spec_of_its_own() -> None:
    first = StateSpec.function(count)
    rows = object()
    whole = first.num_partitions(3).timeout("2 seconds").initial_state(rows)
    assert (first.partitions, first.timeout_ms, first.initial) == (None, None, None)
    assert (whole.partitions, whole.timeout_ms, whole.initial) == (3, 2000, rows)
    assert (whole.call, whole.form) == (count, "value")
    assert whole.num_partitions(5).partitions == 5
