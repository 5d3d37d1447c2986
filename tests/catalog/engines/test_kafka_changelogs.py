"""Changelogs of real Kafka Streams applications through the doors: rows, moments and history by their records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.applications import unpacked
from support.kafka.real_applications import APPLICATIONS, application, data, plain_rows
from support.kafka.store_answers import cases, expected, missing, the_store
from support.kafka.unpacked import is_on_disk, stores_file
from support.parameters import mostly_slow

import statestore

BUFFERS = ("grace-join-buffer", "suppression-buffer")
LOGGED = cases(lambda store: store["changelog"] is not None and store["kind"] not in BUFFERS)
PLAIN = ("key-value", "timestamped-key-value", "headers-key-value", "in-memory-key-value")
REPLAYED = cases(lambda store: store["changelog"] is not None and store["kind"] in PLAIN)

VALUES = ("window_end", "value", "left_value", "right_value", "instruction", "hash")
COMPARED = cases(lambda store: store["changelog"] is not None and is_on_disk(store) and store["kind"] not in BUFFERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: unpacked(name) for name in APPLICATIONS} | {"described": tmp_path_factory.mktemp("described")}


def table(folders: dict[str, Path], name: str, topic: str, below: str = "changelog", **options: Any) -> Any:
    """A changelog, or a store, as its users describe it. The other stores' descriptions would only take time to
    parse."""
    (store,) = [each["name"] for each in application(name).stores() if topic in (each["name"], each["changelog"])]
    given = stores_file(name, folders["described"] / f"{name}-{store}.toml", everything=True, only=store)
    return statestore.inspect(folders[name] / below, stores_file=str(given), **options).table(topic)


def rows_of(reader: Any, partition: int | None = None) -> list[dict[str, Any]]:
    rows = [row for batch in reader for row in plain_rows(batch)]
    return [row for row in rows if partition is None or row["partition_id"] == partition]


@pytest.mark.parametrize(("name", "store"), mostly_slow(LOGGED, 2))
def test_a_changelog_gives_the_rows_of_its_store(folders: dict[str, Path], name: str, store: str) -> None:
    """Each row that the store answered; rows of kinds with a retention may have expired in the store."""
    found = the_store(name, store)
    scanned = rows_of(table(folders, name, found["changelog"]).scan())
    wanted = []
    for part in found["partitions"]:
        rows = [row for row in scanned if row["partition_id"] == part["partition"]]
        wanted += part["rows"]
        assert missing(rows, without_what_is_not_logged(found, part["rows"])) == Counter()
    if not found.get("retention_ms"):
        assert len(scanned) == len(wanted)


def without_what_is_not_logged(store: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows but for their timestamps, where the store converted rows of an older release: it did not know them."""
    found = [expected(store, row) for row in rows]
    if any(row.get("timestamp", 0) is None for row in found):
        return [{name: cell for name, cell in row.items() if name not in ("timestamp", "headers")} for row in found]
    return found


@pytest.mark.parametrize(("name", "store"), mostly_slow(REPLAYED, 3))
def test_moments_are_prefixes_of_the_log(folders: dict[str, Path], name: str, store: str) -> None:
    found = the_store(name, store)
    records = application(name).changelogs[found["changelog"]]
    states = table(folders, name, found["changelog"])
    times = sorted({record["timestamp"] for record in records})
    kept = states.table.known_from(1)
    for time in times[:: max(1, len(times) // 3)]:
        if kept is not None and time * 1000 < kept:
            with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
                states.scan(as_of=time)
            continue
        rows = Counter((row["partition_id"], row["changelog_offset"]) for row in rows_of(states.scan(as_of=time)))
        assert rows == Counter(replayed(records, time).values())


def replayed(records: list[dict[str, Any]], time: int) -> dict[tuple[int, str], tuple[int, int]]:
    """(partition, offset) of each key's newest record in the prefix before the first record later than ``time``."""
    newest: dict[tuple[int, str], tuple[int, int]] = {}
    ended = set()
    for record in records:
        if record["timestamp"] > time:
            ended.add(record["partition"])
        if record["partition"] in ended:
            continue
        key = record["partition"], record["key"]
        newest.pop(key, None)
        if record["value"] is not None:
            newest[key] = record["partition"], record["offset"]
    return newest


@pytest.mark.parametrize(("name", "store"), mostly_slow(REPLAYED, 3))
def test_an_offset_ends_the_log(folders: dict[str, Path], name: str, store: str) -> None:
    found = the_store(name, store)
    records = application(name).changelogs[found["changelog"]]
    last = {p: [r["offset"] for r in records if r["partition"] == p] for p in {r["partition"] for r in records}}
    until = {p: offsets[len(offsets) // 2] for p, offsets in last.items()}
    text = ",".join(f"{p}:{offset}" for p, offset in until.items())
    rows = rows_of(table(folders, name, found["changelog"], until_offset=text).scan())
    prefix = [record for record in records if record["offset"] <= until[record["partition"]]]
    wanted = Counter(replayed(prefix, 1 << 62).values())
    assert Counter((row["partition_id"], row["changelog_offset"]) for row in rows) == wanted


@pytest.mark.parametrize(("name", "store"), mostly_slow(LOGGED, 3))
def test_rows_and_history_of_a_key_are_its_part_of_all(folders: dict[str, Path], name: str, store: str) -> None:
    states = table(folders, name, the_store(name, store)["changelog"])
    for read in (states.history, states.scan):
        whole = read().read_all()
        if "key" not in whole.column_names or pa.types.is_floating(whole["key"].type):
            return
        rows = [str(row) for row in whole.to_pylist()]
        keys = whole["key"].to_pylist()
        for key in list(dict.fromkeys(keys))[:2]:
            found = read(filter=("key", "=", key)).read_all().to_pylist()
            wanted = [row for row, own in zip(rows, keys, strict=True) if own == key]
            assert Counter(map(str, found)) == Counter(wanted)


def test_segments_of_a_broker_are_the_exported_records(folders: dict[str, Path]) -> None:
    for name in ("orders", "bookings"):
        logs = statestore.inspect(folders[name] / "log").tables()
        for store in application(name).stores():
            topic = store["changelog"]
            if topic in logs and store["kind"] in PLAIN:
                of_log = rows_of(table(folders, name, topic, "log").history())
                assert of_log
                key = lambda row: (row["partition_id"], row["changelog_offset"])  # noqa: E731
                assert sorted(of_log, key=key) == sorted(rows_of(table(folders, name, topic).history()), key=key)


def test_a_kind_is_guessed_from_keys(folders: dict[str, Path]) -> None:
    """Kinds that log alike are told apart by nothing; the form of the keys is what counts."""
    guessed = statestore.inspect(folders["orders"] / "changelog")
    for store in application("orders").stores():
        kind = guessed.about(store["changelog"]).kind.removesuffix(" (guessed)") if store["changelog"] else ""
        if "session" in store["kind"] and kind:
            assert kind == "session"
        elif "window" in store["kind"] and kind:
            assert kind in ("timestamped-window", "window-duplicates")
        elif store["kind"] in (*PLAIN, "versioned"):
            assert kind == "timestamped-key-value"


@pytest.mark.parametrize(("name", "store"), mostly_slow(COMPARED, 6))
def test_a_directory_and_its_changelog_differ_in_nothing(folders: dict[str, Path], name: str, store: str) -> None:
    """The answer to "is my local state right?": timestamps and headers that an old release did not keep differ."""
    found = the_store(name, store)
    local = table(folders, name, store, f"state/{name}", hide_expired=True)
    logged = table(folders, name, found["changelog"], hide_expired=True)
    columns = [each for each in VALUES if each in logged.schema.names]
    assert local.compare(logged, columns=columns).read_all().to_pylist() == []
    assert local.scan().read_all().num_rows > 0


def test_a_difference_of_state_and_changelog_is_found(folders: dict[str, Path]) -> None:
    topic = the_store("orders", "prices")["changelog"]
    short = table(folders, "orders", topic, until_offset="0:3,1:100000")
    local = table(folders, "orders", "prices", "state/orders")
    changed = Counter(row["_change"] for row in local.compare(short).read_all().to_pylist())
    assert changed["removed"] > 0
    back = Counter(row["_change"] for row in short.compare(local).read_all().to_pylist())
    assert (back["added"], back["removed"]) == (changed["removed"], changed["added"])
    with pytest.raises(statestore.InvalidInputError, match="INCOMPATIBLE_STATE"):
        local.compare(table(folders, "orders", "carts", "state/orders"))


@pytest.mark.parametrize(("name", "store"), cases(lambda store: store["kind"] == "versioned"))
def test_versions_of_a_changelog_reach_back_beyond_the_retention(
    folders: dict[str, Path], name: str, store: str
) -> None:
    """A log has versions that its store has dropped; those are marked, and none of the store's is missing."""
    found = the_store(name, store)
    logged = rows_of(table(folders, name, found["changelog"]).history())
    local = rows_of(table(folders, name, store, f"state/{name}").history())
    columns = ("partition_id", "key", "value", "valid_from", "valid_to", "expired")
    mine, theirs = (Counter(tuple(row[c] for c in columns) for row in rows) for rows in (logged, local))
    assert theirs - mine == Counter()
    assert all(row[-1] for row in mine - theirs)
    hidden = rows_of(table(folders, name, found["changelog"], hide_expired=True).history())
    assert Counter(tuple(row[c] for c in columns) for row in hidden) == +Counter(
        {row: count for row, count in mine.items() if not row[-1]}
    )


def test_records_of_files_and_bytes_that_are_not_hex(tmp_path: Path) -> None:
    (tmp_path / "app-stock-changelog.jsonl").write_text('{"key": "zz", "value": null, "timestamp": 1}\n')
    with pytest.raises(statestore.StateStoreError, match="KAFKA_RECORDS"):
        statestore.inspect(tmp_path).table("app-stock-changelog").scan().read_all()


def test_a_parquet_file_is_a_changelog(folders: dict[str, Path], tmp_path: Path) -> None:
    topic = the_store("orders", "prices")["changelog"]
    records = application("orders").changelogs[topic]
    columns = {
        "key": pa.array([data(r["key"]) for r in records], pa.binary()),
        "value": pa.array([data(r["value"]) for r in records], pa.binary()),
        **{name: pa.array([r[name] for r in records], pa.int64()) for name in ("timestamp", "offset", "partition")},
    }
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / f"{topic}.parquet")
    given = str(stores_file("orders", tmp_path / "stores.toml", everything=True))
    of_parquet = statestore.inspect(tmp_path, stores_file=given).table(topic).scan()
    assert rows_of(of_parquet) == rows_of(table(folders, "orders", topic).scan())
