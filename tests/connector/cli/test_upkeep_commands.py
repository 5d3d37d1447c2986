"""verify, compact, expire and vacuum on the command line, next to open writers and with stores that are damaged."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import at_terminal, cells, run

import statestore
from statestore.catalog.log.log_state import file_names
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.connector.cli import each_store
from statestore.connector.terminal import Advance, cell, human_bytes

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
SCRIPT = Path(sys.executable).parent / "statestore"


def fill(store: VersionedStore) -> None:
    for number in range(4):
        store.put("a", number, timestamp=1000 * number)
        store.put(f"b{number}", number, timestamp=1000 * number)
        store.commit()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("one", **COLUMNS, history_retention="1 second", segment_interval=1000) as store:
        fill(store)
    with catalog.create_store("two", **COLUMNS) as store:
        fill(store)
    return tmp_path


def state(warehouse: Path, name: str) -> list[Any]:
    found = statestore.inspect(warehouse).table(name).scan(columns=["k", "v", "valid_from"]).read_all()
    return sorted(found.to_pylist(), key=str)


def test_verify_says_what_is_verified(warehouse: Path) -> None:
    found = run("verify", warehouse)
    assert found.code == 0 and "two: verified: every byte of" in found.out
    rows = run("verify", warehouse, "--json").rows
    assert [(row["store"], row["ok"], row["problems"]) for row in rows] == [("one", True, []), ("two", True, [])]
    header, *body = cells(found)
    for row, line in zip(rows, body, strict=True):
        values = [row[name.replace(" ", "_")] for name in header]
        shown = [human_bytes(v) if n == "bytes" else cell(v) for n, v in zip(header, values, strict=True)]
        assert line == shown
        assert f"{row['store']}: verified: {row['verified']}" in found.out.splitlines()
    assert [row["store"] for row in run("verify", warehouse, "two", "--json").rows] == ["two"]
    assert [row["store"] for row in run("verify", warehouse / "one", "--json").rows] == ["one"]


def test_verify_tells_all_problems(warehouse: Path) -> None:
    first, second, *_ = sorted((warehouse / "one/segments").glob("*.arrow"))
    first.write_bytes(first.read_bytes()[:-8] + bytes(8))
    second.unlink()
    found = run("verify", warehouse, "--json")
    assert found.code == 1
    one, two = found.rows
    assert (one["ok"], one["result"], two["ok"]) == (False, "2 problems", True)
    problems = {problem["file"]: problem for problem in one["problems"]}
    assert problems.keys() == {f"segments/{first.name}", f"segments/{second.name}"}
    flipped = problems[f"segments/{first.name}"]
    assert (flipped["region"], len(flipped["expected"]), len(flipped["found"])) == (0, 16, 16)
    assert flipped["versions"][0] >= 1 and flipped["from"].startswith("1970-01-01T00:00:0")
    printed = run("verify", warehouse)
    assert printed.code == 1 and "one: not verified" in printed.out
    for problem in one["problems"]:
        assert any(
            problem["file"] in line and problem["affects"] in line and str(problem["expected"] or "null") in line
            for line in printed.out.splitlines()
        )
        assert problem["message"] in printed.out


def test_compact(warehouse: Path) -> None:
    """Compact does only due work, unless all is requested; no answer changes, and an open writer still works."""
    before = {name: state(warehouse, name) for name in ("one", "two")}
    nothing = run("compact", warehouse, "--json").rows
    assert [(row["store"], row["compacted"], row["version"]) for row in nothing] == [
        ("one", False, 4),
        ("two", False, 4),
    ]
    with statestore.connect(warehouse).open_store("two") as writer:
        writer.put("c", 9, timestamp=9000)
        (row,) = run("compact", warehouse, "two", "--full", "--json").rows
        assert (row["store"], row["compacted"], row["version"]) == ("two", True, 5)
        assert row["closures_before"] == 3 and row["closures_after"] == 0
        assert row["segments_before"] == 4 and row["segments_after"] == 2
        assert {name: state(warehouse, name) for name in before} == before
        writer.commit()
    assert len(state(warehouse, "two")) == len(before["two"]) + 1
    assert run("verify", warehouse).code == 0


def test_full_means_what_it_means_in_python(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    copy = tmp_path_factory.mktemp("copy") / "warehouse"
    subprocess.run(["cp", "-pR", warehouse, copy], check=True)
    (row,) = run("compact", warehouse, "two", "--full", "--json").rows
    with statestore.connect(copy).open_store("two") as store:
        assert store.compact(full=True) == row["version"]
        assert store.metrics()["segments"] == row["segments_after"]
    old = run("compact", warehouse, "--all")
    assert old.code == 2 and "UNKNOWN_OPTION" in old.err and "write --full" in old.err


def test_expire(warehouse: Path) -> None:
    assert run("compact", warehouse, "--full").code == 0
    one, two = run("expire", warehouse, "--json").rows
    assert (one["expired"], one["kept_from"], one["retention"]) == (True, "1970-01-01T00:00:02.000Z", "1 second")
    assert (two["expired"], two["kept_from"], two["retention"]) == (False, None, "for ever")
    assert run("scan", warehouse, "one", "--as-of", "1000ms").code == 1
    assert run("scan", warehouse, "two", "--as-of", "1000ms").code == 0
    (two,) = run("expire", warehouse, "two", "--before", "1970-01-01T00:00:03Z", "--json").rows
    assert (two["kept_from"], two["oldest_version"]) == ("1970-01-01T00:00:03.000Z", 5)
    assert (two["segments_dropped"], two["bytes_dropped"] > 0) == (1, True)
    assert run("verify", warehouse).code == 0


def test_vacuum_lists_before_it_removes(warehouse: Path) -> None:
    before = state(warehouse, "two")
    run("compact", warehouse, "--full")
    assert run("vacuum", warehouse, "--older-than", "1 day", "--json") == (0, "", "0 files, 0 B removed\n")
    listed = run("vacuum", warehouse, "--dry-run", "--json")
    rows = listed.rows
    assert rows == run("vacuum", warehouse, "--dry-run", "--older-than", "0 s", "--json").rows
    assert {row["store"] for row in rows} == {"one", "two"} and not any(row["removed"] for row in rows)
    size = sum(row["bytes"] for row in rows)
    assert listed.err == f"{len(rows)} files, {human_bytes(size)} would be removed\n"
    paths = [warehouse / row["store"] / row["file"] for row in rows]
    assert size == sum(path.stat().st_size for path in paths)
    assert run("vacuum", warehouse, "two").code == 0
    left = {path.parts[-3] for path in paths if path.exists()}
    assert left == {"one"} and state(warehouse, "two") == before
    assert run("verify", warehouse).code == 0


@pytest.mark.parametrize(
    "arguments",
    [("compact", "--full"), ("expire", "--before", "2000ms"), ("vacuum", "--dry-run", "--older-than", "0s")],
    ids=lambda arguments: arguments[0],
)
def test_json_carries_what_the_table_shows(
    warehouse: Path, tmp_path_factory: pytest.TempPathFactory, arguments: tuple[str, ...]
) -> None:
    if arguments[0] == "vacuum":
        run("compact", warehouse, "--full")
    copy = tmp_path_factory.mktemp("copy")
    subprocess.run(["cp", "-pR", f"{warehouse}/.", copy], check=True)
    name, *options = arguments
    header, *body = cells(run(name, warehouse, *options))
    rows = run(name, copy, *options, "--json").rows
    random = {"seconds"} | {name for name in header if name.startswith("bytes") and arguments[0] == "compact"}
    for row, line in zip(rows, body, strict=True):
        assert [name.replace(" ", "_") for name in header] == list(row)
        for name, text in zip(row, line, strict=True):
            value = human_bytes(row[name]) if name.startswith("bytes") else cell(row[name])
            assert name in random or text == ("null" if value is None else value)


def test_a_store_that_fails_does_not_stop_the_others(warehouse: Path) -> None:
    (warehouse / "one" / "log" / f"{2:020d}.json").write_bytes(b"{}")
    found = run("compact", warehouse, "--full", "--json")
    assert found.code == 1 and [row["store"] for row in found.rows] == ["two"]
    assert found.err.startswith("statestore: one: [LOG_CORRUPT]")
    named = run("compact", warehouse, "one")
    assert (named.code, named.out) == (1, "") and named.err.startswith("statestore: [LOG_CORRUPT]")


@pytest.mark.parametrize(
    ("code", "name", "arguments"),
    [
        (1, "STORE_NOT_FOUND", ("verify", "{}", "three")),
        (1, "PATH_NOT_FOUND", ("verify", "{}/three")),
        (1, "TABLE_NOT_FOUND", ("compact", "{}", "three")),
        (2, "INVALID_DURATION", ("vacuum", "{}", "--older-than", "a while")),
        (2, "NAIVE_DATETIME", ("expire", "{}", "--before", "2013-01-01T00:00:00")),
    ],
)
def test_failures(warehouse: Path, code: int, name: str, arguments: tuple[str, ...]) -> None:
    found = run(*(argument.replace("{}", str(warehouse)) for argument in arguments))
    assert (found.code, found.out) == (code, "") and name in found.err and found.err.count("\n") == 1


def test_a_narrow_terminal(warehouse: Path) -> None:
    assert max(map(len, at_terminal(60, "verify", warehouse).out.splitlines())) <= 60


@pytest.mark.slow
def test_a_bar_is_drawn_for_a_terminal_only(warehouse: Path) -> None:
    """The bar is on stderr and goes away; stdout has the data alone."""
    command: list[str | Path] = [SCRIPT, "verify", warehouse, "--json"]
    silent = subprocess.run(command, capture_output=True, check=True)
    assert silent.stderr == b""
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        watched = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True, env=environment)
        drawn = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"verify two" in drawn and b"\x1b[" in drawn
    assert watched.stdout == silent.stdout


def test_the_bar_of_compact_counts_rows(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows from nothing to everything, for each store, and never beyond its total."""
    calls: list[tuple[str, int, int | None]] = []

    @contextlib.contextmanager
    def watched() -> Iterator[Advance]:
        yield lambda text, done, total: calls.append((text, done, total))

    monkeypatch.setattr(each_store, "progress", watched)
    assert run("compact", warehouse, "--full").code == 0
    for number, name in enumerate(("one", "two")):
        first, *rest = [(done, total) for text, done, total in calls if text == f"compact {name}"]
        assert first == (number, 2), "which of the stores, until its work reports rows"
        assert rest[0][0] == 0 and rest[-1][0] == rest[-1][1] and (rest[-1][1] or 0) >= 8
        assert all(total is not None and done <= total for done, total in rest)


@pytest.mark.slow
def test_hold_runs_a_command_while_files_stay(warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever another process replaces and vacuums meanwhile."""
    copy = tmp_path_factory.mktemp("copy") / "warehouse"
    with statestore.connect(warehouse).open_store("two", read_only=True) as store:
        needed = file_names(store._log_state)
    others = f"{SCRIPT} compact {warehouse} two --full && {SCRIPT} vacuum {warehouse} two"
    assert run("hold", warehouse, "--", "sh", "-c", f"{others} && cp -R {warehouse} {copy} && exit 7").code == 7
    assert all((copy / "two" / name).exists() for name in needed)
    assert run("verify", copy).code == 0
    assert {row["file"] for row in run("vacuum", warehouse, "two", "--json").rows} == needed
    wrong = run("hold", warehouse, "--", "no-such-command")
    assert wrong.code == 2 and "no-such-command cannot be run" in wrong.err


def test_interruption_is_130_without_a_traceback(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("statestore.catalog.checks.verification.verify_store", interrupt)
    found = run("verify", warehouse)
    assert (found.code, found.out) == (130, "") and "Traceback" not in found.err


# Forms of the output, and the question before all history of a store goes

PRINTING = ("verify", "compact", "expire", "vacuum")


@pytest.fixture
def two_stores(tmp_path: Path) -> Path:
    catalog = statestore.connect(tmp_path / "w")
    for name in ("a", "b"):
        with catalog.create_store(name, key={"k": "string"}, value={"v": "double"}) as store:
            for number in range(3):
                store.put("x", number, timestamp=f"2024-05-0{number + 1}T00:00Z")
                store.commit()
    return tmp_path / "w"


@pytest.mark.parametrize("command", PRINTING)
def test_csv_has_the_values_of_json(two_stores: Path, command: str) -> None:
    """Seconds differ between two runs, and are left out."""
    first: list[str | Path] = [command, two_stores, "--dry-run"] if command == "vacuum" else [command, two_stores]
    as_json, as_csv, as_tsv = (run(*first, "--format", form) for form in ("json", "csv", "tsv"))
    assert (as_json.code, as_csv.code, as_tsv.code) == (0, 0, 0)
    rows = list(csv.DictReader(io.StringIO(as_csv.out)))
    assert rows == list(csv.DictReader(io.StringIO(as_tsv.out), delimiter="\t")) or command == "compact"
    assert [row["store"] for row in rows] == [row["store"] for row in as_json.rows]
    for row, item in zip(rows, as_json.rows, strict=True):
        numbers = {name: text for name, text in row.items() if isinstance(item[name], int) and name != "ok"}
        assert numbers and {n: t for n, t in numbers.items() if t not in ("true", "false")} == {
            n: str(item[n]) for n in numbers if not isinstance(item[n], bool)
        }
    assert run(*first, "--format", "xml").code == 2


def test_vacuum_without_files_prints_the_header(two_stores: Path) -> None:
    assert run("vacuum", two_stores, "--format", "csv").code == 0
    assert run("vacuum", two_stores, "--format", "csv").out == "store,file,bytes,removed\n"


def test_problems_are_said_beside_csv(two_stores: Path) -> None:
    (log,) = (two_stores / "a" / "log").glob("*2.json")
    log.write_bytes(b"{}")
    found = run("verify", two_stores, "--format", "csv")
    rows = {row["store"]: row["result"] for row in csv.DictReader(io.StringIO(found.out))}
    assert found.code == 1 and rows["b"] == "ok" and "problem" in rows["a"] and "a: " in found.err


@pytest.mark.parametrize("answer", ["", "n\n", "y\n"])
def test_all_history_goes_after_a_question(two_stores: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    found = run("expire", two_stores, "a", "--before", "2024-06-01T00:00Z", "--json")
    assert "Remove all history of a, whose newest value is from 2024-05-03T00:00:00.000Z" in found.err
    expired = statestore.inspect(two_stores)["a"].versions()["operation"].to_pylist().count("expire")
    assert (found.code, expired) == ((0, 1) if answer == "y\n" else (1, 0))
    if expired:
        assert run("get", two_stores, "a", "x", "--json").rows[0]["v"] == 2.0


def test_no_question_with_yes_or_where_values_stay(two_stores: Path) -> None:
    assert run("expire", two_stores, "a", "--before", "2024-05-02T00:00Z").err == ""
    found = run("expire", two_stores, "--before", "2024-06-01T00:00Z", "--yes", "--json")
    assert (found.code, found.err) == (0, "") and [row["expired"] for row in found.rows] == [True, True]


def test_the_future_does_not_expire(two_stores: Path) -> None:
    """A horizon in the future would refuse reads and writes of today."""
    found = run("expire", two_stores, "--before", "2999-01-01T00:00Z", "--yes")
    assert (found.code, found.out) == (2, "") and "--before is 2999-01-01T00:00:00.000Z, in the future" in found.err
    with statestore.connect(two_stores).open_store("a") as store:
        with pytest.raises(statestore.InvalidInputError, match="in the future of 'a'"):
            store.expire(before="2999-01-01T00:00Z")
        store.put("x", 9.0, timestamp="2998-01-01T00:00Z")  # then that is the newest moment
        store.commit()
        store.expire(before="2997-12-31T00:00Z")
    assert run("get", two_stores, "a", "x", "--json").rows[0]["v"] == 9.0
