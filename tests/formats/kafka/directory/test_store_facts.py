"""Facts about stores: families, offsets, unclean copies, damage."""

from __future__ import annotations

import errno
import json
import os
from functools import cache
from pathlib import Path

import pytest
from support.kafka.applications import (
    APPLICATIONS,
    RUNNING,
    copied,
    fingerprint,
    opened,
    raw,
    running,
    state,
    unpacked,
)
from support.parameters import mostly_slow

from statestore.formats.kafka.directory.applications import Application
from statestore.formats.kafka.directory.store_facts import (
    NO_TABLE_FILE,
    OPEN,
    REOPENED,
    UNLISTED,
    StoreFacts,
    application_facts,
)


@cache
def whole(name: str) -> dict[tuple[str, str], StoreFacts]:
    return facts(state(name))


def facts(application: Application) -> dict[tuple[str, str], StoreFacts]:
    return {(found.partition.store, found.partition.task): found for found in application_facts(application)}


def last_offsets(name: str) -> dict[tuple[str, int], int]:
    """The offset of the last record in each changelog partition."""
    found: dict[tuple[str, int], int] = {}
    for path in (unpacked(name) / "changelog").iterdir():
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            key = path.stem, record["partition"]
            found[key] = max(found.get(key, -1), record["offset"])
    return found


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["bookings", "ledger"]))
def test_families_with_rows_are_those_that_rocksdb_for_java_found(name: str) -> None:
    checked = 0
    for found in whole(name).values():
        for database in found.databases:
            with_rows = {family.name for family in database.families if family.has_rows}
            assert with_rows == {family for path, family in raw(name) if path == database.database.path}
            assert database.table_files > 0
            assert database.newest_table is not None
            checked += 1
    assert checked == len({path for path, _ in raw(name)})


@pytest.mark.parametrize("name", ["orders", "ledger"])
def test_offsets_of_a_clean_close_are_those_of_the_last_records(name: str) -> None:
    last, checked = last_offsets(name), 0
    for (store, _), found in whole(name).items():
        if not found.databases or found.partition.is_global or found.offsets.changelog_from != "family offsets":
            continue
        assert found.offsets.closed_cleanly is True
        ((key, offset),) = found.offsets.changelog.items()
        assert key[0] == f"{name}-{store}-changelog"
        assert key[1] == found.partition.partition
        assert offset == last[key], store
        checked += 1
    stored = {tuple(path.split("/")[:3]) for path, family in raw(name) if family == "offsets" and "global" not in path}
    segmented = {(task, store) for task, store, _ in stored if store != "rocksdb"}
    assert checked == len(segmented) + sum(folder == "rocksdb" for _, folder, _ in stored)


def test_offsets_before_4_3_come_from_the_files_of_the_task() -> None:
    last, checked = last_offsets("bookings"), 0
    for (store, _), found in whole("bookings").items():
        assert found.offsets.closed_cleanly is None
        assert found.offsets.changelog_from == ".checkpoint"
        if found.partition.is_global:
            assert found.offsets.is_next
            assert found.offsets.changelog == {("bookings.countries-in", 0): 130}
            continue
        assert found.offsets.changelog == {(f"bookings-{store}-changelog", 0): last[f"bookings-{store}-changelog", 0]}
        assert found.offsets.position_from == f"{store}.position"
        assert found.offsets.stale == ()
        checked += 1
    assert checked == 19


def test_a_buffer_of_4_3_has_a_checkpoint_of_its_own_beside_its_family() -> None:
    for task in ("9_0", "9_1"):
        found = whole("orders")["priced-orders-Buffer", task]
        assert found.offsets.stale in ((), (".checkpoint_priced-orders-Buffer",))
        assert found.offsets.changelog


def test_position_files_beside_4_3_are_stale() -> None:
    for (store, _), found in whole("ledger").items():
        assert found.offsets.stale == (f"{store}.position",)
        assert found.offsets.position == {f"ledger.{store}-in": {0: 89}}
        assert any(f"{store}.position" in problem for problem in found.problems)


@pytest.mark.parametrize("name", mostly_slow(RUNNING, ["bookings"]))
def test_a_running_application_has_unknown_rows_and_never_none(name: str) -> None:
    without = 0
    for found in application_facts(running(name)):
        for database in found.databases:
            assert database.families, database
            if not database.table_files:
                assert NO_TABLE_FILE in database.problems
                assert database.is_unknown
                assert found.estimated_rows is None
                without += 1
    assert without > 20


def test_unknown_offsets_of_a_running_application_are_none() -> None:
    found = facts(running("bookings"))["rooms", "0_0"]
    assert found.offsets.changelog == {("bookings-rooms-changelog", 0): None}


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_nothing_in_the_tree_changes(name: str) -> None:
    root = unpacked(name)
    before = fingerprint(root)
    facts(state(name))
    if name in RUNNING:
        application_facts(running(name))
    assert fingerprint(root) == before


def test_an_open_store_is_reported(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    app = copied("ledger", tmp_path, "2_0")
    path = app / "2_0" / "rocksdb" / "owners"
    names = ["keyValueWithTimestamp", "offsets"]
    database = Rdict(
        str(path), options=Options(raw_mode=True), column_families={name: Options(raw_mode=True) for name in names}
    )
    family = database.get_column_family("offsets")
    family[b"status"] = (1).to_bytes(8, "big")
    family.close()
    database.flush()
    database.close()
    found = facts(opened(app))["owners", "2_0"]
    assert found.offsets.closed_cleanly is False
    assert any(OPEN in problem for problem in found.problems)


def test_a_store_that_was_opened_again_is_reported(tmp_path: Path) -> None:
    """The status on disk is that of the close before, until something is flushed."""
    from rocksdict import Options, Rdict

    app = copied("ledger", tmp_path, "2_0")
    path = app / "2_0" / "rocksdb" / "owners"
    names = ["keyValueWithTimestamp", "offsets"]
    Rdict(
        str(path), options=Options(raw_mode=True), column_families={name: Options(raw_mode=True) for name in names}
    ).close()
    found = facts(opened(app))["owners", "2_0"]
    assert found.offsets.closed_cleanly is False
    assert any(REOPENED in problem for problem in found.problems)
    assert not [problem for each in whole("ledger").values() for problem in each.problems if REOPENED in problem]


# Damage: one broken store hides no other


def broken(app: Path, how: str) -> str:
    store = app / "2_1" / "rocksdb" / "prices"
    tables = sorted(store.glob("*.sst"))
    if how == "truncated":
        for table in tables:
            table.write_bytes(table.read_bytes()[:-100])
    elif how == "flipped":
        for table in tables:
            data = bytearray(table.read_bytes())
            for at in range(0, 60):
                data[at] ^= 0xFF
            table.write_bytes(data)
    elif how == "no MANIFEST":
        next(store.glob("MANIFEST*")).unlink()
    elif how == "no CURRENT":
        (store / "CURRENT").unlink()
    elif how == "CURRENT elsewhere":
        (store / "CURRENT").write_text("../../../secret\n")
    elif how == "no table":
        tables[0].unlink()
    elif how == "link":
        tables[0].rename(app.parent / "moved.sst")
        tables[0].symlink_to(app.parent / "moved.sst")
    elif how == "pipe":
        tables[0].unlink()
        os.mkfifo(tables[0])
    elif how == "linked CURRENT":
        (store / "CURRENT").rename(app.parent / "CURRENT")
        (store / "CURRENT").symlink_to(app.parent / "CURRENT")
    elif how == "empty":
        for path in store.iterdir():
            path.unlink()
    return str(store)


@pytest.mark.parametrize("size", [97, 84], ids=["inside of a record", "behind a record"])
def test_a_manifest_that_was_cut_off_is_a_notice(tmp_path: Path, size: int) -> None:
    """The last record of this MANIFEST, at byte 84, names the only table file; RocksDB goes on without it."""
    app = copied("bookings", tmp_path, "8_0")
    manifest = app / "8_0" / "stays-by-hand" / "stays-by-hand.1700000025000" / "MANIFEST-000005"
    assert not any(reason == UNLISTED for found in facts(opened(app)).values() for _, reason in found.notices)
    manifest.write_bytes(manifest.read_bytes()[:size])
    found = facts(opened(app))["stays-by-hand", "8_0"]
    assert [place for place, reason in found.notices if reason == UNLISTED] == [
        "8_0/stays-by-hand/stays-by-hand.1700000025000"
    ]


@pytest.mark.parametrize(
    "how",
    [
        "truncated", "flipped", "no MANIFEST", "no CURRENT", "CURRENT elsewhere", "no table", "link", "pipe",
        "linked CURRENT", "empty",
    ],
)  # fmt: skip
def test_a_broken_store_is_a_report_and_hides_no_other(tmp_path: Path, how: str) -> None:
    app = copied("orders", tmp_path, "0_0", "2_0", "2_1", "6_0")
    path = broken(app, how)
    found = facts(opened(app))
    (database,) = found["prices", "2_1"].databases
    assert database.is_unknown
    assert any(path in problem for problem in found["prices", "2_1"].problems), database.problems
    before = whole("orders")
    others = [("final-minutes", "6_0"), ("prices", "2_0"), ("stock", "0_0")]
    assert sorted(found) == sorted([*others, ("prices", "2_1")])
    assert {key: found[key].problems for key in others} == {key: before[key].problems for key in others}
    assert all(found[key].families == before[key].families for key in others)


@pytest.mark.parametrize(
    "text",
    [
        "0\n2000000000\nt 0 1\n",
        "0\n1\n" + "t " * 100_000,
        "1\n0\n",
        "\xff",
        "0\n1\nt 0 99999999999999999999\n",
        "0\n-1\n",
    ],
)
def test_hostile_checkpoints_are_reports(tmp_path: Path, text: str) -> None:
    app = copied("bookings", tmp_path, "0_0", "1_0")
    (app / "0_0" / ".checkpoint").write_text(text, encoding="latin-1")
    found = facts(opened(app))
    assert found["rooms", "0_0"].offsets.changelog == {}
    assert any(".checkpoint" in problem for problem in found["rooms", "0_0"].problems)
    assert found["rates", "1_0"].problems == ()


def test_a_huge_checkpoint_is_not_read(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0")
    with (app / "0_0" / ".checkpoint").open("wb") as file:
        file.truncate(64 << 20)
    found = facts(opened(app))["rooms", "0_0"]
    assert any("expected at most" in problem for problem in found.problems)


def test_a_checkpoint_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0", "1_0")
    (app / "0_0" / ".checkpoint").rename(tmp_path / "elsewhere")
    (app / "0_0" / ".checkpoint").symlink_to(tmp_path / "elsewhere")
    found = facts(opened(app))["rooms", "0_0"]
    assert found.offsets.changelog == {}
    assert any("symbolic link" in problem for problem in found.problems)


def test_a_missing_checkpoint_next_to_rows_is_reported(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0", "1_0")
    (app / "0_0" / ".checkpoint").unlink()
    found = facts(opened(app))["rooms", "0_0"]
    assert found.offsets.changelog == {}
    assert any("exactly-once" in problem for problem in found.problems)


def test_a_renamed_copy_still_has_the_offsets_of_its_stores(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0", "10_0").rename(tmp_path / "backup of today")
    found = facts(opened(app))
    assert found["rooms", "0_0"].offsets.changelog == {("bookings-rooms-changelog", 0): 129}
    assert found["upsell-this-join-store", "10_0"].offsets.changelog == {
        ("bookings-upsell-this-join-store-changelog", 0): 129
    }


# Generations


def test_a_generation_changes_with_the_files_and_only_with_them(tmp_path: Path) -> None:
    app = copied("orders", tmp_path, "2_0", "2_1", "7_1")
    before = facts(opened(app))
    assert {key: found.generation for key, found in facts(opened(app)).items()} == {
        key: found.generation for key, found in before.items()
    }
    assert before["prices", "2_1"].generation != before["prices", "2_0"].generation
    table = next((app / "2_1" / "rocksdb" / "prices").glob("*.sst"))
    os.utime(table, ns=(1, 1))
    after = facts(opened(app))
    changed = {key for key in before if before[key].generation != after[key].generation}
    assert changed == {("prices", "2_1")}


@pytest.mark.parametrize("below", ["0_0/rocksdb/rooms", "0_0/rocksdb", "0_0", "3_0/checkins"])
def test_a_folder_that_cannot_be_listed_is_a_report(
    tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = copied("bookings", tmp_path, "0_0", "1_0", "3_0")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path) == str(app / below):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    application = opened(app)
    found = facts(application)
    assert found["rates", "1_0"].problems == ()
    problems = [*application.problems, *(problem for each in found.values() for problem in each.problems)]
    assert any(str(app / below) in problem and "Permission denied" in problem for problem in problems)
