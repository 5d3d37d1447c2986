"""State directories of real Kafka Streams applications through the doors: the rows that the stores answered."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rocksdict import DBCompressionType, Options, Rdict
from support.kafka.applications import unpacked
from support.kafka.real_applications import APPLICATIONS, application, plain_rows
from support.kafka.store_answers import cases, expected, missing, the_store
from support.kafka.unpacked import is_on_disk, stores_file
from support.parameters import mostly_slow
from support.paths import DATA

import statestore
from statestore.catalog.summaries import summaries
from statestore.catalog.warehouse import open_table
from statestore.formats.state_table import Query

QUICK = ("carts", "turnover", "menu", "upsell-left-shared-join-store")
STORES = cases(is_on_disk)
MOSTLY_SLOW = cases(is_on_disk, QUICK)
VERSIONED = cases(lambda store: store["kind"] == "versioned")
SEGMENTED = cases(lambda store: store.get("retention_ms") is not None and is_on_disk(store), QUICK)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: unpacked(name) for name in APPLICATIONS} | {"described": tmp_path_factory.mktemp("described")}


def table(folders: dict[str, Path], name: str, store: str, **options: Any) -> Any:
    """A store as its users describe it. The description of the other stores would only take time to parse."""
    given = stores_file(name, folders["described"] / f"{name}-{store}.toml", only=store)
    return statestore.inspect(folders[name] / "state" / name, stores_file=str(given), **options).table(store)


def rows_of(reader: pa.RecordBatchReader, partition: int | None) -> list[dict[str, Any]]:
    return of_partitions(reader)[partition]


def of_partitions(reader: pa.RecordBatchReader) -> dict[int | None, list[dict[str, Any]]]:
    """The rows of each partition."""
    found: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for batch in reader:
        for row in plain_rows(batch):
            found[row["partition_id"]].append(row)
    return found


@pytest.mark.parametrize(("name", "store"), mostly_slow(STORES, 2))
def test_a_scan_has_the_rows_of_the_store(folders: dict[str, Path], name: str, store: str) -> None:
    found = the_store(name, store)
    scanned = of_partitions(table(folders, name, store).scan())
    assert set(scanned) <= {part.get("partition") for part in found["partitions"]}
    for part in found["partitions"]:
        rows = scanned[part.get("partition")]
        wanted = [expected(found, row) for row in part.get("rows", [])]
        assert missing(rows, wanted) == Counter()
        shown = [row for row in rows if not row.get("expired")]
        if "rows" in part:
            assert len(shown) == len(wanted)


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "store"), VERSIONED)
def test_moments_of_versioned_stores(folders: dict[str, Path], name: str, store: str, every: int) -> None:
    """Each answer of ``get(key, asOf)``, which says nothing about moments before the retention."""
    found, versions = the_store(name, store), table(folders, name, store)
    answered = 0
    for part in found["partitions"]:
        for ask in part["as_of"][::every]:
            if ask["as_of"] < part["observed_stream_time"] - found["history_retention_ms"]:
                continue
            try:
                rows = rows_of(versions.scan(as_of=ask["as_of"], filter=("key", "=", ask["key"])), part["partition"])
            except statestore.NotFoundError as error:
                assert "TIME_NOT_KEPT" in str(error)
                continue
            answered += 1
            wanted = [] if ask["answer"] is None else [{"key": ask["key"], **ask["answer"]}]
            assert missing(rows, wanted) == Counter()
            assert len(rows) == len(wanted)
    assert answered > 60 // every


@pytest.mark.parametrize(("name", "store"), VERSIONED)
def test_history_of_versioned_stores(folders: dict[str, Path], name: str, store: str) -> None:
    """The versions that ``MultiVersionedKeyQuery`` answers; older ones may lie beside them."""
    found = the_store(name, store)
    history = of_partitions(table(folders, name, store).history())
    for part in found["partitions"]:
        rows = history[part["partition"]]
        assert part["versions"]
        assert missing(rows, part["versions"]) == Counter()


@pytest.mark.parametrize(("name", "store"), VERSIONED)
def test_versions_that_kafka_no_longer_answers_are_marked(folders: dict[str, Path], name: str, store: str) -> None:
    """A version is out of reach of ``get(key, asOf)`` once it has ended before the history retention."""
    found = the_store(name, store)
    history = of_partitions(table(folders, name, store).history())
    shown = table(folders, name, store, hide_expired=True)
    of_shown = of_partitions(shown.history())
    for part in found["partitions"]:
        oldest = part["observed_stream_time"] - found["history_retention_ms"]
        rows = history[part["partition"]]
        assert all(row["expired"] == (row["valid_to"] is not None and row["valid_to"] <= oldest) for row in rows)
        kept = of_shown[part["partition"]]
        assert len(kept) == sum(not row["expired"] for row in rows)
    limit = max(part["observed_stream_time"] for part in found["partitions"]) - found["history_retention_ms"]
    assert shown.table.known_from(1) >= limit * 1000
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        shown.scan(as_of=limit - 1)


@pytest.mark.parametrize("applied", [True, False])
def test_a_versioned_store_without_rows_may_have_lost_them(tmp_path: Path, applied: bool) -> None:
    """All versions of a store can expire; without an offset it has never had any."""
    task = tmp_path / "app" / "0_0"
    task.mkdir(parents=True)
    database = Rdict(str(task / "rocksdb" / "rates"), Options(raw_mode=True))
    database[b"k"] = b"v"
    database.flush()
    del database[b"k"]
    database.flush()
    database.close()
    topic = "app-rates-changelog" if applied else "rates"
    (task / ".checkpoint").write_text(f"0\n1\n{topic} 0 7\n")
    options = {"kind": "versioned", "key_serde": "string", "value_serde": "long"}
    rates = statestore.inspect(tmp_path / "app", **options).table("rates")
    assert rates.scan().read_all().num_rows == 0
    if applied:
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*all have expired"):
            rates.scan(as_of=5)
    else:
        assert rates.scan(as_of=5).read_all().num_rows == 0


def database(folder: Path, rows: dict[bytes, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Rdict(str(folder), Options(raw_mode=True))
    for key, value in rows.items():
        made[key] = value
    made.flush()
    made.close()


def test_a_partition_that_another_topology_left_over_is_no_second_one(tmp_path: Path) -> None:
    for task in ("0_0", "1_0"):
        database(tmp_path / "app" / task / "rocksdb" / "stock", {b"x": task.encode()})
        (tmp_path / "app" / task / ".checkpoint").write_text("0\n1\napp-stock-changelog 0 7\n")
    options: dict[str, Any] = {"kind": "key-value", "key_serde": "string", "value_serde": "string"}
    with pytest.raises(statestore.InvalidInputError, match=r"STATE_SELECTION.*0_0, 1_0.*open one task"):
        statestore.inspect(tmp_path / "app", **options).table("stock").scan()
    rows = statestore.inspect(tmp_path / "app" / "1_0", **options).table("stock").scan().read_all().to_pylist()
    assert [row["value"] for row in rows] == ["1_0"]


def test_a_kind_that_the_folders_cannot_have_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    state = folders["orders"] / "state" / "orders"
    for store, kind in (("carts", "key-value"), ("stock", "window"), ("visits", "versioned")):
        with pytest.raises(statestore.InvalidInputError, match="KAFKA_STORE_KIND"):
            statestore.inspect(state, kind=kind).table(store).scan()
    database(tmp_path / "app" / "0_0" / "rocksdb" / "rates", {bytes(7) + b"\3x": b"abc"})
    given: dict[str, Any] = {"kind": "versioned", "key_serde": "string", "value_serde": "long", "retention": 5}
    rates = statestore.inspect(tmp_path / "app", **given).table("rates")
    with pytest.raises(statestore.CorruptError, match="KAFKA_BYTES"):
        rates.scan(as_of=5)


def test_the_past_of_versions_needs_their_retention(folders: dict[str, Path]) -> None:
    """After a restart, the oldest segment on disk may lie before a gap."""
    menu: Any = statestore.inspect(folders["orders"] / "state" / "orders").table("menu")
    with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*option retention"):
        menu.scan(as_of=menu.table.known_from(1) // 1000 - 1)


def test_plain_stores_have_no_past(folders: dict[str, Path]) -> None:
    stock = table(folders, "orders", "stock")
    for read, asked in ((stock.scan, {"as_of": 1}), (stock.history, {}), (stock.changes, {})):
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*key-value.*changelog"):
            read(**asked)


def test_a_running_application_without_files_is_not_empty(folders: dict[str, Path]) -> None:
    running = statestore.inspect(folders["orders"] / "running" / "orders")
    with pytest.raises(statestore.NotFoundError, match=r"ROWS_NOT_FLUSHED.*changelog"):
        running.table("stock").scan().read_all()
    allowed = statestore.inspect(folders["orders"] / "running" / "orders", allow_unflushed=True)
    with pytest.warns(statestore.StateStoreWarning, match="stock of .*memory"):
        assert allowed.table("stock").scan().read_all().num_rows == 0
    assert any("memory" in problem for problem in running.summary("stock").problems)


def test_a_segment_that_is_dropped_after_a_read_was_planned_is_left_out(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    state = tmp_path / "orders"
    for task in (folders["orders"] / "state" / "orders").glob("4_*"):
        shutil.copytree(task / "events", state / task.name / "events")
    events = statestore.inspect(state).table("events")
    planned, before = events.scan(), events.scan().read_all()
    segments = sorted(state.glob("4_*/events/events.*"), key=lambda folder: folder.suffix)
    shutil.rmtree(segments[0])
    left = planned.read_all()
    assert 0 < left.num_rows < before.num_rows
    assert left.to_pylist() == statestore.inspect(state).table("events").scan().read_all().to_pylist()


def test_a_wrong_serde_names_the_first_row_and_its_bytes(folders: dict[str, Path]) -> None:
    stock = statestore.inspect(folders["orders"] / "state" / "orders", key_serde="integer").table("stock")
    with pytest.raises(statestore.CorruptError, match=r"KAFKA_BYTES.*found 61.*expected an Integer"):
        stock.scan().read_all()


@pytest.mark.parametrize(("name", "store"), MOSTLY_SLOW)
def test_a_key_finds_its_rows(folders: dict[str, Path], name: str, store: str) -> None:
    opened = table(folders, name, store)
    rows = opened.scan().read_all()
    if "key" not in rows.column_names:
        return
    keys = rows["key"].to_pylist()
    distinct = list(dict.fromkeys(keys))
    for asked in (distinct[:1], distinct[1:3], distinct[-3:]):
        found = opened.scan(filter=("key", "in", asked)).read_all()
        assert found.num_rows == sum(key in asked for key in keys)


@pytest.mark.parametrize(("name", "store"), SEGMENTED)
def test_times_select_segments(folders: dict[str, Path], name: str, store: str) -> None:
    opened = table(folders, name, store)
    rows = opened.scan().read_all()
    column = next((each for each in ("session_end", "window_start") if each in rows.column_names), None)
    if column is None:
        return
    times = sorted(rows[column].to_pylist())
    for at in (times[0], times[len(times) // 2], times[-1]):
        for sign, count in ((">=", sum(t >= at for t in times)), ("<", sum(t < at for t in times))):
            assert opened.scan(filter=(column, sign, at)).read_all().num_rows == count


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["ledger"]))
def test_the_directory_is_the_same_afterwards(folders: dict[str, Path], name: str) -> None:
    folder = folders[name] / "state" / name
    before = content(folder)
    found = statestore.inspect(folder)
    for store in found.tables():
        found.summary(store)
        assert found.table(store).scan().read_all().num_rows >= 0
    assert content(folder) == before


def content(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_guesses_say_that_they_are_guesses(folders: dict[str, Path]) -> None:
    folder = folders["orders"] / "state" / "orders"
    found = statestore.inspect(folder)
    assert found.about("carts").kind == "session (guessed)"
    assert found.about("carts").facts["key serde"].startswith("String, guessed: ")
    assert found.about("prices").kind == "timestamped-key-value"
    (given,) = summaries(folder / "carts", {"kind": "session", "keyserde": "string", "valueserde": "long"})
    assert (given["kind"], given["facts"]["value serde"]) == ("session", "long, given")
    assert statestore.inspect(folders["orders"] / "running" / "orders").about("stock").kind == "unknown"


def test_offsets_of_each_partition_are_shown(folders: dict[str, Path]) -> None:
    """After a clean close, the offset is that of the changelog's last record. The time of a flush is RocksDB's own, not
    that of a file, which a copy has anew."""
    for name, store in (("orders", "stock"), ("bookings", "rooms")):
        found = the_store(name, store)
        (shown,) = summaries(folders[name] / "state" / name / store)
        assert len(shown["details"]) == len(found["partitions"])
        records = application(name).changelogs[found["changelog"]]
        for part, detail in zip(found["partitions"], shown["details"], strict=True):
            last = max(record["offset"] for record in records if record["partition"] == part["partition"])
            assert detail.startswith(f"{part['task']}: last flush 2026-11-")  # the files are of 2025
            assert f"offset {last} of {found['changelog']}-{part['partition']} (" in detail


def test_all_stores_of_the_applications_are_listed(folders: dict[str, Path]) -> None:
    for name in APPLICATIONS:
        stores = {store["name"] for store in application(name).stores() if is_on_disk(store)}
        assert set(statestore.inspect(folders[name] / "state" / name).tables()) == stores


def test_options_of_a_read_describe_the_store_of_a_path(folders: dict[str, Path], tmp_path: Path) -> None:
    """Options of other owners, such as those of Spark's session, do not hide that the rest describes a store."""
    given = stores_file("orders", tmp_path / "stores.toml")
    path = folders["orders"] / "state" / "orders" / "carts"
    opened = open_table(path, {"storesFile": str(given), "path": str(path), "asOf": "0"})
    assert "expired" in opened.schema(Query()).names


def test_an_estimate_is_not_shown_as_the_number_of_rows(folders: dict[str, Path]) -> None:
    """RocksDB estimates 3 rows for this store, which has 6."""
    (prices,) = summaries(folders["orders"] / "state" / "orders" / "prices", {"keyserde": "string"})
    assert (prices["keys"], prices["rows"]) == (None, None)


# Stores of an application whose RocksDBConfigSetter chose zlib, against what its own queries answered.

Key = tuple[str, int | None, int | None]


@pytest.fixture(scope="module")
def zlib_application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zlib")
    with tarfile.open(DATA / "kafka" / "zlib.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "rk-zlib"


def milliseconds(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def key_of(row: dict[str, Any]) -> Key:
    if "session_start" in row:
        return row["key"], milliseconds(row["session_start"]), milliseconds(row["session_end"])
    return row["key"], milliseconds(row.get("window_start")), None


def test_scans_and_lookups_have_the_rows_of_the_application(zlib_application: Path) -> None:
    truth: dict[str, dict[Key, Any]] = defaultdict(dict)
    for line in (zlib_application / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        truth[row["store"]][row["key"], row.get("start"), row.get("end")] = row["value"]
    state = statestore.inspect(zlib_application / "state" / "rk-zlib")
    assert len(truth) > 3
    for store, rows in truth.items():
        table = state.table(store)
        assert {key_of(row): row["value"] for row in table.scan().read_all().to_pylist()} == rows
        one = min(rows)
        found = table.scan(filter=("key", "=", one[0])).read_all().to_pylist()
        assert {key_of(row): row["value"] for row in found} == {k: v for k, v in rows.items() if k[0] == one[0]}
        assert state.summary(store).damaged is False


def test_an_error_names_the_path_of_the_state(zlib_application: Path, tmp_path: Path) -> None:
    """Databases are read through private copies, whose names tell nobody anything."""
    folder = tmp_path / "app" / "0_0" / "rocksdb" / "counts"
    folder.mkdir(parents=True)
    for path in (zlib_application / "state" / "rk-zlib" / "1_0" / "rocksdb" / "counts").iterdir():
        data = bytearray(path.read_bytes())
        if path.suffix == ".sst":
            data[20] ^= 1
        (folder / path.name).write_bytes(data)
    (tmp_path / "app" / "0_0" / ".checkpoint").write_text("0\n1\napp-counts-changelog 0 7\n")
    given: dict[str, Any] = {"kind": "key-value", "key_serde": "string", "value_serde": "long"}
    with pytest.raises(statestore.CorruptError, match="ROCKSDB_FILE") as raised:
        statestore.inspect(tmp_path / "app", **given).table("counts").scan().read_all()
    assert f"{folder}/" in raised.value.message
    assert "statestore-" not in raised.value.message.replace(str(tmp_path), "")


def test_values_in_blob_files_of_zlib_are_no_damage(zlib_application: Path, tmp_path: Path) -> None:
    """RocksDB takes them for damaged ones: it is built without zlib."""
    folder = tmp_path / "app" / "0_0" / "rocksdb" / "counts"
    folder.parent.mkdir(parents=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_enable_blob_files(True)
    options.set_blob_compression_type(DBCompressionType.lz4())
    database = Rdict(str(folder), options)
    database[b"a"] = bytes(100)
    database.close()
    (folder.parents[1] / ".checkpoint").write_text("0\n1\napp-counts-changelog 0 7\n")
    (blobs,) = folder.glob("*.blob")
    data = bytearray(blobs.read_bytes())
    data[13] = 2  # the codec of the file's values
    blobs.write_bytes(data)
    state = statestore.inspect(tmp_path / "app", kind="key-value")
    with pytest.raises(statestore.UnsupportedError, match=r"ROCKSDB_UNSUPPORTED.*compression Zlib.*blob files"):
        state.table("counts").scan().read_all()
    summary = state.summary("counts")
    assert summary.damaged is False
    assert any("Zlib" in problem for problem in summary.problems)
    assert not any("MANIFEST" in problem for problem in summary.problems)
