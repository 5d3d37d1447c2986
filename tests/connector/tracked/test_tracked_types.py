"""Types of keys, values and states of tracked batches, and initial states."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import refused
from support.keyed.tracked_cases import count
from support.keyed.tracked_scripts import LOOK, SEEN, scripted
from support.keyed.tracked_tasks import Tracking

from statestore.connector.tracked.spec import State
from statestore.tracked import StateSpec

pytest_plugins = ["support.keyed.tracked_fixtures"]
pytestmark = pytest.mark.usefixtures("workers")


# Types

AT = datetime(2026, 11, 21, 12, 30, 0, 5, UTC)


DAY = AT.date()


TYPES: list[tuple[str, list[tuple[Any, Any]]]] = [
    (
        "struct<n:bigint,day:date>",
        [((1, DAY), {"n": 1, "day": DAY}), ({"day": None, "n": 2}, {"n": 2, "day": None})],
    ),
    ("array<string>", [(("a", None), ["a", None]), ([], [])]),
    ("map<string,bigint>", [({"a": 1, "b": None}, {"a": 1, "b": None}), ({}, {})]),
    ("array<struct<k:string,m:map<string,bigint>>>", [([("a", {"x": 1})], [{"k": "a", "m": {"x": 1}}])]),
    ("timestamp", [(AT.astimezone(timezone(timedelta(hours=5))), AT)]),
    ("date", [(DAY, DAY)]),
    ("decimal(9,2)", [(Decimal("1.5"), Decimal("1.50")), (3, Decimal("3.00")), (Decimal("-0"), Decimal("0.00"))]),
    ("binary", [(b"\0\xff", b"\0\xff"), (bytearray(b"ab"), b"ab"), (b"", b"")]),
    ("float", [(0.1, 0.10000000149011612)]),
    ("double", [(1, 1.0)]),
    ("boolean", [(np.bool_(False), False)]),
    ("string", [("é\0", "é\0"), ("", "")]),
    ("smallint", [(np.int64(-32768), -32768)]),
]


@pytest.mark.quick("array<struct*", "struct*", "timestamp", "decimal*", "float", "boolean")
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[kind for kind, _ in TYPES])
def test_a_state_is_the_same_in_the_same_batch_and_the_next(
    tmp_path: Path, kind: str, values: list[tuple[Any, Any]]
) -> None:
    """A state is canonical in whatever form it was written, also while it times out, and a change in place is no
    update."""
    seen: list[Any] = []

    def writes(batch_time: datetime, key: str, place: int | None, state: State) -> None:
        found = state.get_option()
        seen.append((copy.deepcopy(found), str(type(found)), str(found)))
        if isinstance(found, list):
            found.append("changed")
        if isinstance(found, dict):
            found["changed"] = 1
        if place is not None and place >= 0:
            state.update(values[place][0])

    tracking = Tracking(tmp_path, StateSpec.function(writes).timeout(1000), state=kind)
    for place, (_, expected) in enumerate(values):
        seen.clear()
        at = place * 10 + 1
        tracking.batch([("a", place), ("a", LOOK), ("a", LOOK)], at)
        tracking.batch([("a", LOOK)], at + 1)
        tracking.batch([], at + 5)
        assert [found for found, *_ in seen] == [None, *[expected] * 4]
        assert len({kind for _, kind, _ in seen[1:]}) == 1
        assert len({text for *_, text in seen[1:]}) == 1
        assert tracking.states() == {}


def test_values_are_as_users_write_them(tmp_path: Path) -> None:
    """One column bare, several a dict, none None; maps are dicts, at any depth."""
    seen: list[Any] = []

    def look(value: Any, state: State) -> None:
        seen.append(value)

    kinds = {"m": "map<string,bigint>", "at": "timestamp", "s": "array<struct<m:map<string,bigint>>>"}
    cells = ({"a": 1}, AT, [{"m": {"x": None}}, None])
    rows = [("k", *cells), ("k", None, None, None)]
    for number, values in enumerate([list(kinds), *([name] for name in kinds), []]):
        tracking = Tracking(tmp_path / str(number), StateSpec.function(look), values={n: kinds[n] for n in values})
        places = [0, *(1 + list(kinds).index(name) for name in values)]
        seen.clear()
        tracking.batch([tuple(row[place] for place in places) for row in rows])
        if not values:
            assert seen == [None, None]
        elif len(values) == 1:
            assert seen == [rows[0][places[1]], None]
        else:
            assert seen == [dict(zip(kinds, cells, strict=True)), dict.fromkeys(kinds)]


def test_a_wider_type_takes_the_states_along(tmp_path: Path) -> None:
    """States are widened from one batch to the next, also in kept backends; a lossy change is refused."""
    tracking = Tracking(tmp_path, StateSpec.function(count).timeout(5000), state="int")
    tracking.batch([("a", 1), ("b", 2)], keeps=True)
    tracking.state = pa.int64()
    assert tracking.batch([("a", 1 << 40)], keeps=True) == [1 + (1 << 40)]
    tracking.state = pa.string()
    with refused("INCOMPATIBLE_STATE", "'state'"):
        tracking.batch([("a", 1)], keeps=True)
    assert tracking.states() == {"a": 1 + (1 << 40), "b": 2}


def test_keys_of_several_columns(tmp_path: Path) -> None:
    kinds = {"word": "string", "day": "date", "n": "int"}
    seen: list[Any] = []

    def keyed(batch_time: datetime, key: Any, value: int | None, state: State) -> None:
        seen.append(key)
        if value is not None:
            count(value, state)

    tracking = Tracking(tmp_path, StateSpec.function(keyed).timeout(1000), key=kinds, values={"v": "bigint"})
    first, second = ("a", DAY, 1), ("a", DAY, -1)
    tracking.batch([(*first, 1), (*second, 2), (*first, 3)], 1, tasks=3)
    assert tracking.states() == {first: 4, second: 2}
    tracking.batch([(*second, 5)], 2, tasks=2)
    tracking.batch([(*second, 5)], 3, tasks=2)
    assert tracking.states() == {second: 12}
    assert [tuple(key.values()) for key in seen[-2:]] == [second, first]
    assert set(seen[0]) == set(kinds)


def test_keys_without_a_value(tmp_path: Path) -> None:
    def occurrences(value: None, state: State) -> int:
        assert value is None
        state.update((state.get_option() or 0) + 1)
        return int(state.get())

    tracking = Tracking(tmp_path, StateSpec.function(occurrences), values={})
    assert tracking.batch([("a",), ("b",), ("a",)]) == [1, 1, 2]
    assert tracking.states() == {"a": 2, "b": 1}


def test_initial_states_that_are_refused(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(count))
    with refused("WRONG_INITIAL_STATE", "'b'", "twice"):
        tracking.put_initial([("a", 1), ("b", 2), ("b", 2)])
    with refused("WRONG_INITIAL_STATE", "1 initial states are null"):
        tracking.put_initial([("a", None)])
    with refused("NULL_KEY"):
        tracking.put_initial([(None, 1)])
    for wrong in ({}, {"x": "bigint", "y": "bigint"}, {"x": "string"}):
        with refused("WRONG_INITIAL_STATE", "int64"):
            tracking.put_initial([("a", *([None] * len(wrong)))], kinds=wrong)
    assert tracking.store.retained() == []
    assert tracking.store.vacuum(0) == []


def test_initial_states_time_out_from_when_they_were_put(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(scripted).timeout(2000), output=SEEN)
    tracking.put_initial([("a", 1), ("b", 2)], at=10, tasks=3)
    assert tracking.batch([("b", LOOK)], 12) == [("b", LOOK, 2, False)]
    assert tracking.batch([], 13) == [("a", None, 1, True)]
    assert tracking.states() == {"b": 2}


def test_initial_states_of_several_columns(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, StateSpec.function(count), state={"n": "bigint", "m": "map<string,bigint>"})
    tracking.put_initial([("a", 1, {"x": 1}), ("b", None, None)], tasks=2)
    assert tracking.states() == {"a": {"n": 1, "m": [("x", 1)]}, "b": {"n": None, "m": None}}


def test_a_timeout_that_comes_and_goes(tmp_path: Path) -> None:
    """Keys have times from their next record on; records without a timeout between count too."""
    timed, untimed = StateSpec.function(scripted).timeout(2000), StateSpec.function(scripted)
    tracking = Tracking(tmp_path, untimed, output=SEEN)
    tracking.batch([("a", 1), ("b", 1), ("c", 1)], 1)
    tracking.spec = timed
    assert tracking.batch([("a", LOOK), ("b", LOOK)], 10) == [("a", LOOK, 1, False), ("b", LOOK, 1, False)]
    tracking.spec = untimed
    tracking.batch([("b", 5), ("d", 1)], 20, tasks=3)
    tracking.batch([], 30)
    tracking.spec = timed
    assert tracking.batch([], 21) == [("a", None, 1, True)]
    assert sorted(tracking.batch([], 40)) == [("b", None, 6, True), ("d", None, 1, True)]
    assert tracking.states() == {"c": 1}
