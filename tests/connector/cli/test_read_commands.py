"""Commands that read: points of time, ranges, limits; the JSON output carries the content of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.command_line import at_terminal, cells, run

import statestore
from statestore.catalog.reads.table import Table
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.connector.terminal import cell, human_bytes

DAY = 86_400_000


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(root)
    with catalog.create_store(
        "prices", key={"item": "string"}, value={"price": "double", "note": "string"}, history_retention="30 days"
    ) as store:
        store.put("curry", (8.0, None), 1000)
        store.put("milk", (2.0, "a\nb"), 2000)
        store.commit()
        store.put("curry", (9.5, None), 5000)
        store.put("milk", None, 6000)
        store.put("rice", (float("nan"), "x" * 100), 6000)
        store.commit()
        store.put("pasta", (1.0, "not committed"), 7000)
    with catalog.create_store("many", key={"k": "bigint"}, value={"v": "bigint"}) as many:
        for number in range(3000):
            many.put(number, number, number)
        many.commit()
    with catalog.create_store("counts", "key_value", key={"k": "string"}, value={"v": "bigint"}) as counts:
        counts.put("a", 1)
        counts.put("b", 1)
        counts.commit()
        counts.put("a", 2)
        counts.delete("b")
        counts.commit()
    return root


CHANGED: dict[str, Any] = {
    "change": "changed",
    "key": {"item": "curry"},
    "old": {"price": 8.0, "note": None},
    "new": {"price": 9.5, "note": None},
    "columns": ["price"],
}
REMOVED: dict[str, Any] = {
    "change": "removed",
    "key": {"item": "milk"},
    "old": {"price": 2.0, "note": "a\nb"},
    "new": None,
    "columns": [],
}
ADDED: dict[str, Any] = {
    "change": "added",
    "key": {"item": "rice"},
    "old": None,
    "new": {"price": "NaN", "note": "x" * 100},
    "columns": [],
}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("1", "2", [CHANGED, REMOVED, ADDED]),
        ("1", "latest", [CHANGED, REMOVED, ADDED]),
        ("1970-01-01T00:00:02Z", "latest", [CHANGED, REMOVED, ADDED]),
        ("2000ms", "5000ms", [CHANGED]),
        ("1", "2@5000ms", [CHANGED]),
        ("2@2000ms", "1970-01-01T01:00:05+01:00", [CHANGED]),
        ("2", "2", []),
        ("LATEST", "2", []),
    ],
)
def test_diff_between_points(warehouse: Path, start: str, end: str, expected: list[dict[str, Any]]) -> None:
    found = run("diff", warehouse, "prices", "--from", start, "--to", end, "--json")
    assert (found.code, found.rows) == (0, expected)
    kinds = [row["change"] for row in expected]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("added", "changed", "removed"))
    assert found.err == f"{counts} (from {start} to {end})\n"


def test_reversed_diff_is_the_undo(warehouse: Path) -> None:
    found = run("diff", warehouse, "prices", "--from", "latest", "--to", "1", "--json").rows
    assert [(row["change"], row["key"]["item"]) for row in found] == [
        ("changed", "curry"),
        ("added", "milk"),
        ("removed", "rice"),
    ]


def test_diff_table_shows_old_and_new(warehouse: Path) -> None:
    rows = cells(run("diff", warehouse, "prices", "--from", "1"))
    assert rows == [
        ["change", "item", "price", "note"],
        ["changed", "curry", "8.0 → 9.5", "null"],
        ["removed", "milk", "2.0", "a\\nb"],
        ["added", "rice", "NaN", "x" * 100],
    ]


def test_diff_of_chosen_columns_and_limit(warehouse: Path) -> None:
    found = run("diff", warehouse, "prices", "--from", "1", "--columns", "note", "--limit", "1", "--json")
    assert found.rows == [{**REMOVED, "old": {"note": "a\nb"}}]
    assert found.err == "1 added, 0 changed, 1 removed (from 1 to latest)\n1 more row; --limit 2 shows all\n"


def test_diff_of_a_key_value_store(warehouse: Path) -> None:
    """State time is commit time there, so versions are the natural points."""
    assert [
        (row["change"], row["key"]["k"]) for row in run("diff", warehouse, "counts", "--from", "1", "--json").rows
    ] == [
        ("changed", "a"),
        ("removed", "b"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["curry", "rice"]),
        (("--version", "1"), ["curry", "milk"]),
        (("--as-of", "1970-01-01T00:00:01Z"), ["curry"]),
        (("--version", "2", "--as-of", "2000ms"), ["curry", "milk"]),
        (("--where", "price > 9"), ["curry", "rice"]),
        (("--where", "note IS NULL OR item = 'milk'", "--as-of", "2500ms"), ["curry", "milk"]),
        (("--where", "item LIKE 'm%'", "--version", "1"), ["milk"]),
        (("--columns", "item, price", "--where", "note IS NULL"), ["curry"]),
    ],
)
def test_scan(warehouse: Path, options: tuple[str, ...], expected: list[str]) -> None:
    found = run("scan", warehouse, "prices", *options, "--json")
    assert (found.code, sorted(row["item"] for row in found.rows), found.err) == (0, expected, "")


def test_scan_shows_the_columns_asked_for(warehouse: Path) -> None:
    found = run("scan", warehouse, "prices", "--columns", "price,item,_commit_version", "--version", "1", "--json")
    assert [list(row) for row in found.rows] == [["price", "item", "_commit_version"]] * 2


def test_scan_stops_at_the_limit(warehouse: Path) -> None:
    found = run("scan", warehouse, "many", "--limit", "10", "--json")
    assert len(found.rows) == 10 and found.err == "2990 more rows; --limit 3000 shows all\n"
    filtered = run("scan", warehouse, "many", "--where", "k % 2 = 0", "--limit", "10", "--json")
    assert len(filtered.rows) == 10 and filtered.err == "more rows; a greater --limit shows them\n"
    assert run("scan", warehouse, "many", "--limit", "3000", "--json").err == ""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [8.0, 9.5]),
        (("--from", "5000ms"), [9.5]),
        (("--to", "4999ms"), [8.0]),
        (("--from", "4999ms", "--to", "5000ms"), [8.0, 9.5]),
        (("--to", "999ms"), []),
        (("--version", "1"), [8.0]),
    ],
)
def test_history_of_a_range(warehouse: Path, options: tuple[str, ...], expected: list[float]) -> None:
    assert [row["price"] for row in run("history", warehouse, "prices", "curry", *options, "--json").rows] == expected


def test_the_first_columns_of_a_key_mean_all_keys_that_begin_so(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"key": {"user": "string", "room": "int"}, "value": {"n": "bigint"}}
    with statestore.connect(tmp_path).create_store("s", "session", retention="1 day", **columns) as sessions:
        for number, user in enumerate(("u0", "u0", "u1")):
            sessions.put((user, number), 1000, 2000 + number, number)
            sessions.put((user, number), 5000, 6000, number)
        sessions.commit()
    for command in ("get", "history"):
        found = run(command, tmp_path, "s", '{"user": "u0"}', "--json").rows
        assert sorted((row["user"], row["room"]) for row in found) == [("u0", 0)] * 2 + [("u0", 1)] * 2
    assert run("get", tmp_path, "s", '{"user": "u2"}').code == 1
    assert run("get", tmp_path, "s", '{"room": 0}').code == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--from", "1", "--to", "1"), [(1, "insert"), (1, "insert")]),
        (("--from", "5001ms", "--to", "latest"), [(2, "delete"), (2, "insert")]),
        (("--to", "1970-01-01T00:00:01Z"), [(1, "insert")]),
        (
            ("--from", "latest"),
            [(2, "delete"), (2, "insert"), (2, "update_postimage"), (2, "update_preimage")],
        ),
    ],
)
def test_changes(warehouse: Path, options: tuple[str, ...], expected: list[tuple[int, str]]) -> None:
    found = run("changes", warehouse, "prices", *options, "--json")
    assert sorted((row["_commit_version"], row["_change_type"]) for row in found.rows) == expected
    whole = run("changes", warehouse, "prices", "--columns", "item,_change_type").out
    assert len(whole.splitlines()) == 4 + 6


FAILURES: list[tuple[int, str, tuple[str, ...]]] = [
    (1, "VERSION_NOT_FOUND", ("diff", "{}", "prices", "--from", "9")),
    (1, "TABLE_NOT_FOUND", ("diff", "{}", "price", "--from", "1")),
    (1, "COLUMN_NOT_FOUND", ("diff", "{}", "prices", "--from", "1", "--columns", "weight")),
    (1, "COLUMN_NOT_FOUND", ("scan", "{}", "prices", "--columns", "weight")),
    (2, "INVALID_VERSION", ("diff", "{}", "prices", "--from", "1357016400000")),
    (2, "NAIVE_DATETIME", ("diff", "{}", "prices", "--from", "2013-01-01T00:00:00")),
    (2, "INVALID_TIME", ("diff", "{}", "prices", "--from", "yesterday")),
    (2, "INVALID_TIME", ("diff", "{}", "prices", "--from", "1@soon")),
    (2, "INVALID_RANGE", ("history", "{}", "prices", "curry", "--from", "2ms", "--to", "1ms")),
    (2, "CONFLICTING_OPTIONS", ("changes", "{}", "prices", "--from", "1", "--to", "5000ms")),
    (2, "INVALID_SQL", ("scan", "{}", "prices", "--where", "price >")),
    (2, "INVALID_SQL", ("scan", "{}", "prices", "--where", "weight > 1")),
    (2, "INVALID_SQL", ("scan", "{}", "prices", "--where", "true); SELECT (1")),
]


@pytest.mark.parametrize(("code", "name", "arguments"), FAILURES)
def test_failures(warehouse: Path, code: int, name: str, arguments: tuple[str, ...]) -> None:
    found = run(*(argument.replace("{}", str(warehouse)) for argument in arguments))
    assert (found.code, found.out) == (code, "") and name in found.err and found.err.count("\n") == 1


def test_a_diff_without_a_start_is_wrong_usage(warehouse: Path) -> None:
    assert run("diff", warehouse, "prices").code == 2


# Tables


def shown(value: Any) -> str:
    found = cell(value)
    return "null" if found is None else found


READS: list[tuple[str, ...]] = [
    ("get", "prices", "curry"),
    ("history", "prices", "curry"),
    ("scan", "prices"),
    ("scan", "many", "--limit", "50"),
    ("changes", "prices"),
    ("versions", "prices"),
    ("sql", "SELECT * FROM prices ORDER BY item"),
]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_json_carries_what_the_table_shows(warehouse: Path, arguments: tuple[str, ...]) -> None:
    """A pipe gets the same rows and columns, with whole values, one line each."""
    name, *rest = arguments
    header, *body = cells(run(name, warehouse, *rest))
    rows = run(name, warehouse, *rest, "--json").rows
    assert rows and [list(row) for row in rows] == [header] * len(rows)
    assert body == [[shown(value) for value in row.values()] for row in rows]


def test_json_of_inspect_carries_what_the_table_shows(warehouse: Path) -> None:
    header, *body = cells(run("inspect", warehouse))
    sizes = {"live": "bytes", "on disk": "disk_bytes"}
    rows = run("inspect", warehouse, "--json").rows
    for row, line in zip(rows, body, strict=True):
        for name, text in zip(header, line, strict=True):
            value = row[sizes.get(name, name.replace(" ", "_"))]
            if name in sizes:
                assert text == human_bytes(value)
            elif name in ("key", "value"):
                assert text == ", ".join(f"{column} {kind}" for column, kind in value.items())
            elif name == "health":
                assert text == ("; ".join(value) or "ok")
            else:
                assert text == ("for ever" if name == "retention" and value is None else shown(value))


def test_json_of_diff_carries_what_the_table_shows(warehouse: Path) -> None:
    header, *body = cells(run("diff", warehouse, "prices", "--from", "1"))
    for row, line in zip(run("diff", warehouse, "prices", "--from", "1", "--json").rows, body, strict=True):
        told = dict(zip(header, line, strict=True))
        assert (told["change"], told["item"]) == (row["change"], row["key"]["item"])
        for name in ("price", "note"):
            sides = [shown(row[side][name]) for side in ("old", "new") if row[side] is not None]
            assert told[name] == " → ".join(sides if name in row["columns"] else sides[:1])


def test_a_terminal_cuts_long_cells(warehouse: Path) -> None:
    """The widest cells give way at 100 columns; --full shows them; no line is wrapped."""
    long = "x" * 100
    found = at_terminal(100, "scan", warehouse, "prices", "--columns", "item,price,note")
    assert "xxx…" in found.out and long not in found.out
    assert max(map(len, found.out.splitlines())) <= 100
    assert long in at_terminal(200, "scan", warehouse, "prices", "--columns", "item,price,note", "--full").out
    assert long in run("scan", warehouse, "prices").out


def test_a_narrow_terminal_shows_blocks(warehouse: Path) -> None:
    """A terminal too narrow for a table shows each row as a block of names and values."""
    found = at_terminal(40, "versions", warehouse, "many").out.splitlines()
    assert found[0].startswith("── 1 ─") and max(map(len, found)) <= 40
    assert [line.split()[1] for line in found if line.startswith("version ")] == ["1", "0"]
    full = at_terminal(40, "scan", warehouse, "prices", "--full").out.splitlines()
    assert f"note        {'x' * 100}" in full


# Inspect


def test_scan_counts_only_rows_that_are_there(tmp_path: Path) -> None:
    """Rows that later commits closed are stored, and are not left out by --limit."""
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        for version in range(5):
            for key in range(4):
                store.put(key, version, timestamp=10 * version)
            store.commit()
    for limit, said in ((3, "1 more row; --limit 4 shows all\n"), (4, ""), (5, "")):
        found = run("scan", tmp_path, "s", "--limit", str(limit), "--json")
        assert (len(found.rows), found.err) == (min(limit, 4), said)
    assert run("changes", tmp_path, "s", "--limit", "3", "--json").err == "more rows; a greater --limit shows them\n"


@pytest.mark.parametrize("width", [60, 100, 150, 200])
def test_inspect_always_shows_keys_and_values(warehouse: Path, width: int) -> None:
    """Other columns give way first; without room for a table each store is a block with whole cells."""
    found = at_terminal(width, "inspect", warehouse)
    assert "…" not in found.out and max(map(len, found.out.splitlines())) <= width
    if width <= 100:  # the health of one store is long
        stores = [line.split()[1] for line in found.out.splitlines() if line.startswith("store ")]
        assert stores == ["counts", "many", "prices"] and found.err == ""
        assert "value        price double, note string" in found.out and "last commit" in found.out
        return
    header, *body = cells(found)
    assert {"store", "key", "value", "on disk", "health"} <= set(header)
    assert "key" in cells(at_terminal(80, "inspect", warehouse / "many"))[0]
    texts = {text for line in body for text in line}
    assert {"counts", "many", "prices", "item string", "price double, note string"} <= texts
    hidden = {"writer", "last commit", "retention", "from", "kind", "version", "to", "live"} - set(header)
    said = found.err.removeprefix("no room for ").split(";")[0]
    assert set(said.split(", ") if said else ()) == hidden


@pytest.mark.local_files
def test_inspect_shows_what_lies_on_disk(tmp_path: Path) -> None:
    """All files count: log, changelog, hot tier, and segments that wait for vacuum."""
    catalog = statestore.connect(tmp_path)
    columns: dict[str, Any] = {"key": {"k": "bigint"}, "value": {"v": "bigint"}}
    for kind in ("versioned", "key_value"):
        with catalog.create_store(kind, kind, **columns) as store:
            for version in range(3):
                for key in range(500):
                    store.put(key, version, *([version] if kind == "versioned" else []))
                store.commit()
            store.compact(full=True)
            store.put(1, 7, *([9] if kind == "versioned" else []))
    for row in run("inspect", tmp_path, "--json").rows:
        walked = sum(path.stat().st_size for path in (tmp_path / row["store"]).rglob("*") if path.is_file())
        assert row["disk_bytes"] == walked > row["bytes"] > 0
        assert human_bytes(walked) in run("inspect", tmp_path / row["store"]).out


def test_keys_are_counted_as_a_scan_does(tmp_path: Path) -> None:
    """Live rows, whatever closed them: later commits, the same commit, expired windows, compaction."""
    catalog = statestore.connect(tmp_path)
    columns: dict[str, Any] = {"key": {"k": "bigint"}, "value": {"v": "bigint"}}
    late_and_closed = [(0, (100, 102)), (0, (101,)), (10, (50,)), (10, (40,)), (20, (50,)), (20, (45,)), (3, (90, 91))]
    with catalog.create_store("versioned", **columns) as versioned:
        for number in range(6):
            for key in range(4):
                versioned.put(key, None if (number + key) % 3 == 0 else number, timestamp=10 * number - key % 2)
                versioned.put(key + 10 * number, 1, timestamp=10 * number + 1)
            versioned.commit()
            if number == 3:
                versioned.compact(full=True)
        for key, times in late_and_closed:
            for time in times:  # late records close a row once more, and rows may be born closed
                versioned.put(key, 1, timestamp=time)
            versioned.commit()
    with catalog.create_store("windows", "window", retention=100, window_size=10, segment_interval=50, **columns) as w:
        for start in range(0, 400, 10):
            w.put(1, start, start)
            if start % 100 == 0:
                w.commit()
        w.commit()
    with catalog.create_store("counts", "key_value", **columns) as counts:
        for version in range(3):
            counts.put(version, 1)
            counts.put(0, version)
            counts.commit()
    found = {row["store"]: row["keys"] for row in run("inspect", tmp_path, "--json").rows}
    inspection = statestore.inspect(tmp_path)
    assert found == {name: inspection.table(name).scan().read_all().num_rows for name in inspection.tables()}
    assert min(found.values()) > 1


@pytest.mark.local_files
def test_inspect_tells_acknowledged_puts(warehouse: Path) -> None:
    rows = {row["store"]: row for row in run("inspect", warehouse, "--json").rows}
    assert (rows["many"]["status"], rows["many"]["health"]) == ("ok", [])
    prices = rows["prices"]
    assert (prices["status"], prices["uncommitted"]) == ("attention", 1)
    assert prices["health"] == [f"1 uncommitted puts ({prices['changelog_bytes']} bytes of changelog)"]
    assert (prices["retention"], prices["retention_ms"]) == ("30 days", 30 * DAY)
    files = (warehouse / "prices" / "segments").iterdir()
    assert prices["bytes"] == sum(path.stat().st_size for path in files)


@pytest.mark.local_files
def test_inspect_shows_the_others_where_one_is_damaged(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    for name in ("a", "b", "c", "d"):
        with catalog.create_store(name, key={"k": "string"}, value={"v": "bigint"}) as store:
            store.put("x", 1, timestamp=1)
            store.commit()
    (tmp_path / "a" / "store.json").write_text("{}")
    (tmp_path / "b" / "log" / f"{1:020d}.json").write_bytes(b"x")
    (segment,) = (tmp_path / "d" / "segments").iterdir()
    segment.unlink()
    found = run("inspect", tmp_path, "--json")
    assert found.code == 1 and found.err.startswith("damaged: a, b, d;")
    rows = {row["store"]: row for row in found.rows}
    assert [rows[name]["status"] for name in "abcd"] == ["damaged", "damaged", "ok", "damaged"]
    assert "STORE_CORRUPT" in rows["a"]["health"][0] and "LOG_CORRUPT" in rows["b"]["health"][0]
    assert rows["d"]["health"] == [f"damaged: segments/{segment.name} is missing"]
    assert rows["c"]["keys"] == 1


@pytest.mark.local_files
def test_inspect_says_what_upkeep_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"v": "bigint"}) as store:
        for number in range(4):
            store.put(1, number, timestamp=number)
            store.commit()
        monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_fan_in=5))
        assert run("inspect", tmp_path, "--json").rows[0]["health"] == []
        monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_fan_in=4))
        assert run("inspect", tmp_path, "--json").rows[0]["health"] == ["needs compaction (4 deltas)"]
        store.compact(full=True)
        assert run("inspect", tmp_path, "--json").rows[0]["health"] == []
        orphan = tmp_path / "s" / "segments" / f"{'0' * 32}.arrow"
        orphan.write_bytes(bytes(77))
        (row,) = run("inspect", tmp_path, "--json").rows  # no commit under way can name the file
        assert row["health"] == ["needs vacuum (77 bytes of unreferenced files)"] and row["unreferenced_bytes"] == 77
        assert Table(store.table).scan().read_all().num_rows == 1
