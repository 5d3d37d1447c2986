"""Captured stores: versions of a source as commits, read back as the states that they were."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.places import DIRECTORY, MEMORY, warehouse_in
from support.stores.captured import (
    APPLICATION,
    BAG,
    BAG_COLUMNS,
    FLOATS,
    FLOATS_COLUMNS,
    KEYED,
    KEYED_COLUMNS,
    Cells,
    capture,
    new_store,
)

import statestore
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import Captured
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.catalog.summaries import summaries
from statestore.formats.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StateStoreError,
    UnsupportedError,
)
from statestore.formats.notices import notices_to

SECOND = 1_000_000
Row = tuple[Any, ...]


def random_contents(count: int, seed: int) -> list[Cells]:
    """Contents of a list, in which equal rows repeat: the number of each element is a part of the store's key."""
    dice = random.Random(seed)
    lists: dict[str, list[int]] = {}
    found: list[Cells] = []
    for _ in range(count):
        for _ in range(dice.randrange(4)):
            elements = lists.setdefault(dice.choice("abc"), [])
            if elements and dice.random() < 0.4:
                elements.pop(dice.randrange(len(elements)))
            else:
                elements.append(dice.randrange(3))
        found.append({(k, copy): (n,) for k, each in lists.items() for copy, n in enumerate(each)})
    return found


def bag_of(content: Cells) -> Counter[Row]:
    return Counter((k, n) for (k, _), (n,) in content.items())


def rows_of(read: Any, *names: str) -> Counter[Row]:
    return Counter(tuple(row[name] for name in names) for row in read.to_arrow().to_pylist())


def n_of(warehouse: Path, name: str, key: Any, **asked: Any) -> int | None:
    row = statestore.inspect(warehouse).table(name).get(key, **asked)
    return None if row is None else int(row["n"])


def at(key: str, *rows: Row) -> pa.Table:
    """Return the left side of a join, with keys and epoch milliseconds."""
    keys, times = zip(*rows, strict=True)
    return pa.table({key: list(keys), "time": pa.array(times, pa.timestamp("ms", "UTC"))})


def captured_bag(warehouse: Path, contents: list[Cells], gaps: dict[int, tuple[int, int]]) -> CapturedStore:
    """Capture contents as versions 10, 20, …, at as many seconds; the one before the first of ``gaps`` is missing."""
    store = new_store(warehouse, "events", BAG, BAG_COLUMNS)
    old: Cells = {}
    for place, content in enumerate(contents):
        number = 10 * (place + 1)
        source = SourceVersion(number, number * SECOND, (number - 1) * SECOND, f"at {number}", gaps.get(number))
        assert capture(store, source, old, content, number - 10 or None) == place + 1
        old = content
    return store


@pytest.mark.parametrize("seed", range(3))
def test_a_bag_reads_back_as_it_was(tmp_path: Path, seed: int) -> None:
    """At each version and moment, in its changes and differences, however it is compacted, without the numbers."""
    contents = random_contents(12, seed)
    store = captured_bag(tmp_path, contents, {})
    table = statestore.inspect(tmp_path).table("events")
    assert table.schema.names == ["k", "n", "valid_from", "valid_to"]
    for _ in range(2):
        for place, content in enumerate(contents):
            moment = 10_000 * (place + 1)
            assert rows_of(table.scan(version=place + 1), "k", "n") == bag_of(content)
            for as_of in (moment, moment + 9_999):
                assert rows_of(table.scan(as_of=as_of), "k", "n") == bag_of(content)
            assert rows_of(table.scan(columns=["_copy", "k", "n"], version=place + 1), "k", "_copy", "n") == Counter(
                (*key, *cells) for key, cells in content.items()
            )
        bag: Counter[Row] = Counter()
        changes = table.changes().to_arrow().to_pylist()
        for place, content in enumerate(contents):
            for row in changes:
                if row["_commit_version"] == place + 1:
                    bag[row["k"], row["n"]] += -1 if row["_change_type"] in ("delete", "update_preimage") else 1
            assert +bag == bag_of(content)
        for first, last in ((1, 12), (3, 7), (9, 2), (4, 5)):
            before, after = bag_of(contents[first - 1]), bag_of(contents[last - 1])
            found: Counter[Row] = Counter()
            for row in table.diff(start_version=first, end_version=last).to_arrow().to_pylist():
                side = row["_new"] if row["_change"] == "added" else row["_old"]
                found[row["_change"], row["k"], side["n"]] += 1
            expected = [
                (kind, *row)
                for kind, rows in (("added", after - before), ("removed", before - after))
                for row in rows.elements()
            ]
            assert found == Counter(expected)
        store.compact(full=True)
    assert not statestore.verify(tmp_path)[0].problems


def test_differences_of_a_bag_are_compared_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows with other numbers are in one part."""
    monkeypatch.setattr("statestore.catalog.reads.difference.PART_ROWS", 1)
    before = {(k, copy): (copy,) for k in "abcdefgh" for copy in range(6)}
    after = {(k, copy): (copy + 1,) for k in "abcdefgh" for copy in range(5)}
    captured_bag(tmp_path, [before, after], {})
    found = statestore.inspect(tmp_path).table("events").diff(start_version=1, end_version=2).to_arrow().to_pylist()
    assert sorted((row["_change"], row["k"], row["_old"]["n"]) for row in found) == [
        ("removed", k, 0) for k in "abcdefgh"
    ]


@pytest.fixture(params=[DIRECTORY, MEMORY])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A warehouse in a directory, and one in an object store."""
    return warehouse_in(request.param, request, tmp_path)


def test_a_version_is_captured_once_and_after_the_one_that_it_changes(anywhere: str) -> None:
    first = new_store(anywhere, "counts", KEYED, KEYED_COLUMNS)
    second = statestore.connect(anywhere).open_store("counts")
    one, two, three = ({("a",): (number,)} for number in range(3))
    assert first.newest is None
    assert capture(first, SourceVersion(1, SECOND), {}, one, None) == 1
    assert capture(second, SourceVersion(1, SECOND), {}, one, None) == 1, "it is there"
    assert capture(second, SourceVersion(2, SECOND), one, one, 1) == 2, "although nothing changed"
    with pytest.raises(ConflictError, match=r"VERSION_TAKEN.*batch 4 was to follow batch 1.*is batch 2"):
        capture(first, SourceVersion(4, 4 * SECOND, missing=(2, 3)), one, two, 1)
    with pytest.raises(ConflictError, match=r"VERSION_TAKEN.*follow none"):
        capture(first, SourceVersion(4, 4 * SECOND), {}, two, None)
    assert capture(first, SourceVersion(4, 4 * SECOND + 999, missing=(3, 3)), one, two, 2) == 3
    with pytest.raises(ConflictError, match="VERSION_TAKEN"):
        capture(second, SourceVersion(3, 3 * SECOND), one, three, 2)
    for late in (SourceVersion(3, 5 * SECOND), SourceVersion(5, 3 * SECOND)):
        with pytest.raises(InvalidInputError, match=f"INVALID_COMMIT.*batch {late.version} of .*batch 4"):
            capture(second, late, two, three, 4)
    second.refresh()
    assert second.newest == SourceVersion(4, 4 * SECOND, missing=(3, 3)), "in the milliseconds of rows"
    assert second.get("a") == (1, 4_000, None)
    assert second.observed_stream_time == 4_000


@pytest.mark.parametrize(
    "source", [SourceVersion(2, 5, missing=(2, 2)), SourceVersion(2, 5, missing=(1, 0)), SourceVersion(2, 2**70)]
)
def test_what_could_not_be_read_again_is_not_committed(tmp_path: Path, source: SourceVersion) -> None:
    store = new_store(tmp_path, "counts", KEYED, KEYED_COLUMNS)
    with pytest.raises(StateStoreError, match="INVALID_COMMIT"):
        capture(store, source, {}, {}, None)
    with pytest.raises(InvalidInputError, match=r"INVALID_COMMIT.*version 2 of a source"):
        store.write(
            store.scan().to_arrow().drop_columns(["valid_to"]).rename_columns(["k", "n", "timestamp"]),
            transaction=(APPLICATION, 3),
            source=SourceVersion(2, 5),
        )


def test_only_the_capture_writes(tmp_path: Path) -> None:
    store = new_store(tmp_path, "counts", KEYED, KEYED_COLUMNS)
    capture(store, SourceVersion(1, SECOND), {}, {("a",): (1,)}, None)
    rows = store.scan().to_arrow().drop_columns(["valid_to"]).rename_columns(["k", "n", "timestamp"])
    for write in (
        lambda: store.put("a", 2, 5_000),
        lambda: store.put_all(rows),
        lambda: store.delete("a", 5_000),
        lambda: store.restore([("a", 2, 5_000)]),
        lambda: store.write(rows),
        lambda: store.write(rows, "overwrite", (APPLICATION, 2), source=SourceVersion(2, 2 * SECOND)),
    ):
        with pytest.raises(ReadOnlyError, match=f"READ_ONLY.*'counts' of {KEYED.path}"):
            write()
    store.commit()
    store.close()
    with pytest.raises(UnsupportedError, match=f"REBUILD_KIND.*{KEYED.path}"):
        statestore.connect(tmp_path).rebuild("counts")
    assert n_of(tmp_path, "counts", "a") == 1


# Rows that an engine writes again

VALUES = pa.schema(
    {
        "text": pa.string(),
        "bytes": pa.binary(),
        "float": pa.float64(),
        "struct": pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
        "map": pa.map_(pa.string(), pa.float64()),
    }
)
CELLS: list[dict[str, Any]] = [
    {"text": "é", "bytes": b"", "float": 0.0, "struct": {"a": 1, "b": ["x", None]}, "map": [("k", 0.5)]},
    {"text": None, "bytes": None, "float": None, "struct": None, "map": None},
    {"text": "", "bytes": b"\x00", "float": float("nan"), "struct": {"a": None, "b": None}, "map": []},
]
OTHERS: list[dict[str, Any]] = [
    {"text": "e"}, {"text": ""}, {"bytes": None}, {"float": -0.0}, {"float": None}, {"struct": None},
    {"struct": {"a": 1, "b": ["x"]}}, {"map": [("k", 0.25)]}, {"map": None}, {"map": [("j", 0.5)]},
]  # fmt: skip


def written(store: CapturedStore, number: int, *records: dict[str, Any], at: int | None = None) -> tuple[int, int]:
    """Commit records as a version; return the numbers of values and tombstones that are new in the store."""
    schema = pa.schema([*store.spec.key, *store.spec.value, pa.field("_change_type", pa.string())])
    moment = number * SECOND if at is None else at
    rows = pa.Table.from_pylist([{"_change_type": "insert", **record} for record in records], schema)
    rows = rows.append_column("timestamp", pa.array([moment] * rows.num_rows, pa.timestamp("us", "UTC")))
    source = SourceVersion(number, number * SECOND)
    version = store.write(rows, "append", (APPLICATION, number), source=source, after=number - 1 or None)
    commit = store.versions().to_pylist()[version]
    return commit["rows"], commit["tombstones"]


def test_rows_that_are_written_again_are_no_changes(anywhere: str) -> None:
    store = new_store(anywhere, "counts", KEYED, (pa.schema({"k": pa.string()}), VALUES))
    rows = [{"k": f"key {number}", **cells} for number, cells in enumerate(CELLS)]
    assert written(store, 1, *rows) == (3, 0)
    assert written(store, 2, *rows, {"k": "none", "_change_type": "delete"}) == (0, 0)
    store.compact(full=True)
    last = rows[0]
    for number, change in enumerate(OTHERS, 3):
        changed = {**rows[0], **change}
        assert written(store, number, changed, *rows[1:]) == (1, 0), change
        last = changed
    gone = {"k": "key 1", "_change_type": "delete"}
    assert written(store, 13, last, gone) == (0, 1)
    assert written(store, 14, gone, {"k": "key 2", **CELLS[2]}) == (0, 0)
    assert written(store, 15, rows[1]) == (1, 0), "it is there again"
    assert rows_of(store.history("key 0"), "k") == Counter({("key 0",): 1 + len(OTHERS)})
    assert rows_of(store.history("key 1"), "k") == Counter({("key 1",): 2})
    assert rows_of(store.history("key 2"), "k") == Counter({("key 2",): 1})


def test_records_that_are_late_or_have_one_key_are_all_kept(tmp_path: Path) -> None:
    """Which of them changes something is decided by the order of their times."""
    own = Captured("source-1", BAG.path, "counts", "versioned", ("offset", "offsets"), ("k",), ("k",), (), True)
    store = new_store(tmp_path, "counts", own, KEYED_COLUMNS)
    assert written(store, 1, {"k": "a", "n": 1}, at=SECOND) == (1, 0)
    store.write(
        pa.table({"k": ["a", "a"], "n": [2, 1], "timestamp": [5_000, 5_000]}),
        transaction=(APPLICATION, 5), source=SourceVersion(5, 5 * SECOND), after=1,
    )  # fmt: skip
    assert store.get("a", 5_000) == (1, 5_000, None)
    store.write(
        pa.table({"k": ["a"], "n": [None], "timestamp": [3_000], "_change_type": ["delete"]}),
        transaction=(APPLICATION, 6), source=SourceVersion(6, 6 * SECOND), after=5,
    )  # fmt: skip
    assert [store.get("a", moment) for moment in (2_000, 4_000)] == [(1, 1_000, 3_000), None]


# Moments that no captured version tells


@pytest.fixture(scope="module")
def gapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 10 to 60 at as many seconds; 21 to 29 and 45 are missing before 30 and 50."""
    path = tmp_path_factory.mktemp("gapped")
    captured_bag(path, [{("a", 0): (number,)} for number in range(6)], {30: (21, 29), 50: (45, 45)}).close()
    return path


FIRST = (
    "batches 21 to 29 were gone before they could be captured, and nothing is known of the state after "
    "1970-01-01T00:00:20.000Z and before 1970-01-01T00:00:30.000Z"
)
SECOND_GAP = (
    "batch 45 was gone before it could be captured, and nothing is known of the state after 1970-01-01T00:00:40.000Z "
    "and before 1970-01-01T00:00:50.000Z"
)
BEGINNING = "its capture begins at 1970-01-01T00:00:10.000Z, and nothing is known of the state before"
ASKED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("scan", {}, []),
    ("scan", {"version": 3}, []),
    ("scan", {"as_of": 19_999}, []),
    ("scan", {"as_of": 20_000}, []),
    ("scan", {"as_of": 20_001}, [FIRST]),
    ("scan", {"as_of": 29_999}, [FIRST]),
    ("scan", {"as_of": 29_999, "version": 2}, []),
    ("scan", {"as_of": 30_000}, []),
    ("scan", {"as_of": 45_000}, [SECOND_GAP]),
    ("scan", {"as_of": 9_999}, [BEGINNING]),
    ("history", {}, [FIRST, SECOND_GAP]),
    ("history", {"key": "a"}, [FIRST, SECOND_GAP]),
    ("history", {"version": 3}, [FIRST]),
    ("history", {"start_time": 30_000, "end_time": 39_999}, []),
    ("history", {"start_time": 29_999, "end_time": 40_000}, [FIRST, SECOND_GAP]),
    ("history", {"start_time": 5_000, "end_time": 19_999}, [BEGINNING]),
    ("changes", {}, [FIRST, SECOND_GAP]),
    ("changes", {"start_version": 4}, [SECOND_GAP]),
    ("changes", {"start_version": 4, "end_version": 4}, []),
    ("changes", {"end_version": 3}, [FIRST]),
    ("changes", {"start_time": 30_000}, [FIRST, SECOND_GAP]),
    ("changes", {"start_time": 30_001, "end_time": 39_999}, []),
    ("changes", {"start_time": 21_000, "end_time": 22_000}, [FIRST]),
    ("diff", {"start_version": 1, "end_version": 5}, []),
    ("diff", {"start_time": 25_000, "end_time": 35_000}, [FIRST]),
]


@pytest.mark.parametrize(("read", "asked", "expected"), ASKED)
def test_a_question_about_unknown_moments_says_so(
    gapped: Path, read: str, asked: dict[str, Any], expected: list[str]
) -> None:
    told: list[str] = []
    with notices_to(told.append):
        getattr(statestore.inspect(gapped).table("events"), read)(**asked).to_arrow()
    assert told == [f"events, captured from {BAG.path}: {reason}" for reason in expected]
    strict = statestore.inspect(gapped, strict=True).table("events")
    if expected:
        with pytest.raises(NotFoundError, match=r"ROWS_UNCERTAIN.*nothing is known"):
            getattr(strict, read)(**asked).to_arrow()
    else:
        getattr(strict, read)(**asked).to_arrow()


def test_reads_of_keys_say_so_too(tmp_path: Path) -> None:
    store = new_store(tmp_path, "counts", KEYED, KEYED_COLUMNS)
    capture(store, SourceVersion(1, SECOND), {}, {("a",): (1,)}, None)
    capture(store, SourceVersion(4, 4 * SECOND, missing=(2, 3)), {("a",): (1,)}, {("a",): (2,)}, 1)
    reads: list[tuple[Any, int]] = [
        (lambda: store.get("a"), 0),
        (lambda: store.get("a", 4_000), 0),
        (lambda: store.get("a", 3_999), 1),
        (lambda: store.get_many(["a"], 2_000), 1),
        (lambda: list(store.get_versions("a")), 1),
        (lambda: list(store.get_versions("a", 4_000)), 0),
        (lambda: store.history("a").to_arrow(), 1),
        (lambda: store.history("a", 4_000).to_arrow(), 0),
        (lambda: statestore.asof_join(at("k", ("a", 3_000)), store, on="k", left_time="time"), 1),
    ]
    for number, (read, count) in enumerate(reads):
        told: list[str] = []
        with notices_to(told.append):
            read()
        assert len(told) == count, number


def test_many_gaps_are_counted(tmp_path: Path) -> None:
    gaps = {number: (number - 5, number - 1) for number in range(20, 100, 10)}
    captured_bag(tmp_path, [{("a", 0): (number,)} for number in range(9)], gaps)
    told: list[str] = []
    with notices_to(told.append):
        statestore.inspect(tmp_path).table("events").history()
    assert len(told) == 4
    assert told[-1].endswith("5 later gaps, which the versions of the table show (missing_from, missing_to)")
    rows = statestore.inspect(tmp_path).table("events").versions().to_pylist()
    assert [(row["missing_from"], row["missing_to"]) for row in rows] == [
        (None, None),
        (None, None),
        *((number - 5, number - 1) for number in range(20, 100, 10)),
    ]
    assert [row["offsets"] for row in rows] == [None, *(f"at {number}" for number in range(10, 100, 10))]
    assert [row["batch"] for row in rows] == [None, *range(10, 100, 10)]
    assert [row["watermark"] and row["watermark"].timestamp() for row in rows] == [None, *range(9, 99, 10)]
    (summary,) = summaries(str(tmp_path))
    assert summary["health"] == ["8 gaps (batches that were gone before they could be captured)"]
    assert (summary["kind"], summary["facts"]["captured_from"]) == ("captured list", BAG.path)
    found = summary["captured"]
    assert (found["newest"], found["newest_time"], found["gaps"], found["missing_versions"]) == (
        90,
        "1970-01-01T00:01:30.000Z",
        8,
        8 * 5,
    )
    assert found["newest_gaps"][-1] == {
        "first": 85,
        "last": 89,
        "since": "1970-01-01T00:01:20.000Z",
        "until": "1970-01-01T00:01:30.000Z",
    }
    assert 0 <= found["watermark_age_seconds"] - found["lag_seconds"] - 1 < 0.01
    assert [line.partition(":")[0] for line in summary["details"]] == [
        "newest captured batch",
        "lag",
        "its watermark",
        "oldest key",
        *["gap"] * 8,
    ]


def test_rows_with_their_own_times_have_a_past_before_the_capture(tmp_path: Path) -> None:
    own = Captured("source-1", BAG.path, "counts", "versioned", ("offset", "offsets"), ("k",), ("k",), (), True)
    store = new_store(tmp_path, "counts", own, KEYED_COLUMNS)
    capture(store, SourceVersion(9, 9 * SECOND), {}, {("a",): (1,)}, None)
    told: list[str] = []
    with notices_to(told.append):
        store.scan(as_of=5_000)
    assert told == []


# Keys that keys of stores cannot be


def test_a_state_with_a_digest_for_its_key(tmp_path: Path) -> None:
    store = new_store(tmp_path, "rates", FLOATS, FLOATS_COLUMNS)
    nan = float("nan")
    old: Cells = {(b"1",): (0.0, 1), (b"2",): (-0.0, 2), (b"3",): (nan, 3), (b"4",): (7.5, 4)}
    new: Cells = {(b"1",): (0.0, 1), (b"2",): (-0.0, 5), (b"3",): (nan, 6), (b"5",): (8.5, 7)}
    capture(store, SourceVersion(1, SECOND), {}, old, None)
    capture(store, SourceVersion(2, 2 * SECOND), old, new, 1)
    table = statestore.inspect(tmp_path).table("rates")
    assert (table.table.key_columns, table.table.row_key) == (("f",), ("f",))
    assert [n_of(tmp_path, "rates", key) for key in (7.5, 0.0, -0.0)] == [None, 1, 5]
    assert n_of(tmp_path, "rates", 7.5, version=1) == 4
    found = table.diff(start_version=1, end_version=2).to_arrow().to_pylist()
    assert sorted((row["_change"], str(row["f"])) for row in found) == [
        ("added", "8.5"),
        ("changed", "-0.0"),
        ("changed", "nan"),
        ("removed", "7.5"),
    ]
    joined = statestore.asof_join(
        at("f", (7.5, 1_500), (7.5, 2_500), (-0.0, 2_500)), store, on="f", left_time="time", how="left"
    )
    assert joined["n"].to_pylist() == [4, None, 5]
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*'rates' \(aggregate\)"):
        store.get(7.5)
    assert rows_of(store.history(7.5), "n") == Counter([(4,)])
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*'rates' \(aggregate\)"):
        store.get_many([7.5])


def test_a_key_of_a_bag_is_read_by_filters(tmp_path: Path) -> None:
    store = captured_bag(tmp_path, [{("a", 0): (1,), ("a", 1): (1,), ("b", 0): (2,)}], {})
    table = statestore.inspect(tmp_path).table("events")
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*several rows"):
        table.get("a")
    assert n_of(tmp_path, "events", "b") == 2
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*scan"):
        store.get("b")
    assert rows_of(store.history("a"), "k", "n") == Counter({("a", 1): 2})
    assert rows_of(table.scan(filter=("_copy", "=", 1)), "k") == Counter([("a",)])
    with pytest.raises(UnsupportedError, match="JOIN_KIND"):
        statestore.asof_join(at("k", ("a", 11_000)), store, on="k", left_time="time")
