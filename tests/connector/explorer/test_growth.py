"""The parts of Growth, over HTTP, are those of a plain model and of what Spark reads from its own checkpoints."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path, index, truth
from support.kafka.unpacked import unpack

import statestore
from statestore.connector.explorer import growth, limits
from statestore.connector.explorer.ages import EDGES, endings_in
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.connector.report import figures
from statestore.connector.report.key_counts import greatest

START = 1_714_550_000_000
KEYS = 60
COMMITS = 50
WINDOWS, GROUPS, TTL = "spark4.3.0-win__rkcl", "spark4.3.0-agg__hdfs", "spark4.3.0-twsttl__rkcl"


class Model:
    """A store in plain Python: what each commit wrote, and the rows that are valid now."""

    def __init__(self) -> None:
        self.versions: Counter[tuple[str, int]] = Counter()
        self.now: dict[tuple[str, int], tuple[str, int]] = {}
        self.rows: list[int] = [0]
        self.written: list[int] = [0]
        self.deleted: list[int] = [0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Model]:
    """A store with hot keys, deletes, and notes of different lengths."""
    folder, model = tmp_path_factory.mktemp("growth") / "warehouse", Model()
    catalog = statestore.connect(folder)
    with catalog.create_store("notes", key={"item": "string", "shop": "int"}, value={"note": "string"}) as store:
        for commit in range(COMMITS):
            written = deleted = 0
            for number in range(KEYS):
                key, time = (f"ü{number}", number % 3), START + 60_000 * commit + number
                if number < 2 or commit % (number // 2 + 1) == 0:
                    note = f"{commit}".ljust(number % 7 + commit % 11, "é")
                    store.put(key, note, timestamp=time)
                    model.versions[key] += 1
                    model.now[key] = (note, time)
                    written += 1
                elif (commit + number) % 13 == 0 and key in model.now:
                    store.delete(key, timestamp=time)
                    del model.now[key]
                    deleted += 1
            store.commit()
            model.rows.append(len(model.now))
            model.written.append(written)
            model.deleted.append(deleted)
    value = {
        "window": "struct<start:timestamp,end:timestamp>",
        "alive": "struct<ttlExpirationMs:bigint,expiresAtMicros:bigint>",
    }
    with catalog.create_store("ending", key={"id": "int"}, value=value) as store:
        for number in range(10):
            start, end = (datetime.fromtimestamp((START + each) / 1000, UTC) for each in (number - 1, number))
            ttl = None if number == 0 else 1 << 50 if number == 9 else START
            alive = {"ttlExpirationMs": ttl, "expiresAtMicros": 1000 * (START + 3 + 2 * number)}
            store.put(number, {"window": {"start": start, "end": end}, "alive": alive}, timestamp=START + number)
        store.commit()
    catalog.create_store("empty", key={"id": "binary"}, value={"n": "bigint"}).close()
    return str(folder), model


@pytest.fixture(scope="module")
def client(made: tuple[str, Model], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    paths = [made[0], *(str(checkpoint_path(name)) for name in (WINDOWS, GROUPS, TTL))]
    paths.append(str(checkpoint_path("spark4.3.0-evolved__rkav", MORE)))
    with TestClient(application(OpenedPaths(paths, {}), RowFiles(tmp_path_factory.mktemp("row_files")))) as found:
        yield found


def asked(client: TestClient, part: str, **given: Any) -> Any:
    response = client.get(f"/api/growth/{part}", params={"table": "notes", **given})
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("application/json"):
        return response.json()
    return pa.ipc.open_stream(response.content).read_all()


def refusal(client: TestClient, part: str, **given: Any) -> str:
    response = client.get(f"/api/growth/{part}", params={"table": "notes", **given})
    assert response.status_code in (400, 404, 409)
    return str(response.json()["error"])


def spark_rows(name: str, read: str) -> pa.Table:
    """Return the rows that Spark's own source reads."""
    return truth(index()[name]["reads"][read])


def tops(found: pa.Table) -> dict[tuple[str, int], int]:
    return {(row["item"], int(row["shop"])): int(row["__number"]) for row in found.to_pylist()}


def check_top(found: pa.Table, expected: dict[tuple[str, int], int]) -> None:
    """The keys and numbers are the greatest of all; of equal ones, any."""
    numbers = found["__number"].to_pylist()
    assert numbers == sorted(expected.values(), reverse=True)[: figures.TOP]
    assert len(tops(found)) == len(numbers)
    assert all(expected[key] == number for key, number in tops(found).items())
    assert found.schema.metadata[b"total"] == str(sum(expected.values())).encode()


# Over versions


def test_sizes_over_versions_are_those_of_the_model(client: TestClient, made: tuple[str, Model]) -> None:
    """Each run of versions ends where the next begins, so all changes are counted once."""
    model = made[1]
    found = asked(client, "versions")
    runs = [(int(row["first"]), int(row["version"])) for row in found.to_pylist()]
    last = runs[-1][1]
    assert len(runs) == figures.SAMPLED_VERSIONS < last
    assert [number for run in runs for number in range(run[0], run[1] + 1)] == list(range(last + 1))
    padded = {name: [*getattr(model, name), *[0] * (last - COMMITS)] for name in ("written", "deleted")}
    for name, of_versions in padded.items():
        assert found[name].to_pylist() == [sum(of_versions[first : end + 1]) for first, end in runs]
    rows = [*model.rows, *[model.rows[-1]] * (last - COMMITS)]
    assert found["rows"].to_pylist() == [rows[end] for _, end in runs]
    files = statestore.inspect(made[0]).table("notes$segments").scan().read_all()
    assert found["bytes"].to_pylist()[-1] == sum(row["bytes"] + (row["index_bytes"] or 0) for row in files.to_pylist())


def test_unknown_numbers_are_null_until_they_are_counted(client: TestClient) -> None:
    given = {"place": 2, "table": "state"}
    found = asked(client, "versions", **given)
    for name in ("rows", "written", "deleted"):
        assert found[name].null_count == found.num_rows == 6
    counted = asked(client, "versions", **given, read=1)
    before: dict[Any, Any] = {}
    for batch in range(6):
        rows = statestore.inspect(str(checkpoint_path(GROUPS))).table("state").scan(version=batch).read_all()
        now = {json.dumps(row["key"]): row["value"] for row in rows.to_pylist()}
        row = counted.slice(batch, 1).to_pylist()[0]
        assert row["rows"] == len(now)
        assert row["written"] == sum(before.get(key) != value for key, value in now.items())
        assert row["deleted"] == len(before.keys() - now.keys())
        before = now
    for batch, read in ((1, "op0~b1"), (3, "op0~b3"), (5, "op0~last")):
        assert counted["rows"].to_pylist()[batch] == spark_rows(GROUPS, read).num_rows


def test_a_state_that_old_versions_lack(client: TestClient) -> None:
    """The job got the state in its batch 4, so nothing is known of it in the batches before."""
    given = {"place": 4, "table": "newvar"}
    assert asked(client, "versions", **given)["bytes"].is_null().to_pylist() == [True] * 4 + [False] * 4
    rows = asked(client, "versions", **given, read=1)["rows"].to_pylist()
    table = statestore.inspect(str(checkpoint_path("spark4.3.0-evolved__rkav", MORE))).table("newvar")
    assert rows == [None] * 4 + [table.scan(version=version).read_all().num_rows for version in range(4, 8)]


def test_a_table_that_keeps_only_the_rows_of_now(tmp_path: Path) -> None:
    """Its rows and places are counted; its changes and ages are unknown."""
    path = str(unpack("orders", tmp_path) / "state")
    rows = statestore.inspect(path).table("closed-windows").scan().read_all()
    (tmp_path / "row_files").mkdir()
    with TestClient(application(OpenedPaths([path], {}), RowFiles(tmp_path / "row_files"))) as client:
        given = {"table": "closed-windows"}
        (sizes,) = asked(client, "versions", **given, read=1).to_pylist()
        assert (sizes["rows"], sizes["written"], sizes["deleted"]) == (rows.num_rows, None, None)
        ages = asked(client, "ages", **given)
        assert (ages["counts"], ages["rows"], ages["unknown"]) == (None, None, None)
        known = rows.num_rows - rows["window_end"].null_count
        assert [(each["field"], each["rows"]) for each in ages["endings"]] == [("window_end", known)]
        (skew,) = asked(client, "skew", **given)
        assert sum(skew["rows"]) == rows.num_rows > 0
        assert "keeps only the rows of now" in refusal(client, "busiest", **given)


def test_a_table_without_rows(client: TestClient) -> None:
    assert asked(client, "versions", table="empty")["rows"].to_pylist()[-1] == 0
    for part in ("busiest", "biggest"):
        found = asked(client, part, table="empty")
        assert found.num_rows == 0 and found.schema.names == ["id", "__number"]
    ages = asked(client, "ages", table="empty")
    assert (ages["at"], ages["counts"], ages["rows"]) == (None, None, 0)


# Keys


def test_the_busiest_keys(client: TestClient, made: tuple[str, Model]) -> None:
    """Keys that were deleted count, too."""
    check_top(asked(client, "busiest"), made[1].versions)
    assert asked(client, "busiest").schema.metadata[b"passes"] == b"1"


def test_the_biggest_keys(client: TestClient, made: tuple[str, Model]) -> None:
    sizes = {key: len(key[0].encode()) + 8 + len(note.encode()) for key, (note, _) in made[1].now.items()}
    check_top(asked(client, "biggest"), sizes)


def test_more_keys_than_fit_are_counted_exactly_in_more_passes(
    client: TestClient, made: tuple[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "greatest", partial(greatest, most=16))
    found = asked(client, "busiest")
    check_top(found, made[1].versions)
    assert int(found.schema.metadata[b"passes"]) > 1


def test_the_biggest_keys_of_a_moment(client: TestClient, made: tuple[str, Model]) -> None:
    rows = statestore.inspect(made[0]).table("notes").scan(version=9).read_all().to_pylist()
    sizes = {(row["item"], row["shop"]): len((row["item"] + row["note"]).encode()) + 8 for row in rows}
    check_top(asked(client, "biggest", version=9), sizes)


def test_the_busiest_keys_of_a_checkpoint(client: TestClient) -> None:
    """Keys that the newest state lacks are found in the history."""
    found = asked(client, "busiest", place=1, table="state")
    history = statestore.inspect(str(checkpoint_path(WINDOWS))).table("state").history().read_all()
    versions = Counter(json.dumps(key, default=str) for key in history["key"].to_pylist())
    assert found["__number"].to_pylist() == sorted(versions.values(), reverse=True)[: figures.TOP]
    assert found.num_rows == len(set(found["key"].to_pylist())) == figures.TOP
    for row in found.to_pylist():
        where = json.dumps([["key", "=", json.loads(row["key"])]])
        life = client.get("/api/life", params={"place": 1, "table": "state", "where": where})
        assert life.status_code == 200, life.text
        assert pa.ipc.open_stream(life.content).read_all().num_rows == row["__number"]


# Skew


@pytest.mark.parametrize(("place", "name"), [(1, WINDOWS), (2, GROUPS)])
def test_skew_is_that_of_the_rows_that_spark_reads(client: TestClient, place: int, name: str) -> None:
    (found,) = asked(client, "skew", place=place, table="state")
    rows = Counter(spark_rows(name, "op0~last")["partition_id"].to_pylist())
    assert dict(zip(found["values"], found["rows"], strict=True)) == {str(value): n for value, n in rows.items()}
    assert found["column"] == "partition_id"
    assert (found["most"], found["median"]) == (max(rows.values()), statistics.median(rows.values()))
    assert found["ratio"] == found["most"] / found["median"]


def test_a_store_has_no_places(client: TestClient) -> None:
    assert asked(client, "skew") == []


# Ages


def binned(ages: list[int]) -> list[int]:
    """Return the number of ages (microseconds) of each bar."""
    ends = [*EDGES[1:], 1 << 62]
    return [sum(low <= age < high for age in ages) for low, high in zip(EDGES, ends, strict=True)]


def test_ages_of_a_store_are_of_its_state_time(client: TestClient, made: tuple[str, Model]) -> None:
    found = asked(client, "ages")
    newest = START + 60_000 * (COMMITS - 1) + KEYS - 1
    versions = statestore.inspect(made[0]).table("notes").versions().to_pylist()
    at = int(versions[-1]["stream_time"].timestamp() * 1000)
    assert (found["clock"], found["at"]) == ("stream_time", at) and at <= newest
    assert found["counts"] == binned([1000 * (at - time) for _, time in made[1].now.values()])
    assert (found["later"], found["unknown"], found["rows"]) == (0, 0, len(made[1].now))
    assert found["endings"] == []


def test_ages_at_a_moment_of_state_time(client: TestClient, made: tuple[str, Model]) -> None:
    moment = START + 600_500
    found = asked(client, "ages", as_of=moment)
    rows = statestore.inspect(made[0]).table("notes").scan(as_of=moment).read_all()["valid_from"].to_pylist()
    assert found["at"] == moment and len(rows) == found["rows"] > 0
    assert found["counts"] == binned([1000 * (moment - round(each.timestamp() * 1000)) for each in rows])


def test_windows_before_the_watermark(client: TestClient) -> None:
    """Spark's log of offsets has the watermark of each batch; the ends of the windows are in its keys."""
    for batch, read in ((None, "op0~last"), (1, "op0~b1"), (3, "op0~b3")):
        given = {} if batch is None else {"version": batch}
        found = asked(client, "ages", place=1, table="state", **given)
        log = checkpoint_path(WINDOWS) / "offsets" / str(6 if batch is None else batch)
        said = json.loads(log.read_text().splitlines()[1])
        ends = [key["window"]["end"].replace(tzinfo=UTC) for key in spark_rows(WINDOWS, read)["key"].to_pylist()]
        watermark = datetime.fromtimestamp(said["batchWatermarkMs"] / 1000, UTC)
        (ending,) = found["endings"]
        assert (ending["field"], ending["clock"]) == ("key.window.end", "stream_time")
        assert (ending["at"], ending["rows"]) == (said["batchWatermarkMs"], len(ends))
        assert ending["ended"] == sum(end <= watermark for end in ends)
        assert found["at"] == said["batchTimestampMs"] and sum(found["counts"]) == len(ends)


def test_rows_of_a_time_to_live_are_compared_with_the_time_of_the_commit(client: TestClient) -> None:
    given = {"place": 3, "table": "tval"}
    (ending,) = asked(client, "ages", **given)["endings"]
    rows = spark_rows(TTL, "op0~last~tval")["value"].to_pylist()
    assert (ending["field"], ending["clock"]) == ("value.ttlExpirationMs", "commit_time")
    assert ending["rows"] == len(rows) > 0
    assert ending["ended"] == sum(row["ttlExpirationMs"] <= ending["at"] for row in rows)
    assert asked(client, "ages", place=3, table="val")["endings"] == []


def test_rows_past_their_end(client: TestClient) -> None:
    """Rows that end at the moment of the clock are past it. The commits are later than all times to live but one."""
    found = {ending["field"]: ending for ending in asked(client, "ages", table="ending")["endings"]}
    assert {(name, each["rows"], each["ended"]) for name, each in found.items()} == {
        ("window.end", 10, 10),
        ("alive.ttlExpirationMs", 9, 8),
        ("alive.expiresAtMicros", 10, 4),
    }


def test_an_unknown_watermark_makes_an_unknown_number(client: TestClient) -> None:
    (ending,) = asked(client, "ages", place=1, table="state", version=0)["endings"]
    assert (ending["at"], ending["ended"]) == (None, None) and ending["rows"] > 0


def test_fields_that_look_like_an_end() -> None:
    time, number = pa.timestamp("us", "UTC"), pa.int64()
    window = pa.struct([("start", time), ("end", time)])
    schema = pa.schema(
        [
            ("key", pa.struct([("window", window), ("end", time)])),
            ("end", time),
            ("window_start", time),
            ("window_end", time),
            ("range", pa.struct([("start", number), ("end", number)])),
            ("value", pa.struct([("ttlExpirationMs", number), ("expiresAtMicros", pa.string())])),
        ]
    )
    found = [".".join(ending.path) for ending in endings_in(schema)]
    assert found == ["key.window.end", "window_end", "value.ttlExpirationMs"]


# Limits


@pytest.mark.parametrize("part", ["versions", "busiest", "biggest", "ages"])
def test_the_time_of_each_part_is_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(limits, "SECONDS", -1.0)
    assert "the answer takes more than" in refusal(client, part)


def test_wrong_questions(client: TestClient) -> None:
    assert "no table 'none'" in refusal(client, "skew", table="none")
    assert "expected a whole number" in refusal(client, "biggest", version="x")
    assert "has no key" in refusal(client, "busiest", table="notes$versions")
