"""The scenarios of Spark's first trackStateByKey (SPARK-11290, 2015): their batches, functions and expected sequences.

``data/tracked-state/tracked.json`` has the input and the output; the functions are written as it describes them.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import cloudpickle

from statestore.connector.tracked.spec import State, StateSpec
from support.paths import DATA

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file
FIXTURE: dict[str, Any] = json.loads((DATA / "tracked-state" / "tracked.json").read_text())


def count(value: int | None, state: State) -> int:
    total = (value or 0) + (state.get_option() or 0)
    state.update(total)
    return int(total)


def count_and_double_key(batch_time: datetime, key: str, value: int | None, state: State) -> str:
    count(value, state)
    return key * 2


def count_and_pair(batch_time: datetime, key: str, value: int | None, state: State) -> tuple[str, int]:
    return key, count(value, state)


def count_only(batch_time: datetime, key: str, value: int | None, state: State) -> None:
    count(value, state)


def put_or_remove(batch_time: datetime, key: str, value: int | None, state: State) -> str | None:
    if state.exists():
        state.remove()
        return key
    state.update(value)
    return None


def until_idle(batch_time: datetime, key: str, value: int | None, state: State) -> str | None:
    if value is not None:
        state.update(1)
    return key if state.is_timing_out() else None


FUNCTIONS: dict[str, tuple[Callable[..., Any], str | dict[str, str]]] = {
    "count-simple-function": (count, "bigint"),
    "count-emit-doubled-key": (count_and_double_key, "string"),
    "states-as-emitted-records": (count_and_pair, {"word": "string", "total": "bigint"}),
    "initial-state-nothing-emitted": (count_only, "bigint"),
    "removing": (put_or_remove, "string"),
    "timing-out": (until_idle, "string"),
}
"""The function of each case and what it emits."""


@dataclass(frozen=True)
class Case:
    """A scenario. ``initial`` are its initial states, None if there are none."""

    name: str
    function: Callable[..., Any]
    output: str | dict[str, str]
    batches: list[list[str]]
    initial: list[tuple[str, int]] | None
    timeout_ms: int | None
    told: dict[str, Any]

    def spec(self) -> StateSpec:
        """The specification without the initial state."""
        spec = StateSpec.function(self.function)
        return spec if self.timeout_ms is None else spec.timeout(self.timeout_ms)

    def check(self, emitted: list[list[Any]], states: list[dict[str, int]]) -> None:
        """``emitted`` in each batch, lists for records of several columns; ``states`` after each."""
        assert len(emitted) == len(states) == len(self.batches)
        if self.timeout_ms is not None:
            self._check_timing_out(emitted, states)
            return
        assert [sorted(each) for each in emitted] == [sorted(each) for each in self.told["expect_output"]]
        assert states == [dict(each) for each in self.told["expect_state"]]

    def _check_timing_out(self, emitted: list[list[Any]], states: list[dict[str, int]]) -> None:
        """A key goes in the first batch that begins more than the timeout after its last record."""
        assert sorted(itertools.chain.from_iterable(emitted)) == self.told["expect_all_outputs_sorted"]
        assert dict(self.told["expect_some_state_equals"]) in states
        assert states[-1] == dict(self.told["expect_last_state"])
        interval, last = self.told["batch_interval_ms"], dict[str, int]()
        for number, words in enumerate(self.batches):
            last.update(dict.fromkeys(words, number))
            idle = sorted(word for word, seen in last.items() if (number - seen) * interval > self.told["timeout_ms"])
            assert sorted(emitted[number]) == idle, f"batch {number}"
            for word in idle:
                del last[word]
            assert states[number] == dict.fromkeys(last, 1), f"batch {number}"


def _case(told: dict[str, Any]) -> Case:
    function, output = FUNCTIONS[told["id"]]
    initial = [(word, state) for word, state in told["initial_state"]] if "initial_state" in told else None
    batches = told["input"][: told.get("batches_run")]
    return Case(told["id"], function, output, batches, initial, told.get("timeout_ms"), told)


CASES = [_case(told) for told in FIXTURE["cases"]]
STATE_RULES: list[dict[str, Any]] = FIXTURE["state_rules"]
STATE_MAP: list[dict[str, Any]] = FIXTURE["state_map"]
