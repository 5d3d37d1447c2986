"""Look-ups in RocksDB checkpoints in an object store: they fetch what the keys need, and answer as on a local disk."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from support.flink.fixtures import fixture, manifest
from support.object_store import ObjectStore, object_store
from support.parameters import mostly_slow

import statestore
from benchmarks.engines import flink_snapshots
from benchmarks.engines.flink_snapshots import FIRST_KEY
from statestore.formats.errors import StateStoreError
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.rocksdb.manifest import read_families

OPERATOR = "00000000000000000000000000000001"
STATE = f"{OPERATOR}.name"
STATES = ("balance", "name", "orders")
ROWS, NOISE = 24_000, 100
KEYS = [FIRST_KEY + number for number in range(7, ROWS, ROWS // 20)]
FEW = KEYS[::5]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with texts that do not compress, in two table files of more than 1 MiB, and two other states."""
    folder = tmp_path_factory.mktemp("large") / "chk-1"
    groups, noise = flink_snapshots.entries(ROWS), random.Random(3)
    for states in groups:
        states["name"] = [
            (key, bytes([NOISE + 1]) + bytes(each & 127 for each in noise.randbytes(NOISE)))
            for key, _ in states["name"]
        ]
    flink_snapshots.write_incremental(folder, groups)
    return folder


def tables_of(folder: Path, family: str) -> list[Path]:
    """The table files of a family, the largest last."""
    paths = [folder / file.name for file in read_families(folder)[family].files]
    return sorted(paths, key=lambda path: path.stat().st_size)


def opened(store: ObjectStore, name: str, folder: Path) -> Any:
    """The state of a folder that is uploaded; nothing of it was fetched before."""
    table = statestore.inspect(store.upload(folder, name)).table(STATE)
    forget_parts()
    store.clear()
    return table


def fetched(store: ObjectStore) -> set[str]:
    return {path.rpartition("/")[2] for method, path in store.requests if method == "GET"}


@pytest.mark.parametrize(
    ("keys", "share", "requests"), [(1, 0.15, 14), pytest.param(20, 0.35, 60, marks=pytest.mark.slow)]
)
def test_a_look_up_fetches_few_bytes(keys: int, share: float, requests: int, store: ObjectStore, large: Path) -> None:
    here, there = statestore.inspect(large).table(STATE), opened(store, f"few-{keys}", large)
    tables = tables_of(large, "name")
    assert tables[0].stat().st_size > 1 << 20
    whole, asked = sum(path.stat().st_size for path in tables), KEYS[:keys]
    if keys == 1:
        assert there.get(asked[0]) == here.get(asked[0])
    else:
        chosen = ("key", "in", asked)
        found = there.scan(filter=chosen).read_all()
        assert len(found) == keys and found.equals(here.scan(filter=chosen).read_all())
    assert store.bytes_sent < share * whole
    assert len(store.requests) <= requests
    others = {path.name for family in ("balance", "orders") for path in tables_of(large, family)}
    assert not fetched(store) & others


def test_a_scan_fetches_the_table_files_of_its_state_alone(store: ObjectStore, large: Path) -> None:
    here, there = statestore.inspect(large).table(STATE), opened(store, "scanned", large)
    assert there.scan(columns=["key"]).read_all().equals(here.scan(columns=["key"]).read_all())
    own = {path.name for path in tables_of(large, "name")}
    assert {name for name in fetched(store) if name.endswith(".sst")} == own
    assert there.scan().read_all().equals(here.scan().read_all())


def test_table_files_without_the_key_are_not_opened(store: ObjectStore, large: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chk-1"
    shutil.copytree(large, folder)
    options = Options(raw_mode=True)
    options.set_target_file_size_base(200_000)
    with closing(Rdict(str(folder), options, column_families=dict.fromkeys(STATES, options))) as database:
        database.get_column_family("name").compact_range(None, None)
    flink_snapshots.describe(folder)
    tables = tables_of(folder, "name")
    assert len(tables) > 8
    there = opened(store, "leveled", folder)
    here = statestore.inspect(large).table(STATE)
    assert there.get(KEYS[0]) == here.get(KEYS[0])
    names = {path.name for path in folder.glob("*.sst")}
    assert len(fetched(store) & names) == 1
    chosen = ("key", "in", KEYS[:3])
    assert there.scan(filter=chosen).read_all().equals(here.scan(filter=chosen).read_all())
    assert len(fetched(store) & names) <= 3
    assert there.scan().read_all().num_rows == ROWS


def test_deleted_ranges_of_keys(store: ObjectStore, large: Path, tmp_path: Path) -> None:
    """RocksDB looks in other files for what is behind a deleted range; a job that was rescaled has such ranges."""
    folder = tmp_path / "chk-1"
    shutil.copytree(large, folder)
    options = Options(raw_mode=True)
    with closing(Rdict(str(folder), options, column_families=dict.fromkeys(STATES, options))) as database:
        state = database.get_column_family("name")
        state.delete_range(bytes([5]), bytes([60]))
        state.flush()
        state.close()
    flink_snapshots.describe(folder)
    here = [statestore.inspect(folder).table(STATE).get(key) for key in KEYS]
    assert 0 < here.count(None) < len(KEYS)
    there = opened(store, "deleted", folder)
    assert [there.get(key) for key in KEYS] == here


@pytest.mark.slow
def test_keys_that_are_not_there_and_whole_key_groups(store: ObjectStore, large: Path) -> None:
    here, there = statestore.inspect(large).table(STATE), opened(store, "groups", large)
    for key in (0, FIRST_KEY - 1, FIRST_KEY + ROWS):
        assert there.get(key) is None
    assert store.bytes_sent < 0.25 * sum(path.stat().st_size for path in tables_of(large, "name"))
    for chosen in (("key_group", "in", [5, 77]), ("key_group", "=", 127)):
        found = there.scan(filter=chosen).read_all()
        assert len(found) and found.equals(here.scan(filter=chosen).read_all())
    assert there.scan().read_all().num_rows == ROWS


def answers(table: Any) -> list[Any]:
    """The answers of look-ups, errors by their codes."""
    found: list[Any] = []
    for key in FEW:
        try:
            found.append(table.get(key))
        except StateStoreError as error:
            found.append(error.code)
    return found


def flipped(at: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = at(len(data))
        return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]

    return change


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "the index": flipped(lambda size: size - 3000),
    "the footer": flipped(lambda size: size - 20),
    "the magic number": flipped(lambda size: size - 1),
    "a hole": lambda data: bytes(len(data) // 2) + data[len(data) // 2 :],
    "zeros": lambda data: bytes(len(data)),
    "cut off": lambda data: data[:-1],
    "too long": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", mostly_slow(["a data block", *DAMAGES], ("a data block", "the footer", "cut off")))
def test_damage_is_found_as_on_a_local_disk(damage: str, store: ObjectStore, large: Path, tmp_path: Path) -> None:
    shutil.copytree(large, tmp_path / "chk-1")
    broken = tables_of(tmp_path / "chk-1", "name")[-1]
    data = broken.read_bytes()
    row = statestore.inspect(large).table(STATE).get(FEW[1])
    assert row is not None
    text = row["value"].encode()
    place = data.index(text[:40])
    broken.write_bytes(DAMAGES.get(damage, flipped(lambda _: place))(data))
    here = statestore.inspect(tmp_path / "chk-1").table(STATE)
    expected = answers(here)
    assert any(isinstance(each, str) for each in expected)
    assert answers(opened(store, damage, tmp_path / "chk-1")) == expected
    shutil.copyfile(large / broken.name, broken)
    assert answers(opened(store, damage, tmp_path / "chk-1")) == answers(statestore.inspect(large).table(STATE))


def test_table_files_of_other_states_are_not_needed(store: ObjectStore, large: Path, tmp_path: Path) -> None:
    """Each look-up asks for the files of its state alone, whose loss it reports."""
    shutil.copytree(large, tmp_path / "chk-1")
    for family in ("balance", "orders"):
        tables_of(tmp_path / "chk-1", family)[0].unlink()
    there = opened(store, "without", tmp_path / "chk-1")
    assert there.get(KEYS[0]) == statestore.inspect(large).table(STATE).get(KEYS[0])
    with pytest.raises(StateStoreError, match="FLINK_FILE_MISSING"):
        statestore.inspect(store.uri("without")).table(f"{OPERATOR}.balance").get(KEYS[0])


@pytest.mark.slow
def test_a_file_without_checksums_is_fetched_as_a_whole(store: ObjectStore, large: Path, tmp_path: Path) -> None:
    """A hole in it would pass for data."""
    shutil.copytree(large, tmp_path / "chk-1")
    for path in tables_of(tmp_path / "chk-1", "name"):
        data = path.read_bytes()
        path.write_bytes(data[:-53] + b"\0" + data[-52:])
    there = opened(store, "unchecked", tmp_path / "chk-1")
    assert answers(there) == answers(statestore.inspect(tmp_path / "chk-1").table(STATE))
    assert store.bytes_sent >= sum(path.stat().st_size for path in tables_of(large, "name"))


@pytest.mark.slow
@pytest.mark.parametrize("run", ["logged-rocksdb", "rocksdb"])
def test_a_look_up_in_a_checkpoint_of_a_job_answers_as_on_a_local_disk(run: str, store: ObjectStore) -> None:
    """Beneath a changelog, too."""
    path = [each["path"] for each in manifest(run)["snapshots"] if "chk-" in each["path"]][-1]
    store.upload(fixture(run), f"jobs/{run}")
    here, there = statestore.inspect(fixture(run) / path), statestore.inspect(store.uri(f"jobs/{run}/{path}"))
    compared = 0
    for name in here.tables():
        rows = here.table(name).scan().read_all()
        for key in rows["key"].to_pylist()[:1] if "key" in rows.column_names else ():
            chosen = ("key", "=", key)
            expected = here.table(name).scan(filter=chosen).read_all()
            assert there.table(name).scan(filter=chosen).read_all().equals(expected), (name, key)
            compared += 1
    assert compared > 5
