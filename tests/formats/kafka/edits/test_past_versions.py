"""Edits of past versions of a versioned store: what it answers as of each moment, by a plain model of its puts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.kafka.edits import TOPIC, Logged, made_changelog, records_in
from support.kafka.running.application import Part, Written
from support.kafka.running.broker import Record
from support.kafka.running.store_models import expected_as_of
from support.kafka.unpacked import stores_file, unpack

import statestore

RETENTION = 5_000
PAST = f'"{TOPIC}.past"'
PART = Part("stock", "versioned", "string", "string", {"history_retention_ms": RETENTION})
GIVEN: dict[str, Any] = {
    "kind": "versioned", "key_serde": "string", "value_serde": "string", "retention": RETENTION
}  # fmt: skip
WITHOUT_RETENTION = {name: value for name, value in GIVEN.items() if name != "retention"}
LOG: list[Logged] = [
    (0, 1_000, b"old", b"o1"),
    (0, 4_000, b"old", b"o2"),
    (0, 7_000, b"a", b"a1"),
    (0, 8_000, b"a", b"a2"),
    (0, 9_000, b"a", b"a3"),
    (0, 6_000, b"a", b"a0"),  # came late
    (1, 7_500, b"b", b"b1"),
    (1, 8_500, b"b", b"b2"),
    (1, 9_500, b"b", None),
    (0, 10_000, b"c", b"c1"),
]
MOMENTS = range(500, 11_000, 500)


def time(milliseconds: int) -> str:
    return f"TIMESTAMPTZ '{datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()}'"


def answers(log: Sequence[Logged]) -> dict[tuple[str, int], Any]:
    """Return the answers of the store once it has applied a log, by key and moment."""
    written = [
        Written(at, offset, Record(key.decode(), None if value is None else value.decode(), moment))
        for offset, (at, moment, key, value) in enumerate(log)
    ]
    keys = {each.record.key for each in written}
    return {(key, at): expected_as_of(PART, written, key, at) for key in sorted(keys) for at in MOMENTS}


def after(target: Path) -> list[Logged]:
    """The log with the records of a target behind it."""
    found = records_in(target, TOPIC)
    return [*LOG, *((row["partition"], row["timestamp"], row["key"], row["value"]) for row in found)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made_changelog(tmp_path / "changelogs", LOG)


def test_one_version_is_repaired_and_another_one_goes(source: Path, tmp_path: Path) -> None:
    """All other answers stay, and the newest record of each key is the last one, as a compaction wants it."""
    before = answers(LOG)
    with statestore.edit(source, tmp_path / "target", **GIVEN) as edit:
        edit.sql(f"UPDATE {PAST} SET value = 'right' WHERE key = 'a' AND valid_from = {time(8_000)}")
        edit.sql(f"DELETE FROM {PAST} WHERE key = 'b' AND valid_from = {time(7_500)}")
    log = after(tmp_path / "target")
    found = answers(log)
    repaired = {("a", at): {"value": "right", "valid_from": 8_000} for at in (8_000, 8_500)}
    gone = {("b", at): None for at in (7_500, 8_000)}
    assert all(before[key] is not None for key in (*repaired, *gone))
    assert found == {**before, **repaired, **gone}
    for key in (b"a", b"b"):
        newest = max((each for each in LOG if each[2] == key), key=lambda each: each[1])
        assert [each for each in log if each[2] == key][-1] == newest
    assert edit.receipt is not None
    told = " ".join(edit.receipt.notes)
    assert "That is not as if the version had never been" in told and "Delete the state directories" in told


def test_the_past_is_read_with_its_times(source: Path) -> None:
    rows = statestore.inspect(source, **GIVEN)[f"{TOPIC}.past"].scan().to_arrow().to_pylist()
    found = sorted(
        (row["key"], row["value"], row["valid_from"].timestamp(), row["valid_to"].timestamp()) for row in rows
    )
    assert found == [
        ("a", "a0", 6.0, 7.0), ("a", "a1", 7.0, 8.0), ("a", "a2", 8.0, 9.0), ("b", "b1", 7.5, 8.5),
        ("b", "b2", 8.5, 9.5), ("old", "o1", 1.0, 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (f"UPDATE {PAST} SET value = 'x' WHERE key = 'old'", "ignores records from before 5000 ms"),
        (f"DELETE FROM {PAST} WHERE key = 'old'", "ignores records from before 5000 ms"),
        (f"UPDATE {PAST} SET valid_from = {time(8_100)} WHERE key = 'a' AND value = 'a2'", "the value alone to change"),
        (f"UPDATE {PAST} SET valid_to = {time(8_100)} WHERE key = 'a' AND value = 'a2'", "the value alone to change"),
        (f"INSERT INTO {PAST} SELECT 'n', value, valid_from, expired, valid_to FROM {PAST} LIMIT 1", "the value alone"),
        (f"""DELETE FROM {PAST} WHERE value = 'a2'; DELETE FROM "{TOPIC}" WHERE key = 'a'""", "make two edits"),
    ],
)
def test_what_no_record_can_make_so_is_refused(source: Path, tmp_path: Path, statement: str, problem: str) -> None:
    edit = statestore.edit(source, tmp_path / "target", **GIVEN)
    edit.sql(statement)
    with pytest.raises(statestore.InvalidInputError, match=rf"\[EDIT_REFUSED\].*{problem}"):
        edit.apply()
    assert not (tmp_path / "target").exists()


def test_the_retention_has_to_be_known(source: Path, tmp_path: Path) -> None:
    edit = statestore.edit(source, tmp_path / "target", **WITHOUT_RETENTION)
    edit.sql(f"DELETE FROM {PAST} WHERE value = 'a2'")
    with pytest.raises(statestore.UnsupportedError, match="history retention, which nothing here names"):
        edit.apply()


def test_other_kinds_have_no_past_of_versions(source: Path) -> None:
    found = statestore.inspect(source, **{**WITHOUT_RETENTION, "kind": "key-value"})
    with pytest.raises(statestore.NotFoundError, match="TABLE_NOT_FOUND"):
        found[f"{TOPIC}.past"].scan()


def test_random_edits_leave_all_other_answers(tmp_path: Path) -> None:
    chance = random.Random(7)
    for case in range(8):
        log: list[Logged] = [
            (
                0,
                chance.randrange(6_000, 11_000, 500),
                f"k{chance.randrange(3)}".encode(),
                chance.choice([b"v", b"w", None]),
            )
            for _ in range(25)
        ]
        source = made_changelog(tmp_path / f"changelogs-{case}", log)
        before, target = answers(log), tmp_path / f"target-{case}"
        begun = statestore.edit(source, target, **GIVEN)
        moment = chance.randrange(7_000, 10_000, 500)
        rows = begun.table(f"{TOPIC}.past")
        gone = rows.delete(filter=("valid_from", "=", datetime.fromtimestamp(moment / 1000, UTC)))
        begun.sql(f"UPDATE {PAST} SET value = 'new' WHERE valid_from = {time(moment + 500)}")
        begun.apply()
        changed = answers([*log, *after(target)[len(LOG) :]]) if (target / f"{TOPIC}.jsonl").exists() else before
        ended = {key for key in before if _is_past(before, key)}
        wanted = {
            key: None
            if key in ended and row and row["valid_from"] == moment
            else {**row, "value": "new"}
            if key in ended and row and row["valid_from"] == moment + 500
            else row
            for key, row in before.items()
        }
        assert changed == wanted and gone >= 0


def _is_past(answered: dict[tuple[str, int], Any], key: tuple[str, int]) -> bool:
    """Whether an answer is of a version that another one, or a delete, has ended."""
    return bool(answered[key] != answered[key[0], MOMENTS[-1]])


def test_the_past_in_a_directory_of_an_application(tmp_path: Path) -> None:
    folder = unpack("orders", tmp_path) / "state" / "orders"
    options: dict[str, Any] = {"stores_file": str(stores_file("orders", tmp_path / "stores.toml", everything=True))}
    found = statestore.inspect(folder, **options)
    past = [row for row in found["menu.past"].scan().to_arrow().to_pylist() if not row["expired"]]
    newest = {row["key"]: row for row in found["menu"].scan().to_arrow().to_pylist()}
    row = next(row for row in past if row["key"] in newest)
    with statestore.edit(folder, tmp_path / "target", **options) as edit:
        edit.sql(
            f"""UPDATE "menu.past" SET value = '"right"' WHERE key = '{row["key"]}'
                AND valid_from = TIMESTAMPTZ '{row["valid_from"].isoformat()}'"""
        )
    [topic] = [path.stem for path in (tmp_path / "target").glob("*.jsonl")]
    records = [(each["key"], each["value"], each["timestamp"]) for each in records_in(tmp_path / "target", topic)]
    last = newest[row["key"]]
    assert records == [
        (row["key"].encode(), b'"right"', round(row["valid_from"].timestamp() * 1000)),
        (row["key"].encode(), last["value"].encode(), round(last["valid_from"].timestamp() * 1000)),
    ]
    assert edit.receipt is not None and str(edit.receipt.states[0]) == "0 removed, 0 added, 1 changed"
