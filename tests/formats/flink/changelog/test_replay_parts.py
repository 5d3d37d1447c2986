"""Changes that are written to a file and replayed in parts: the rows are those of a replay at once, and of a model."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.flink.change_bytes import entries_of, i32, i64
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError
from statestore.formats.flink.changelog import held_changes, replay_parts
from statestore.formats.flink.changelog.held_changes import HeldChanges, RawChanges
from statestore.formats.flink.changelog.logged_changes import ADD, REMOVE, SET, LoggedChanges
from statestore.formats.flink.changelog.replay import Entries, replayed_timers, replayed_values
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import VOID, Basic, TimerOf
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import Typed, form_of

LONG = Basic("long")
RUNS = ("changelog", "logged-windows-1.20", "logged-generic")


@pytest.mark.parametrize("run", RUNS)
def test_states_of_real_jobs_have_the_same_rows_in_parts(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = [each["path"] for each in manifest(run)["snapshots"]][-1]
    source = source_at(fixture(run) / snapshot)
    whole = {state: sorted(map(repr, rows_of(source, state).to_pylist())) for state in source.states()}
    read: list[int] = []
    parts = HeldChanges.parts

    def counted(held: HeldChanges) -> Iterator[tuple[int, RawChanges]]:
        found = list(parts(held))
        read.append(len(found))
        yield from found

    monkeypatch.setattr(held_changes, "MOST", 1)
    monkeypatch.setattr(HeldChanges, "parts", counted)
    assert {state: sorted(map(repr, rows_of(source, state).to_pylist())) for state in source.states()} == whole
    assert max(read) > 1


def raw(changes: list[tuple[int, int, bytes]]) -> RawChanges:
    groups, operations, cells = zip(*changes, strict=True)
    found = cells_of(pa.array([bytes([group]) + cell for group, cell in zip(groups, cells, strict=True)], pa.binary()))
    return RawChanges(np.array(groups, np.int64), np.array(operations, np.uint8), found)


def replayed(
    kind: str,
    changes: list[tuple[int, int, bytes]],
    before: list[list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[dict[bytes, bytes], int]:
    """The entries that are left, and the number of parts; ``before`` has the stored keys of each handle."""

    def batches(*_: object) -> Iterator[RawChanges]:
        for first in range(0, len(changes), 3):
            yield raw(changes[first : first + 3])

    def stored(_: object, base: list[bytes], *__: object) -> Entries:
        for first in range(0, len(base), 3):
            keys = cells_of(pa.array(base[first : first + 3], pa.binary()))
            yield keys, keys

    monkeypatch.setattr(held_changes, "MOST", 1200)
    monkeypatch.setattr(replay_parts, "raw_changes", batches)
    monkeypatch.setattr(replay_parts, "stored_entries", stored)
    timer = TimerOf(LONG, VOID)
    header = KeyedStateHeader("state", kind, VOID, timer if kind == "timers" else LONG, {})  # type: ignore[arg-type]
    form = form_of(header, LONG, Typed({}, "state"))
    reading = KeyedReading(None, form, 8, 0, 7, form.schema.names, "state", {})  # type: ignore[arg-type]
    stored_keyed: Any = type("Stored", (), {"materialized": before})
    number = 0

    def entries() -> Entries:
        nonlocal number
        for part, materialized in replay_parts.replay_parts(reading, stored_keyed, None, [timer], []):  # type: ignore[arg-type]
            number += 1
            scopes = part.cells if kind != "timers" else part.cells.cut(1)
            found = LoggedChanges(part.groups, part.operations, scopes, scopes)
            if kind == "timers":
                yield from replayed_timers(found, timer, 1, (0, 7), materialized, "state")
            else:
                yield from replayed_values(found, 1, materialized)

    return entries_of(entries()), number


@pytest.mark.parametrize("seed", mostly_slow(list(range(30)), [0, 1]))
def test_timers_are_removed_whatever_their_key_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    group_of = {number: random.randrange(8) for number in range(9)}
    timers = [(key, i64(time) + i64(key) + b"\0") for key in group_of for time in (1, 2, 3)]
    before = [bytes([group_of[key]]) + timer for key, timer in random.sample(timers, 9)]
    model, changes = set(before), list[tuple[int, int, bytes]]()
    for _ in range(60):
        key, timer = random.choice(timers)
        if random.random() < 0.6:
            added = random.sample([each for each in timers if each[0] == key], random.choice((1, 1, 1, 2, 3)))
            body = i32(len(added)) + b"".join(each for _, each in added)
            changes.append((group_of[key], ADD, body))
            model |= {bytes([group_of[key]]) + each for _, each in added}
        else:
            changes.append((random.randrange(8), REMOVE, timer))
            model.discard(bytes([group_of[key]]) + timer)
    found, parts = replayed("timers", changes, [before[:4], before[4:]], monkeypatch)
    assert set(found) == model
    assert parts > 1


@pytest.mark.parametrize("seed", mostly_slow(list(range(30)), [0, 1]))
def test_values_meet_what_was_materialized_in_each_key_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    names = [bytes([random.randrange(8), number]) for number in range(40)]
    before = sorted(random.sample(names, 20))
    model = set(before)
    changes = []
    for name in random.choices(names[:30], k=60):
        changes.append((name[0], SET, name[1:]))
        model.add(name)
    found, parts = replayed("value", changes, [before[::2], before[1::2]], monkeypatch)
    assert set(found) == model
    assert parts > 1


def test_materialized_key_groups_that_go_back_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [(group, SET, bytes([number])) for number in range(9) for group in range(8)]
    with pytest.raises(CorruptError, match=r"FLINK_ROW.*of key group 1 behind those of key group"):
        replayed("value", changes, [[b"\7a", b"\7b", b"\7c", b"\1a"]], monkeypatch)
