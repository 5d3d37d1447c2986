"""Random changelogs and edits: the records, applied after those of the log as a restore does, give the edited rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.edits import (
    TOPIC,
    Logged,
    edit_of,
    made_changelog,
    planned,
    records_in,
    rows_table,
    source_at,
    state_table,
    written,
)
from support.kafka.serde_model import partition_of
from support.parameters import mostly_slow

Row = dict[str, Any]
KINDS = ("key-value", "timestamped-key-value", "timestamped-window", "time-ordered-window", "session", "versioned")
PARTITIONS, RETENTION, SIZE = 2, 500, 100
KEYS = ("", "a", "ab", "b", "kiwi", "x", "y", "z")


def key_bytes(kind: str, row: Row) -> bytes:
    front: bytes = row["key"].encode()
    if "window" in kind:
        return front + pack(">qi", row["start"], 0)
    return front + pack(">qq", row["end"], row["start"]) if kind == "session" else front


def random_row(kind: str, chance: random.Random, time: int) -> Row:
    row: Row = {"key": chance.choice(KEYS), "value": chance.randrange(-9, 9)}
    start = time // SIZE * SIZE
    if "window" in kind:
        row |= {"start": start, "end": start + SIZE}
    elif kind == "session":
        row |= {"start": start, "end": start + chance.randrange(3)}
    if kind.startswith("timestamped"):
        row["timestamp"] = time
    return row | ({"valid_from": time} if kind == "versioned" else {})


def random_log(kind: str, chance: random.Random) -> list[Logged]:
    found: list[Logged] = []
    for number in range(chance.randrange(1, 40)):
        time = 1000 + 20 * number - chance.choice((0, 0, 0, 90, 700))
        row = random_row(kind, chance, time)
        value = None if chance.random() < 0.2 else pack(">q", row["value"])
        found.append((partition_of(row["key"].encode(), PARTITIONS), time, key_bytes(kind, row), value))
    return found


def restored(kind: str, log: Sequence[Logged]) -> list[Row]:
    """The rows of a store that gets the records one by one."""
    table: dict[tuple[int, bytes], dict[int, bytes | None]] = {}
    stream: dict[int, int] = {}
    for partition, time, key, value in log:
        if kind == "versioned":
            seen = stream.get(partition, -1)
            stream[partition] = max(seen, time)
            if time >= seen - RETENTION:
                table.setdefault((partition, key), {})[time] = value
        else:
            table[partition, key] = {time: value}
    rows = []
    for (_, key), values in table.items():
        time = max(values)
        value = values[time]
        if value is not None:
            rows.append(decoded(kind, key, value, time))
    return rows


def decoded(kind: str, key: bytes, value: bytes, time: int) -> Row:
    [number] = unpack(">q", value)
    row: Row = {"key": key.decode() if "window" not in kind and kind != "session" else "", "value": number}
    if "window" in kind:
        start, _ = unpack(">qi", key[-12:])
        row |= {"key": key[:-12].decode(), "start": start, "end": start + SIZE}
    elif kind == "session":
        end, start = unpack(">qq", key[-16:])
        row |= {"key": key[:-16].decode(), "start": start, "end": end}
    if kind.startswith("timestamped"):
        row["timestamp"] = time
    return row | ({"valid_from": time} if kind == "versioned" else {})


def unit(row: Row) -> tuple[Any, ...]:
    return row["key"], row.get("start"), row.get("end")


def random_edit(
    kind: str, chance: random.Random, log: Sequence[Logged], rows: list[Row]
) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows that go, rows that come, and those that stay as they are."""
    stream: dict[int, int] = {}
    last: dict[str, int] = {}
    for partition, time, key, _ in log:
        stream[partition] = max(stream.get(partition, -1), time)
        if kind == "versioned":
            last[key.decode()] = max(last.get(key.decode(), -1), time)
    removed, added, kept = [], [], []
    for row in rows:
        oldest = stream[partition_of(row["key"].encode(), PARTITIONS)] - RETENTION
        what = chance.choice(("delete", "change", "keep"))
        if what == "keep" or (what == "change" and row.get("valid_from", oldest) < oldest):
            kept.append(row)
            continue
        removed.append(row)
        if what == "change":
            changed = {**row, "value": row["value"] + 100}
            for name in ("timestamp", "valid_from"):
                if name in row:
                    changed[name] += chance.choice((0, 0, 7))
            added.append(changed)
    taken = {unit(row) for row in rows} if kind != "versioned" else {(row["key"], None, None) for row in rows}
    for _ in range(chance.randrange(4)):
        row = random_row(kind, chance, 1000 + 20 * chance.randrange(40))
        place = partition_of(row["key"].encode(), PARTITIONS)
        least = max(stream.get(place, -1) - RETENTION, last.get(row["key"], -1))
        if unit(row) not in taken and row.get("valid_from", least) >= least:
            taken.add(unit(row))
            added.append(row)
    return removed, added, kept


def shown(rows: Sequence[Any]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", mostly_slow(range(60), 6))
def test_a_restore_gives_the_edited_rows(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{kind} {seed}")
    log = random_log(kind, chance)
    rows = restored(kind, log)
    options = {"kind": kind, "keyserde": "string", "valueserde": "long", "windowsize": str(SIZE)}
    options |= {"retention": str(RETENTION)} if kind == "versioned" else {}
    source = source_at(made_changelog(tmp_path / "log", log), **options)
    assert shown(state_table(source, TOPIC).to_pylist()) == shown(rows_table(source, TOPIC, rows).to_pylist())

    removed, added, kept = random_edit(kind, chance, log, rows)
    tables = (rows_table(source, TOPIC, each) for each in (removed, added))
    plan = planned(source, edit_of(source, TOPIC, *tables), settings={"partitions": str(PARTITIONS)})
    written(plan, tmp_path / "target")
    target = plan.opened(str(tmp_path / "target"))
    after = [*kept, *added]
    assert shown(state_table(target, TOPIC).to_pylist()) == shown(rows_table(source, TOPIC, after).to_pylist())
    if not plan.parts():
        assert removed == added == []
        return
    more = [(r["partition"], r["timestamp"], r["key"], r["value"]) for r in records_in(tmp_path / "target", TOPIC)]
    assert shown(restored(kind, [*log, *more])) == shown(after)
    assert all(at == partition_of(user_key(kind, key), PARTITIONS) for at, _, key, _ in more)


def user_key(kind: str, key: bytes) -> bytes:
    return key[:-12] if "window" in kind else key[:-16] if kind == "session" else key


def accepted(log: Sequence[Logged]) -> dict[bytes, dict[int, bytes | None]]:
    """What a versioned store holds of each key by time, None for a tombstone: it refuses puts that are too old."""
    stream: dict[int, int] = {}
    found: dict[bytes, dict[int, bytes | None]] = {}
    for partition, time, key, value in log:
        stream[partition] = max(stream.get(partition, -1), time)
        if time >= stream[partition] - RETENTION:
            found.setdefault(key, {})[time] = value
    return found


def as_of(versions: dict[int, bytes | None], time: int) -> bytes | None:
    return max(((at, value) for at, value in versions.items() if at <= time), default=(0, None), key=lambda x: x[0])[1]


@pytest.mark.parametrize("seed", mostly_slow(range(60), 20))
def test_the_history_of_deleted_keys_goes_with_them(seed: int, tmp_path: Path) -> None:
    """At any moment that the store answers about, a deleted key is absent, and the others are as they were."""
    chance = random.Random(f"history {seed}")
    log = random_log("versioned", chance)
    options = {"kind": "versioned", "keyserde": "string", "valueserde": "long", "retention": str(RETENTION)}
    source = source_at(made_changelog(tmp_path / "log", log), **options)
    rows = state_table(source, TOPIC)
    gone = rows.filter(pa.array([chance.random() < 0.6 for _ in range(len(rows))], pa.bool_()))
    plan = planned(source, edit_of(source, TOPIC, gone, gone.slice(0, 0)), settings={"erase_history": "true"})
    written(plan, tmp_path / "target")
    if not plan.parts():
        return
    assert any("Delete the state directories" in note for note in plan.notes)
    records = records_in(tmp_path / "target", TOPIC)
    more = [(each["partition"], each["timestamp"], each["key"], each["value"]) for each in records]
    before, after = accepted(log), accepted([*log, *more])
    stream = {at: max(time for partition, time, *_ in log if partition == at) for at, *_ in log}
    keys = {key.encode() for key in gone.column("key").to_pylist()}
    for key, versions in after.items():
        oldest = max(stream[partition_of(key, PARTITIONS)] - RETENTION, 0)
        for time in [oldest, *(each for each in versions if each >= oldest)]:
            assert as_of(versions, time) == (None if key in keys else as_of(before[key], time)), (key, time)
    # A compaction of the topic leaves the last record of a key, which has to be its newest one.
    last = {key: time for _, time, key, _ in more}
    assert all(time == max(each[1] for each in more if each[2] == key) for key, time in last.items())
