"""Namespaces that are merged, against a model in plain Python."""

from __future__ import annotations

from random import Random

import pytest
from support.flink.change_bytes import changes_of, entries_of, i32, i64, materialized
from support.parameters import mostly_slow

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.changelog.logged_changes import ADD, CLEAR, MERGE, SET, SET_INTERNAL
from statestore.formats.flink.changelog.merges import replayed_with_merges
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, ListOf
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import Typed, form_of
from statestore.formats.kernels import compiled_use

KEY, WINDOW, LONG = Basic("string"), Basic("time_window"), Basic("long")
Merging = tuple[int, bytes, bytes]


def window(number: int) -> bytes:
    return i64(number * 10) + i64(number * 10 + 10)


def scope(key: bytes, number: int) -> bytes:
    return b"\0" + key + window(number)


def merging(target: int, sources: list[int]) -> bytes:
    return window(target) + i32(len(sources)) + b"".join(map(window, sources))


def reading(kind: str, value: FlinkType) -> KeyedReading:
    header = KeyedStateHeader("state", kind, WINDOW, value, {})  # type: ignore[arg-type]
    form = form_of(header, KEY, Typed({}, "state"))
    return KeyedReading(None, form, 128, 0, 127, form.schema.names, "state", {})  # type: ignore[arg-type]


@pytest.fixture(params=[False, True], ids=["plain", "compiled"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        pytest.importorskip("numba")
        __import__(compiled_use.COMPILED)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: request.param)


@pytest.mark.parametrize("seed", mostly_slow(list(range(40)), [0, 1, 2]))
def test_the_lists_of_merged_windows_follow_one_another(seed: int) -> None:
    random = Random(seed)
    keys = [b"\x02a", b"\x03bc"]
    lists = {
        scope(key, number): [i64(number), i64(number + 1)] for key in keys for number in random.sample(range(5), 2)
    }
    before = {place: b",".join(elements) for place, elements in lists.items()}
    changes: list[Merging] = []
    for step in range(random.randint(2, 40)):
        key, number = random.choice(keys), random.randrange(5)
        place = scope(key, number)
        operation = random.choice((ADD, ADD, CLEAR, SET, MERGE))
        if operation == MERGE:
            sources = random.sample([each for each in range(5) if each != number], random.randrange(3))
            changes.append((MERGE, place, merging(number, sources)))
            merged = [element for each in sources for element in lists.pop(scope(key, each), [])]
            if merged:
                lists.setdefault(place, []).extend(merged)
        elif operation == CLEAR:
            changes.append((CLEAR, place, b""))
            lists.pop(place, None)
        elif operation == SET:
            changes.append((SET, place, i32(1) + i64(step)))
            lists[place] = [i64(step)]
        else:
            changes.append((ADD, place, i64(step)))
            lists.setdefault(place, []).append(i64(step))
    changes.append((MERGE, scope(keys[0], 0), merging(0, [])))
    model = {place: b",".join(elements) for place, elements in lists.items() if elements}
    found = replayed_with_merges(
        reading("list", ListOf(LONG)), changes_of(changes), [WINDOW, KEY, ListOf(LONG)], lambda: materialized(before)
    )
    assert entries_of(found) == model


def values(changes: list[Merging], before: dict[bytes, bytes]) -> dict[bytes, bytes]:
    found = replayed_with_merges(
        reading("reducing", LONG), changes_of(changes), [WINDOW, KEY, LONG], lambda: materialized(before)
    )
    return entries_of(found)


def test_a_value_that_was_set_after_a_merge_is_known() -> None:
    one, two, other = scope(b"\x02a", 1), scope(b"\x02a", 2), scope(b"\x02b", 1)
    changes = [
        (SET_INTERNAL, one, i64(5)),
        (MERGE, two, merging(2, [1])),
        (SET_INTERNAL, two, i64(12)),
        (SET_INTERNAL, other, i64(1)),
    ]
    assert values(changes, {two: i64(6)}) == {two: i64(12), other: i64(1)}


def test_one_value_that_is_merged_alone_is_known() -> None:
    one, two = scope(b"\x02a", 1), scope(b"\x02a", 2)
    assert values([(MERGE, two, merging(2, [1, 3]))], {one: i64(5)}) == {two: i64(5)}


def test_a_value_that_only_the_job_can_merge_is_refused() -> None:
    one, two = scope(b"\x02a", 1), scope(b"\x02a", 2)
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*function of the job merged"):
        values([(SET_INTERNAL, one, i64(5)), (MERGE, two, merging(2, [1]))], {two: i64(6)})


def test_an_unknown_value_that_is_merged_further_stays_unknown() -> None:
    one, two, three = (scope(b"\x02a", number) for number in (1, 2, 3))
    changes = [(MERGE, two, merging(2, [1])), (MERGE, three, merging(3, [2]))]
    with pytest.raises(UnsupportedError, match="FLINK_UNSUPPORTED"):
        values(changes, {one: i64(1), two: i64(2)})
    assert values([*changes, (CLEAR, three, b"")], {one: i64(1), two: i64(2)}) == {}


@pytest.mark.parametrize("seed", mostly_slow(list(range(60)), [0, 1, 2]))
def test_values_that_were_merged_are_known_where_one_had_a_value_or_it_was_set(seed: int) -> None:
    random = Random(seed)
    keys = [b"\x02a", b"\x03bc"]
    model: dict[bytes, bytes | None] = {
        scope(key, number): i64(number) for key in keys for number in random.sample(range(6), 2)
    }  # None: unknown
    before = {place: value for place, value in model.items() if value is not None}
    changes: list[Merging] = []
    for step in range(random.randint(2, 30)):
        key, number = random.choice(keys), random.randrange(6)
        place = scope(key, number)
        operation = random.choice((CLEAR, SET, SET_INTERNAL, MERGE))
        if operation == MERGE:
            sources = [random.randrange(6) for _ in range(random.randrange(4))]
            changes.append((MERGE, place, merging(number, sources)))
            if not sources:
                continue
            places = dict.fromkeys([place, *(scope(key, each) for each in sources)])
            merged = [model[each] for each in places if each in model]
            for each in places:
                model.pop(each, None)
            if merged:
                model[place] = merged[0] if len(merged) == 1 else None
        elif operation == CLEAR:
            changes.append((CLEAR, place, b""))
            model.pop(place, None)
        else:
            changes.append((operation, place, i64(100 + step)))
            model[place] = i64(100 + step)
    changes += [(MERGE, scope(keys[0], 0), merging(0, [])), (SET, scope(keys[1], 9), i64(9))]
    model[scope(keys[1], 9)] = i64(9)
    if None in model.values():
        with pytest.raises(UnsupportedError, match="FLINK_UNSUPPORTED"):
            values(changes, before)
        for place in [each for each, value in model.items() if value is None]:
            changes.append((SET, place, i64(7)))
            model[place] = i64(7)
    assert values(changes, before) == model
