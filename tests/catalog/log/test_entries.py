"""The commit log: round trips, damage, forged entries, and races for versions."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash
from obstore.store import MemoryStore
from support.object_stores.doubles import object_storage
from support.stores.log_entries import closure, entry, random_log, segment

from statestore.catalog.log.entries import (
    CommitEntry,
    Horizon,
    canonical_text,
    decode_entry,
    encode_entry,
    entry_name,
    read_entry,
    write_entry,
)
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.storage import Data, Guard, LocalStorage, Storage, StorageExistsError
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, InvalidInputError, NotFoundError, UnsupportedError

FULL = entry(
    5,
    transaction=("äpp\n", -7),
    removed=(segment(1).name,),
    closures=(closure(1, segment(3).name, 4),),
    horizon=Horizon(-3_000, 2),
    changelogs=(("00001-a.changelog", 99),),
)


NEWEST = replace(FULL, store="0" * 32)  # in format 3, FULL in format 1
CAPTURED = replace(
    NEWEST, transaction=("capture:x", 9), source=SourceVersion(9, -5, 0, '{"ä": 1}', (7, 8))
)  # in format 6


def test_entry_survives_the_round_trip() -> None:
    plain = replace(CAPTURED, source=SourceVersion(9, 2**62))
    for log in (random_log(30, seed=1), [FULL], [CAPTURED, plain]):
        for original in (*(commit for commit in log if not commit.source), *(replace(c, store="0" * 32) for c in log)):
            assert decode_entry(entry_name(original.version), encode_entry(original)) == original


def test_an_entry_names_each_file_once() -> None:
    """The slices of a closure file in many segments do not repeat its checksums."""
    file = closure(1, segment(3).name, 4).file
    pieces = tuple(replace(closure(1, segment(number).name, 5), file=file, offset=number) for number in range(100))
    data = encode_entry(replace(NEWEST, closures=pieces))
    assert data.count(file.name.encode()) == 1 and data.count(file.checksums.encode()) <= 3
    assert len(data) < 100 * 120 + len(encode_entry(NEWEST))


def test_the_layout_of_an_entry_does_not_matter() -> None:
    document = json.loads(encode_entry(NEWEST))
    for text in (json.dumps(document, indent=2), json.dumps(dict(reversed(document.items())), ensure_ascii=False)):
        assert decode_entry(entry_name(5), text.encode()) == NEWEST
        assert canonical_text(entry_name(5), text.encode()) == encode_entry(NEWEST)
    assert canonical_text(entry_name(5), encode_entry(NEWEST)) == encode_entry(NEWEST)
    assert decode_entry(entry_name(5), canonical_text(entry_name(5), encode_entry(FULL))) == FULL
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        canonical_text(entry_name(5), encode_entry(NEWEST)[:-2])


def test_names_sort_as_versions_do() -> None:
    assert entry_name(7) == "log/00000000000000000007.json"
    assert sorted(map(entry_name, (100, 9, 10**17))) == list(map(entry_name, (9, 100, 10**17)))


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_no_flipped_bit_changes_an_entry(every: int) -> None:
    """Flips that JSON does not mind (the case of a hex digit in an escape) are harmless, and all others noticed."""
    for full in (FULL, NEWEST):
        check_flips(full, encode_entry(full), every)


def check_flips(full: CommitEntry, data: bytes, every: int) -> None:
    unnoticed = [position for position in range(0, 8 * len(data), every) if not is_refused(flipped(data, position))]
    assert all(decode_entry(entry_name(5), flipped(data, position)) == full for position in unnoticed)
    assert all(b"\\u" in data[position // 8 - 5 : position // 8] for position in unnoticed)


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def is_refused(data: bytes) -> bool:
    try:
        decode_entry(entry_name(5), data)
    except CorruptError as error:
        assert error.code == "LOG_CORRUPT" and "00005.json" in error.message
        return True
    return False


def test_every_cut_is_noticed() -> None:
    data = encode_entry(FULL)
    for length in range(len(data)):
        with pytest.raises(CorruptError, match="LOG_CORRUPT"):
            decode_entry(entry_name(5), data[:length])


def test_an_entry_under_another_name_is_refused() -> None:
    with pytest.raises(CorruptError, match="holds version 5"):
        decode_entry(entry_name(6), encode_entry(FULL))


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "7", '{"checksum": 1, "commit": []}', "[" * 100_000])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        decode_entry(entry_name(5), text.encode())


def each(path: Sequence[str | int], values: Iterable[Any]) -> list[tuple[Sequence[str | int], Any]]:
    return [(path, value) for value in values]


FORGED: list[tuple[Sequence[str | int], Any]] = [
    *((["version"], value) for value in ("5", 5.0, None, True, -1, 10**18)),
    *((["timestamp"], value) for value in ("now", None, 2**63, True)),
    *((["stream_time"], value) for value in ("now", 1.5, -(2**63) - 1)),
    *(([name], value) for name in ("rows", "tombstones", "closed", "bytes", "dropped") for value in (-1, "1", None)),
    (["operation"], "erase"),
    (["writer"], None),
    *(([name], "\ud800") for name in ("writer", "store", "id")),
    (["transaction", 0], "\ud800"),
    (["added", 0, "key_min", 0], "\ud800"),
    *((["transaction"], value) for value in ("ab", ["a"], ["a", 2**63], ["a", "1"], [1, 1], ["a", 1, 2])),
    *((["removed"], value) for value in ("segments/x", ["x"], ["segments/../x"], [7])),
    *((["changelogs"], value) for value in ([["../x", 1]], [["x/y", 1]], [[".", 1]], [["x", -1]], [["x"]], {"x": 1})),
    *((["horizon"], value) for value in ([1, 2], {"time": 1}, {"time": "1", "version": 1}, {"time": 1, "version": -1})),
    *(
        ([part, 0, "file", "name"], name)
        for part in ("added", "closures")
        for name in ("x", "segments/", "segments/..", "segments/.x", "segments/a/b", "/segments/x", "segments/x\n", 7)
    ),
    (["added", 0, "index", "name"], "segments/../../x"),
    (["closures", 0, "segment"], "segments/../x"),
    (["closures", 0, "offset"], -1),
    (["closures", 0, "count"], 2**63),
    (["added", 0, "file", "bytes"], -1),
    (["added", 0, "file", "checksums"], "5d3d"),
    (["added", 0, "file", "checksums"], "5D3DE3F63039D6B9"),
    (["added", 0, "file", "bytes"], 2**21),
    (["added", 0, "file", "metadata_ranges"], [[0, 1947]]),
    (["added", 0, "file", "metadata_ranges"], [[-1, 5]]),
    (["added", 0, "rows"], 0),
    (["added", 0, "role"], "secret"),
    (["added", 0, "tombstone"], "no"),
    (["added", 0, "min_valid_from"], None),
    (["added", 0, "key_groups"], [1]),
    (["added", 0, "key_min"], [[1]]),
    (["added", 0, "surprise"], 1),
    *(
        forgery
        for rows in (2, 10**18)
        for forgery in each(
            ["added", 0, "blocks"],
            (
                [[rows, *[1] * 8]],  # without the rows of a batch
                [[rows, *[1] * 8, 0]],
                [[rows, *[1] * 8, (1 << 20) + 1]],
                [[rows, *[1] * 8, "9"]],
                [[rows + 1, *[1] * 8, 1]],
                [[0, *[1] * 8, 1], [rows, *[1] * 8, 1]],
                [[rows, *[1] * 9, 1]],
            ),
        )
    ),
    (["surprise"], 1),
]


FORGED_3: list[tuple[Sequence[str | int], Any]] = [
    *(item for item in FORGED if item[0][0] not in ("added", "closures")),
    (["store"], ""),
    (["files"], []),
    (["files"], None),
    (["files", 0], ["segments/x"]),
    *each(["files", 0, 0], ("x", "segments/", "segments/..", "segments/a/b", "segments/x\n", 7)),
    (["files", 1, 0], "segments/../x"),
    (["files", 0, 1], -1),
    (["files", 0, 2], "5d3d"),
    (["files", 0, 3], [[0, 1947]]),
    *each(["added", 0, "file"], (-1, 99, "0", None, True, 0.0)),
    (["added", 0, "index"], 99),
    (["added", 0, "rows"], 0),
    (["added", 0, "surprise"], 1),
    *(forgery for place in (0, 2, 3, 4) for forgery in each(["closures", 0, place], [-1])),
    (["closures", 0, 1], "segments/../x"),
    (["closures", 0, 1], ["x"]),
    (["closures", 0, 5], 2**63),
    (["closures", 0], [0]),
]


FORGED_6: list[tuple[Sequence[str | int], Any]] = [
    *FORGED_3,
    *(item for number in (1, 3, 4, 5) for item in each(["format"], [number])),
    *each(["operation"], ["compact", "create", "replace"]),
    *each(["transaction"], [None, ["capture:x", 8]]),
    *each(["source"], [None, {}, 9, [9, -5], {"version": 9}, {"version": 9, "time": 1, "more": 1}]),
    *each(["source", "version"], [8, "9", None, True]),
    *each(["source", "time"], [None, "now", 2**63]),
    *each(["source", "watermark"], [None, 1.5]),
    *each(["source", "offsets"], [None, 7, "\ud800"]),
    *each(["source", "missing"], [None, [], [7], [8, 7], [7, 9], ["7", "8"], [7, 8, 8], {"7": 8}]),
]
FORGERIES = [(FULL, FORGED), (NEWEST, FORGED_3), (CAPTURED, FORGED_6)]


@pytest.mark.parametrize(("full", "forgeries"), FORGERIES, ids=["old", "newest", "captured"])
def test_a_forged_entry_is_refused(full: CommitEntry, forgeries: list[tuple[Sequence[str | int], Any]]) -> None:
    """Its checksum is right: whatever stands in the file, no name leaves the store and no number is taken on trust."""
    taken = []
    for path, value in forgeries:
        try:
            decode_entry(entry_name(5), forged(path, value, full))
        except CorruptError as error:
            assert error.code == "LOG_CORRUPT", (path, value)
        else:
            taken.append((path, value))
    assert taken == []


def test_a_newer_format_is_not_called_damage() -> None:
    with pytest.raises(UnsupportedError, match="LOG_FORMAT"):
        decode_entry(entry_name(5), forged(["format"], 7))


def forged(path: Sequence[str | int], value: Any, full: CommitEntry = FULL) -> bytes:
    commit = json.loads(encode_entry(full))["commit"]
    target = commit
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    canonical = json.dumps(commit, sort_keys=True, separators=(",", ":"))
    return json.dumps({"checksum": xxhash.xxh3_64_hexdigest(canonical.encode()), "commit": commit}).encode()


def test_nothing_is_published_that_could_not_be_read(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(InvalidInputError, match=r"INVALID_COMMIT.*batch of the transaction"):
        write_entry(storage, entry(0, transaction=("app", 2**63)))
    assert storage.list("") == []


def test_an_entry_that_nobody_would_read_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr("statestore.catalog.log.entries.MAX_METADATA_BYTES", 2_000)
    with pytest.raises(InvalidInputError, match=r"INVALID_COMMIT.*bytes of log; expected at most 2000"):
        write_entry(storage, replace(entry(0), writer="w" * 2_000))
    assert storage.list("") == []


def test_a_version_is_taken_once(tmp_path: Path) -> None:
    """Even by the very same entry: two writers may want the same thing, and only one of them did it."""
    storage = LocalStorage(tmp_path)
    write_entry(storage, entry(0))
    with pytest.raises(ConflictError, match="VERSION_TAKEN"):
        write_entry(storage, entry(0))
    assert read_entry(storage, 0) == entry(0)
    with pytest.raises(NotFoundError, match="FILE_NOT_FOUND"):
        read_entry(storage, 1)


class Unreliable(LocalStorage):
    """Storage that reports "exists" as object stores sometimes do: after its own success, or where nothing exists."""

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        if len(self.list("log/")) % 2:
            super().create(name, data, guard)
        else:
            super().create("log/noise", b"")
        raise StorageExistsError(ErrorCode.FILE_EXISTS, name)


def test_a_lost_answer_is_no_lost_race(tmp_path: Path) -> None:
    """Taken for a conflict, it would be committed again under the next version, and its files deleted."""
    storage = Unreliable(tmp_path)
    write_entry(storage, entry(0))
    assert read_entry(storage, 0) == entry(0)


def newest_version(storage: Storage, at_least: int) -> int:
    while storage.exists(entry_name(at_least + 1)):
        at_least += 1
    return at_least


def race(storage: Storage, writer: str, last: int) -> list[int]:
    """Commit until version ``last`` is taken; return the versions won."""
    won = []
    version = 0
    while (version := newest_version(storage, version)) < last:
        try:
            write_entry(storage, entry(version + 1, writer=writer))
            won.append(version + 1)
        except ConflictError:
            continue
    return won


def check_race(storage: Storage, wins: dict[str, list[int]], last: int) -> None:
    assert sorted(version for won in wins.values() for version in won) == list(range(1, last + 1))
    assert all(read_entry(storage, version).writer == writer for writer, won in wins.items() for version in won)


@pytest.mark.parametrize("kind", ["local", "objects"])
def test_threads_race_for_versions(tmp_path: Path, kind: str) -> None:
    """Each version has exactly one winner, and its entry is there."""
    storage: Storage = LocalStorage(tmp_path) if kind == "local" else object_storage(MemoryStore())
    write_entry(storage, entry(0))
    writers = [f"thread {number}" for number in range(6)]
    with ThreadPoolExecutor(len(writers)) as pool:
        wins = dict(zip(writers, pool.map(lambda writer: race(storage, writer, 40), writers), strict=True))
    check_race(storage, wins, 40)


@pytest.mark.slow
def test_processes_race_for_versions(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    write_entry(storage, entry(0))
    writers = [f"process {number}" for number in range(2)]
    with multiprocessing.get_context("spawn").Pool(len(writers)) as pool:
        wins = dict(zip(writers, pool.starmap(race, [(storage, writer, 100) for writer in writers]), strict=True))
        pool.close()
        pool.join()
    check_race(storage, wins, 100)
