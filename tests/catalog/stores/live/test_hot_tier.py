"""Any change of a hot tier's files: every kind of read returns every row, from a tier that is rebuilt."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.parameters import mostly_slow

import statestore
from statestore.catalog.stores.live.hot_tier import ONE, HotTier, TierScan
from statestore.catalog.stores.live.tier_errors import TierBrokenError

KINDS = ("key_value", "window", "session", "join_window", "versioned")
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "string"}}
HOUR = 3_600_000
OPTIONS: dict[str, dict[str, Any]] = {
    "key_value": {"kind": "key_value"},
    "window": {"kind": "window", "retention": 8 * HOUR, "window_size": 60_000, "segment_interval": 2 * HOUR},
    "session": {"kind": "session", "retention": 8 * HOUR, "segment_interval": 2 * HOUR},
    "join_window": {
        "kind": "join_window",
        "window_before": 8 * HOUR,
        "window_after": 8 * HOUR,
        "retention": 8 * HOUR,
        "num_segments": 5,
    },
    "versioned": {"serde": "kafka", "history_retention": 8 * HOUR},
}
KEYS = [f"key-{number:03}" for number in range(150)]
TIMES = (10 * HOUR, 11 * HOUR + 1, 13 * HOUR)
FAR = 20 * HOUR
Rows = list[tuple[Any, ...]]
Damage = Callable[[Path, random.Random], None]


def put(store: Any, kind: str, key: str, time: int, value: str | None) -> None:
    if kind == "key_value":
        store.put(key, value)
    elif kind == "session":
        store.put(key, time - 5, time, value)
    else:
        store.put(key, value, time)


def text(key: str, time: int) -> str:
    return f"{key} at {time} " * 3


def truth(kind: str) -> Rows:
    """(key, time, value) of every row that was put, by a rule of one line for each kind."""
    if kind == "key_value":
        return sorted((key, 0, text(key, TIMES[-1])) for key in KEYS)
    return sorted((key, time, text(key, time)) for key in KEYS for time in TIMES)


@cache
def made(root: Path, kind: str) -> Path:
    """A closed store: a third of the puts is committed, all are in the tier, in several files."""
    folder = root / kind
    with statestore.connect(folder).create_store("s", **COLUMNS, **OPTIONS[kind]) as store:
        for number, time in enumerate(TIMES):
            for key in KEYS:
                put(store, kind, key, time, text(key, time))
            store.commit() if number == 0 else store.flush()
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


# Every kind of read, as (name, what it gives); each must be `truth`, or its part, in whichever order


def key_value_reads(store: Any) -> Iterator[tuple[str, Rows]]:
    for name in ("all", "range"):
        forwards, backwards = list(getattr(store, name)()), list(getattr(store, f"reverse_{name}")())
        assert forwards == backwards[::-1], name
        yield name, [(row.key, 0, row.value) for row in forwards]
    for begin in range(0, 150, 50):
        low, high = KEYS[begin], KEYS[begin + 49]
        forwards, backwards = list(store.range(low, high)), list(store.reverse_range(low, high))
        assert forwards == backwards[::-1]
        assert [row.key for row in forwards] == KEYS[begin : begin + 50]
    assert [row.key for row in store.prefix_scan("key-07")] == KEYS[70:80]
    yield "get", [(key, 0, store.get(key)) for key in KEYS]
    yield "prefix", [(row.key, 0, row.value) for row in store.prefix_scan("")]
    assert store.approximate_num_entries() == len(KEYS)


def window_reads(store: Any) -> Iterator[tuple[str, Rows]]:
    for name, bounds in (("all", ()), ("fetch_all", (0, FAR)), ("fetch_range", (None, None, 0, FAR))):
        forwards = list(getattr(store, name)(*bounds))
        assert forwards == list(getattr(store, f"backward_{name}")(*bounds))[::-1], name
        yield name, [(row.key, row.start, row.value) for row in forwards]
    for name in ("fetch", "backward_fetch"):
        found = [row for key in KEYS for row in getattr(store, name)(key, 0, FAR)]
        yield name, [(row.key, row.start, row.value) for row in found]
    yield "fetch one", [(key, time, store.fetch(key, time)) for key in KEYS for time in TIMES]


def session_reads(store: Any) -> Iterator[tuple[str, Rows]]:
    forwards = list(store.fetch_range(None, None))
    assert forwards == list(store.backward_fetch_range(None, None))[::-1]
    yield "fetch_range", [(row.key, row.end, row.value) for row in forwards]
    forwards = list(store.find_sessions_range(None, None, 0, FAR))
    assert forwards == list(store.backward_find_sessions_range(None, None, 0, FAR))[::-1]
    yield "find_sessions_range", [(row.key, row.end, row.value) for row in forwards]
    for name, bounds in (("fetch", ()), ("find_sessions", (0, FAR))):
        for direction in ("", "backward_"):
            found = [row for key in KEYS for row in getattr(store, f"{direction}{name}")(key, *bounds)]
            yield name, [(row.key, row.end, row.value) for row in found]
    yield "fetch_session", [(key, time, store.fetch_session(key, time - 5, time)) for key in KEYS for time in TIMES]


def join_window_reads(store: Any) -> Iterator[tuple[str, Rows]]:
    yield "fetch", [(row.key, row.start, row.value) for key in KEYS for row in store.fetch(key, 12 * HOUR)]


def versioned_reads(store: Any) -> Iterator[tuple[str, Rows]]:
    versions = [(key, row.valid_from, row.value) for key in KEYS for row in store.get_versions(key)]
    yield "get_versions", versions
    yield "get as of", [(key, time, store.get(key, as_of=time).value) for key in KEYS for time in TIMES]
    newest = [(key, found.valid_from, found.value) for key in KEYS if (found := store.get(key))]
    assert newest == [(key, TIMES[-1], text(key, TIMES[-1])) for key in KEYS]


READS: dict[str, Callable[[Any], Iterator[tuple[str, Rows]]]] = {
    "key_value": key_value_reads,
    "window": window_reads,
    "session": session_reads,
    "join_window": join_window_reads,
    "versioned": versioned_reads,
}


def check_reads(store: Any, kind: str, first: int = 0) -> None:
    """Do every read; the ``first`` read is the one that meets the damage."""
    for number in (first, first + 1):
        if number % 2:
            check_verbs(store, kind)
        else:
            check_physical(store, kind)


def check_verbs(store: Any, kind: str) -> None:
    for name, rows in READS[kind](store):
        assert sorted(rows) == truth(kind), name


def check_physical(store: Any, kind: str) -> None:
    rows = list(store.physical())
    if kind == "versioned":  # a row holds several versions
        assert b"".join(value for _, _, value in rows).count(b" at ") == 3 * len(truth(kind))
    else:
        assert len(rows) == len(truth(kind))


# Damage


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    write(path, data)


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    write(path, data[: chance.randrange(len(data) + 1)])


def zero(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    begin = chance.randrange(len(data) + 1)
    end = min(len(data), begin + chance.choice((1, 64, 4096, len(data))))
    data[begin:end] = bytes(end - begin)
    write(path, data)


def lengthen(path: Path, chance: random.Random) -> None:
    write(path, path.read_bytes() + chance.randbytes(chance.choice((1, 100, 5000))))


def swap(path: Path, chance: random.Random) -> None:
    """Replace the file by another one of its kind, from this or another segment, or else by any other file."""
    others = [other for other in files(path.parents[2]) if other != path]
    alike = [other for other in others if other.suffix == path.suffix and other.name[:4] == path.name[:4]]
    other = chance.choice(alike or others)
    mine, theirs = path.read_bytes(), other.read_bytes()
    write(path, theirs)
    write(other, mine)


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def put_a_pipe_there(path: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def swap_databases(path: Path, chance: random.Random) -> None:
    """Replace the whole directory by that of another segment."""
    others = [other for other in path.parent.parent.iterdir() if other.is_dir() and other != path.parent]
    if others and path.name == "CURRENT":
        other, away = chance.choice(others), path.parent.parent / "away"
        path.parent.rename(away)
        other.rename(path.parent)
        away.rename(other)


DAMAGES: tuple[Damage, ...] = (flip, flip, cut, zero, lengthen, swap, remove, put_a_pipe_there, swap_databases)


def write(path: Path, data: bytes | bytearray) -> None:
    path.write_bytes(data)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def trial(root: Path, copy: Path, kind: str, seed: int) -> None:
    """One file of a tier damaged in one way, before the store is opened or while it is open; then every read."""
    chance = random.Random(f"{kind} {seed}")
    shutil.copytree(made(root, kind), copy)
    places = files(copy / "s/live")
    tables = [path for path in places if path.suffix == ".sst"]
    path = chance.choice(tables if chance.random() < 0.4 else places)
    damage = chance.choice(DAMAGES)
    while_open = damage in (flip, zero) and chance.random() < 0.5
    what = f"seed {seed}: {damage.__name__} {path.relative_to(copy)}{' while open' if while_open else ''}"
    if not while_open:
        damage(path, chance)
    try:
        with statestore.connect(copy).open_store("s", auto_compact=False) as store:
            if while_open:
                store.metrics()
                next(iter(store.physical()))
                if path.exists():  # RocksDB may have removed it
                    damage(path, chance)
            check_reads(store, kind, seed)
            store.commit()
            check_reads(store, kind)
            rows = [row for row in store.history(columns=["v"]).read_all()["v"].to_pylist() if row is not None]
            assert set(rows) >= {value for _, _, value in truth(kind)}
        with statestore.connect(copy).open_store("s", auto_compact=False) as store:
            check_reads(store, kind)
        assert statestore.verify(copy)[0].ok
    except BaseException as error:
        error.add_note(what)
        raise
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("kind", mostly_slow(KINDS, list(KINDS)[:2]))
def test_no_damage_shortens_a_read(root: Path, tmp_path: Path, kind: str) -> None:
    for seed in range(2):
        trial(root, tmp_path / "copy", kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_damage_shortens_a_read_in_many_places(root: Path, tmp_path: Path, kind: str) -> None:
    for seed in range(1000, 1050):
        trial(root, tmp_path / "copy", kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bit_of_each_table_file(root: Path, tmp_path: Path, kind: str) -> None:
    """Flip a bit in the middle of each file, so that rows are before and behind it."""
    shutil.copytree(made(root, kind), tmp_path / "copy")
    for path in files(tmp_path / "copy/s/live"):
        if path.suffix == ".sst":
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 1
            write(path, data)
    with statestore.connect(tmp_path / "copy").open_store("s") as store:
        check_reads(store, kind)


def test_a_manifest_that_was_cut_is_no_older_tier(root: Path, tmp_path: Path) -> None:
    """RocksDB opens it as the database that it was, without a word."""
    places = [path for path in files(made(root, "key_value") / "s/live") if path.name.startswith("MANIFEST")]
    (place,) = places
    size = place.stat().st_size
    for end in range(0, size, max(1, size // 8)):
        shutil.copytree(made(root, "key_value"), tmp_path / str(end))
        path = tmp_path / str(end) / place.relative_to(made(root, "key_value"))
        write(path, path.read_bytes()[:end])
        with statestore.connect(tmp_path / str(end)).open_store("s") as store:
            check_reads(store, "key_value")


@pytest.mark.parametrize("backwards", [False, True])
def test_an_iterator_goes_on_where_it_met_the_damage(tmp_path: Path, backwards: bool) -> None:
    """And so does another one that was open then, each behind the last row it gave, none twice."""
    catalog = statestore.connect(tmp_path)
    keys = [f"{number:05}" for number in range(5000)]
    with catalog.create_store("s", **COLUMNS, kind="key_value") as store:
        store.put_all([(key, text(key, 0)) for key in keys])
        store.flush()
    with catalog.open_store("s") as store:
        read = store.reverse_all if backwards else store.all
        first, second = read(), read()
        begun = [[next(first)], [next(second)]]
        for path in files(tmp_path / "s/live"):
            if path.suffix == ".sst":
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                write(path, data)
        found = [[*begun[0], *first], [*begun[1], *second]]
    expected = keys[:: -1 if backwards else 1]
    assert [row.key for row in found[0]] == expected
    assert [row.key for row in found[1]] == expected


@pytest.mark.parametrize("kind", mostly_slow(KINDS, ["key_value"]))
def test_writes_go_on_where_a_compaction_meets_the_damage(root: Path, tmp_path: Path, kind: str) -> None:
    """RocksDB merges table files on its own, and refuses writes for ever once that has failed."""
    shutil.copytree(made(root, kind), tmp_path / "copy")
    for path in files(tmp_path / "copy/s/live"):
        if path.suffix == ".sst":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            write(path, data)
    with statestore.connect(tmp_path / "copy").open_store("s") as store:
        for _ in range(6):
            for key in KEYS[:50]:
                put(store, kind, key, TIMES[-1], text(key, TIMES[-1]))
            store.flush()
        if kind != "join_window":  # where each put is a row of its own
            check_reads(store, kind)
        else:
            assert len(list(store.fetch(KEYS[0], 12 * HOUR))) == len(TIMES) + 6


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, Path.touch])
@pytest.mark.parametrize(
    "place", ["live", "live/checkpoint.json", "live/rocksdb", "live/rocksdb/s", "live/rocksdb/s/CURRENT"]
)
def test_something_else_in_the_place_of_a_file_or_folder(root: Path, tmp_path: Path, place: str, make: Any) -> None:
    shutil.copytree(made(root, "key_value"), tmp_path / "copy")
    path = tmp_path / "copy/s" / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)
    for _ in range(2):
        with statestore.connect(tmp_path / "copy").open_store("s") as store:
            check_reads(store, "key_value")


def test_a_scan_that_is_closed_before_it_begins_holds_no_database(tmp_path: Path) -> None:
    """The database may be closed between the making of a scan and its beginning."""
    tier = HotTier(tmp_path, "s")
    scan = TierScan(None, None, False)
    scan.close()
    with pytest.raises(TierBrokenError, match="closed during an iteration"):
        scan.begin(tier.database(ONE))
    tier.close()
