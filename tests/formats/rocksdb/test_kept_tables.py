"""Keys of Flink's and Kafka's databases are looked up where the files lie: what is opened, and what is answered."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from support.rows_read import BytesRead

import statestore
from benchmarks.engines import flink_snapshots, kafka_directory
from statestore.formats.errors import StateStoreError
from statestore.formats.flink.snapshot import rocksdb_copy
from statestore.formats.kafka.directory import database_copies
from statestore.formats.rocksdb import kept_tables
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import families_of
from statestore.formats.rocksdb.scan import READER, scan_rocksdb

pytestmark = [
    pytest.mark.usefixtures("settled"),
    pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning"),  # the directories are without offsets
]
ROWS, A_BLOCK = 3000, 5000
STATES = ("balance", "name", "orders")
KINDS = ("key-value", "timestamped", "half-upgraded", "window", "session")


def refuse_copies(patch: pytest.MonkeyPatch) -> None:
    """Let no private directory be made from now on."""

    def refused() -> Any:
        raise AssertionError("made a private directory")

    for module in (rocksdb_copy, database_copies):
        patch.setattr(module, "temporary_directory", refused)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flink") / "chk-1"
    flink_snapshots.write_incremental(folder, flink_snapshots.entries(ROWS))
    return folder


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kafka") / "application"
    kafka_directory.make(folder, ROWS)
    return folder


@pytest.mark.parametrize("state", STATES)
def test_a_key_of_a_flink_checkpoint_reads_a_block_of_the_tables_that_may_have_it(
    state: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = statestore.inspect(checkpoint).table(f"{'0' * 31}1.{state}")
    first = flink_snapshots.FIRST_KEY

    def ask(number: int) -> list[Any]:
        found: list[Any] = table.scan(filter=("key", "=", first + number)).read_all().to_pylist()
        return found

    refuse_copies(monkeypatch)
    ask(5)
    reading, places = BytesRead(checkpoint), {"balance": 1, "name": 1, "orders": 2}
    for number in (0, 1, 8, 1033, ROWS - 1, ROWS):
        rows = [] if number == ROWS else {
            "balance": [number / 2], "name": [f"customer {number}"], "orders": [number, number]
        }[state]  # fmt: skip
        found = reading.of(ask, number)
        assert [row["value"] for row in found] == rows
        small = sum(path.stat().st_size for path in checkpoint.iterdir() if path.suffix != ".sst")
        assert reading.bytes < small + places[state] * 2 * A_BLOCK, number


@pytest.mark.parametrize("name", KINDS)
def test_keys_of_a_kafka_store_are_looked_up_where_its_files_lie(
    name: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kafka_directory.STORES[name][0]
    options: dict[str, Any] = {"kind": kind, "key_serde": "string", "value_serde": "long"}
    if name == "window":
        options["window_size"] = kafka_directory.WINDOW
    table = statestore.inspect(directory, **options).table(name)
    assert len(table.scan().read_all()) > ROWS // 2
    refuse_copies(monkeypatch)
    for number in (*random.Random(4).sample(range(ROWS), 20), ROWS):
        rows = table.scan(filter=("key", "=", kafka_directory.key(number).decode())).read_all().to_pylist()
        assert [row["value"] for row in rows] == [number] * (number < ROWS), number


def test_a_store_that_is_compacted_meanwhile_is_answered(directory: Path, tmp_path: Path) -> None:
    folder = tmp_path / "application"
    shutil.copytree(directory, folder)
    database = folder / "0_0" / kafka_directory.STORES["timestamped"][1]
    options = {"kind": "timestamped-key-value", "key_serde": "string", "value_serde": "long"}
    table = statestore.inspect(folder, **options).table("timestamped")
    families = {"keyValueWithTimestamp": Options(raw_mode=True)}
    for step in range(3):
        asked = kafka_directory.key(7)
        found = table.get(asked.decode())
        assert found is not None
        assert found["value"] == (7 if not step else 7 + step)
        with closing(Rdict(str(database), Options(raw_mode=True), column_families=families)) as opened:
            own = opened.get_column_family("keyValueWithTimestamp")
            own[asked] = (1).to_bytes(8, "big") + (8 + step).to_bytes(8, "big")
            own.flush()
            own.compact_range(None, None)
            own.close()


def test_a_table_file_that_is_damaged_or_gone_is_an_error(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chk-1"
    shutil.copytree(checkpoint, folder)
    table = statestore.inspect(folder).table(f"{'0' * 31}1.balance")
    key = flink_snapshots.FIRST_KEY + 8
    assert table.get(key) is not None
    for path in folder.glob("*.sst"):
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StateStoreError):
        table.get(key)
    for path in folder.glob("*.sst"):
        path.unlink()
    with pytest.raises(StateStoreError, match="found no relative file"):
        table.get(key)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_databases(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts, deletes, operands and deleted ranges in several flushes: the rows are those that RocksDB has."""
    chance = random.Random(seed)
    for number in range(6):
        folder = tmp_path / str(number)
        write_random_database(folder, chance)
        check_random_ranges(folder, chance, monkeypatch)


def write_random_database(folder: Path, chance: random.Random) -> None:
    options = Options(raw_mode=True)
    options.set_merge_operator_string_append(b",") if hasattr(options, "set_merge_operator_string_append") else None
    with closing(Rdict(str(folder), options)) as database:
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(200)):
                key = random_key(chance)
                if chance.random() < 0.7:
                    database[key] = chance.randbytes(chance.choice([0, 3, 200]))
                else:
                    del database[key]
            if chance.random() < 0.1:
                low, high = sorted((random_key(chance), random_key(chance)))
                database.delete_range(low, high)
            database.flush()
            if chance.random() < 0.3:
                database.compact_range(None, None)


def random_key(chance: random.Random) -> bytes:
    return b"pre" + chance.choice([b"", b"a", b"\xff"]) + b"%03d" % chance.randrange(150)


def check_random_ranges(folder: Path, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".sst" and path.is_file()}
    for _ in range(8):
        keys = sorted({random_key(chance) for _ in range(chance.randrange(1, 30))})
        ranges = [KeyRange(key, key + b"\0") for key in keys]
        found = kept_tables.looked_up(
            lambda: [(families_of(files, str(folder))["default"], lambda entry: str(folder / entry.name))], ranges, None
        )
        if found is None:
            continue
        assert not found[0][1]
        with patch.context() as own:
            own.setenv(READER, "rocksdict")
            truth = list(scan_rocksdb(folder, lambda rows: rows, key_ranges=ranges))
        rows = [tuple(row.values()) for batch in found[0][0] for row in batch.to_pylist()]
        assert rows == [tuple(row.values()) for batch in truth for row in batch.to_pylist()]
