"""Rows that a batch wrote, with a plain model: the rows before it and what it wrote are the rows after it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import ARCHIVE, QUICK, plain, unpacked
from support.parameters import mostly_slow
from support.rows_read import BytesRead

from statestore.formats.bytes import hash_passes
from statestore.formats.bytes.hash_passes import HashPass
from statestore.formats.engine import Source, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.providers import bulk_replay, replay
from statestore.formats.spark.read_parts import LookupPart
from statestore.formats.spark.source import open_source
from statestore.formats.values.filters import Filter
from statestore.formats.written import APPEND, PUT, REMOVE, WRITE, Written

ARCHIVES = sorted(ARCHIVE.parent.glob("*.tar.xz"))

Group = tuple[Any, ...]
Rows = dict[Group, list[Group]]


def checkpoints() -> dict[str, Path]:
    """The checkpoints of all archives that have several batches."""
    folders = [commits.parent for archive in ARCHIVES for commits in unpacked(archive).rglob("commits")]
    several = sorted(folder for folder in folders if (folder / "commits" / "1").exists())
    return {"/".join(folder.parts[-2:]): folder for folder in several}


FOLDERS = checkpoints()
WITHOUT_CHANGES = {
    "checkpoints/spark4.0.1-agg__rk2",
    "checkpoints/spark4.3.0-agg__rk",
    "checkpoints/spark4.3.0-twsno__rk",
    "checkpoints/spark4.3.0-twsttl__rk",
    "checkpoints/agg__rf2",
    "checkpoints/agg__rk",
    "deduplication/rocksdb",
}
"""Checkpoints with a zip of each version and no changelogs."""

SOME_SILENT = ("repartitioned", "evolved", "changelogon")
"""Words of checkpoints of which only some versions say what they wrote."""


def columns_of(source: Source, state: str, version: int) -> list[str]:
    """The columns of a state without its placement, and the number of its rows if it has one."""
    info = source.info(state)
    names = [name for name in source.at(state, version).schema.names if name not in info.placement]
    return names + ([info.number] if info.number else [])


def cells(batch: pa.RecordBatch, names: list[str]) -> list[Group]:
    return list(zip(*(plain(batch.column(name)) for name in names), strict=True))


def rows_at(source: Source, state: str, version: int, group: tuple[str, ...]) -> Rows:
    """The rows of each group as a read of the version finds them, in the order of their numbers."""
    at, names, info = source.at(state, version), columns_of(source, state, version), source.info(state)
    found: Rows = {}
    for part in at.parts(()):
        for batch in at.rows(part, names, ()):
            assert [name for name in batch.schema.names if name not in info.placement] == names
            for key, row in zip(cells(batch, list(group)), cells(batch, names), strict=True):
                found.setdefault(key, []).append(row)
    if info.number:
        for key, rows in found.items():
            rows.sort(key=lambda row: row[-1])
            numbers = [row[-1] for row in rows]
            assert len(set(numbers)) == len(numbers)
            assert info.number in group or numbers == list(range(len(rows))), key
    else:
        assert all(len(rows) == 1 for rows in found.values())
    return found


def applied(before: Rows, written: Written, names: list[str]) -> Rows:
    """The rows after the writes."""
    found, whole = dict(before), set[Group]()
    for part in written.parts():
        puts, appended, groups = dict[Group, list[Group]](), dict[Group, list[Group]](), set[Group]()
        for batch in written.rows(part):
            assert batch.schema.names == [WRITE, *names]
            rows, keys = cells(batch, names), cells(batch, list(written.group))
            for write, key, row in zip(batch.column(WRITE).to_pylist(), keys, rows, strict=True):
                groups.add(key)
                if write == REMOVE:
                    assert key not in puts and key not in appended
                    assert found.pop(key, None) is not None or key not in before
                    own = dict(zip(names, row, strict=True))
                    assert all(value is None for name, value in own.items() if name not in written.group)
                elif write == PUT:
                    puts.setdefault(key, []).append(row)
                else:
                    assert write == APPEND
                    appended.setdefault(key, []).append(row)
        assert whole.isdisjoint(groups), "a group is in two parts"
        whole |= groups
        found.update(puts)
        for key, rows in appended.items():
            had = found.get(key, [])
            assert [row[-1] for row in rows] == list(range(len(rows)))
            found[key] = [*had, *((*row[:-1], len(had) + row[-1]) for row in rows)]
    return found


def has(source: Source, state: str, version: Version) -> bool:
    """Return whether the query had the state when it wrote the version."""
    try:
        source.at(state, version.number)
    except NotFoundError:
        return False
    return True


def check_all(path: Path) -> tuple[int, int]:
    """Check all pairs of neighbouring versions; return how many had writes, and how many had not."""
    source = open_source(parse_location(path))
    told = silent = 0
    for state in source.states():
        known: dict[int, Rows] = {}
        versions = [version for version in source.versions(state, source.kept(state)) if has(source, state, version)]
        for before, version in pairwise(versions):
            written = source.written(state, version, before)
            if written is None:
                silent += 1
                continue
            told += 1
            for each in (before, version):
                if each.number not in known:
                    known[each.number] = rows_at(source, state, each.number, written.group)
            names = columns_of(source, state, version.number)
            assert applied(known[before.number], written, names) == known[version.number]
    return told, silent


@pytest.mark.parametrize("name", mostly_slow(list(FOLDERS), {f"checkpoints/{name}" for name in QUICK}))
def test_the_rows_before_and_the_writes_make_the_rows_after(name: str) -> None:
    told, silent = check_all(FOLDERS[name])
    assert bool(told) == (name not in WITHOUT_CHANGES)
    assert not silent or name in WITHOUT_CHANGES or any(word in FOLDERS[name].as_posix() for word in SOME_SILENT)


# Files that are read, and that are gone

LAST = 5
TWO_ROWS = 500  # bytes
NUMBERED_FILE = re.compile(r"\.?(\d+)(_[0-9a-f-]+)?\.(delta|changelog|snapshot|zip)(\.crc)?")


def rows_written(written: Written | None) -> list[Group]:
    """The rows that a version wrote, sorted."""
    assert written is not None
    batches = [batch for part in written.parts() for batch in written.rows(part)]
    return sorted((row for batch in batches for row in cells(batch, batch.schema.names)), key=repr)


def last_two(source: Source, state: str) -> list[Version]:
    return list(source.versions(state, [LAST - 1, LAST]))


@pytest.mark.parametrize(
    ("name", "state", "others"),
    [
        ("agg__hdfs", "state", set[str]()),
        ("agg__rkcl", "state", set[str]()),
        ("agg__rkv2", "state", set[str]()),
        ("join__rkcl", "left", set[str]()),
        ("twsttl__rkcl", "lst", {"zip"}),  # which has the ids of column families, and no rows
    ],
)
def test_only_files_of_the_version_are_opened(name: str, state: str, others: set[str]) -> None:
    folder = FOLDERS[f"checkpoints/spark4.3.0-{name}"]
    source = open_source(parse_location(folder))
    before, version = last_two(source, state)
    rows_written(source.written(state, version, before))
    read = BytesRead(folder)
    written = open_source(parse_location(folder)).written(state, version, before)
    read.of(rows_written, written)
    found = [NUMBERED_FILE.fullmatch(path.name) for path in read.opened]
    assert found and all(found), read.opened
    assert {(each[1], each[3]) for each in found if each and each[3] not in others} == {
        (str(LAST + 1), "delta" if "hdfs" in name else "changelog")
    }


def test_states_that_share_a_changelog_read_it_once() -> None:
    folder = FOLDERS["checkpoints/spark4.3.0-twsttl__rkcl"]
    source, read = open_source(parse_location(folder)), BytesRead(folder)
    first, *others = source.states()
    before, version = last_two(source, first)
    read.of(rows_written, source.written(first, version, before))
    assert read.opened
    for state in others:
        found = read.of(rows_written, source.written(state, version, before))
        assert not read.opened
        anew = open_source(parse_location(folder)).written(state, version, before)
        assert found == rows_written(anew)


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl", "spark4.3.0-agg__rkv2"])
def test_the_logs_of_the_version_before_may_be_gone(name: str, tmp_path: Path) -> None:
    source = open_source(parse_location(FOLDERS[f"checkpoints/{name}"]))
    before, version = last_two(source, "state")
    whole = rows_written(source.written("state", version, before))
    left = open_source(parse_location(purged(name, tmp_path, 0, logs_below=LAST)))
    assert left.kept("state") == [LAST]
    assert rows_written(left.written("state", version, before)) == whole


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkcl", "spark4.3.0-twsttl__rkcl"])
def test_a_file_that_vanishes_is_a_version_that_is_gone(name: str, tmp_path: Path) -> None:
    path = purged(name, tmp_path, 0)
    source = open_source(parse_location(path))
    state = source.states()[0]
    early = source.versions(state, [0, 1])
    written = source.written(state, early[1], early[0])
    assert written is not None
    for kind in ("delta", "changelog"):
        for file in path.glob(f"state/0/*/2.{kind}"):
            file.unlink()
    for log in ("commits", "offsets"):
        for number in (0, 1):
            (path / log / str(number)).unlink()
    with pytest.raises(NotFoundError) as raised:
        rows_written(written)
    assert written.explain_loss(raised.value, state, [1]).code == ErrorCode.VERSION_GONE


def test_rows_that_are_looked_up_have_their_numbers() -> None:
    source: Source = open_source(parse_location(FOLDERS["checkpoints/spark4.3.0-join__rkcl"]))
    at, names = source.at("left", LAST), columns_of(source, "left", LAST)
    whole = rows_at(source, "left", LAST, ("key",))
    fields = [field.name for field in source.info("left").columns.field("key").type]
    for key, rows in whole.items():
        # The number is that of the key's row, also where only some rows are read.
        chosen = [Filter("key", "=", dict(zip(fields, key[0], strict=True)))]
        assert all(isinstance(part, LookupPart) for part in at.parts(chosen))
        found = [
            row for part in at.parts(chosen) for batch in at.rows(part, names, chosen) for row in cells(batch, names)
        ]
        assert sorted(row for row in found if row[0] == key[0]) == sorted(rows)


@pytest.mark.parametrize(("name", "state"), [("agg__hdfs", "state"), ("twsttl__rkcl", "lst"), ("join__rkj4", "left")])
def test_writes_that_are_too_many_to_be_held_are_read_in_passes(
    name: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(parse_location(FOLDERS[f"checkpoints/spark4.3.0-{name}"]))
    before, version = last_two(source, state)
    whole = rows_written(source.written(state, version, before))
    narrowed = []

    class Noted(HashPass):
        def narrow(self, eighths: int) -> None:
            narrowed.append(self.kept)
            super().narrow(eighths)

    monkeypatch.setattr(hash_passes, "HashPass", Noted)
    monkeypatch.setattr(bulk_replay, "HELD_BYTES", TWO_ROWS)
    monkeypatch.setattr(replay, "_FOLD_BYTES", 1)
    assert rows_written(source.written(state, version, before)) == whole
    assert narrowed
