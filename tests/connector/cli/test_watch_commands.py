"""`watch`: the changes of each new version, once, as they appear, and alerts: statements over each version."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from support.command_line import run

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.cli.watch_commands import Checks, Shown, changes_of, new_versions, watch_alerts

KEYS = {"user": "string", "page": "string"}


@pytest.fixture
def store(tmp_path: Path) -> statestore.VersionedStore:
    made = statestore.connect(tmp_path).create_store("visits", key=KEYS, value={"n": "bigint"})
    commit(made, 0)
    return made


def commit(store: statestore.VersionedStore, number: int) -> None:
    store.put(("ada", "home"), number, timestamp=1_000 * number)
    store.put(("bob", f"page{number}"), number, timestamp=1_000 * number)
    store.commit()


def test_each_new_version_is_found_once(store: statestore.VersionedStore, tmp_path: Path) -> None:
    """None is left out where several appear between two looks, and the count ends it within them."""
    table = open_warehouse(tmp_path).open("visits")
    waited: list[int] = []

    def wait() -> None:
        waited.append(0)
        for _ in range(len(waited)):
            commit(store, store.version)

    ranges = list(new_versions(table, 5, wait))
    assert ranges == [(2, 2), (3, 4), (5, 6)]
    rows = [
        row for first, last in ranges for batch in changes_of(table, None, (), first, last) for row in batch.to_pylist()
    ]
    assert [row["_commit_version"] for row in rows if row["user"] == "bob"] == [2, 3, 4, 5, 6]
    assert {row["_change_type"] for row in rows if row["user"] == "ada"} == {"update_preimage", "update_postimage"}


def test_the_command_prints_through_a_pipe_and_ends_at_ctrl_c(store: statestore.VersionedStore, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "statestore", "watch", str(tmp_path), "--json", "--interval", "20"]
    with subprocess.Popen(
        [*command[:5], "visits", '{"user": "bob"}', *command[5:]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": ""},
    ) as watching:  # fmt: skip
        try:
            assert watching.stdout is not None and watching.stderr is not None
            assert "is at version 1" in watching.stderr.readline()
            for number in (1, 2):
                commit(store, number)
                row = json.loads(watching.stdout.readline())
                assert (row["user"], row["n"], row["_commit_version"]) == ("bob", number, number + 1)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
            assert watching.stdout.read() == "" and watching.stderr.read() == ""
        finally:
            watching.kill()  # else the end of the block waits for a process that a failed assertion left running


def test_wrong_calls(store: statestore.VersionedStore, tmp_path: Path) -> None:
    assert run("watch", tmp_path, "--interval", "soon").code == 2
    assert run("watch", tmp_path, "--count", "0").code == 2
    code, _, err = run("watch", tmp_path, "visits", '{"page": "home"}')
    assert code == 2 and "WRONG_KEY" in err


def test_a_version_without_changes_is_told(store: statestore.VersionedStore, tmp_path: Path) -> None:
    """Also one without changes of the key."""
    table = open_warehouse(tmp_path).open("visits")
    commit(store, 1)
    store.commit(transaction=("app", 1))
    told = run_with_changes(table, 2, 3)
    assert told.endswith("visits: version 3 without changes\n") and told.count("without") == 1


def run_with_changes(table: Any, first: int, last: int) -> str:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        for version in range(first, last + 1):
            list(changes_of(table, None, (), version, version))
    return err.getvalue()


# Alerts


MORE = "SELECT n, page FROM visits WHERE n >= 3 ORDER BY page"


def checks(folder: Path, *statements: str, command: list[str] | None = None) -> Checks:
    return Checks(str(folder), {}, "visits", statements, command, Shown("json", False, 10), command is None)


def test_each_version_is_checked_as_it_was(
    store: statestore.VersionedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that was followed by others before the look, and right again by then."""
    table = open_warehouse(tmp_path).open("visits")

    def wait() -> None:
        for number in range(1, 6):
            commit(store, number)
        store.delete(("ada", "home"), timestamp=9_000)
        for number in (3, 4, 5):
            store.delete(("bob", f"page{number}"), timestamp=9_000)
        store.commit()

    with pytest.raises(typer.Exit) as ended:
        watch_alerts(table, checks(tmp_path, "SELECT 1 WHERE false", MORE), None, wait)
    out, err = capsys.readouterr()
    assert ended.value.exit_code == 3
    assert [json.loads(line) for line in out.splitlines()] == [{"n": 3, "page": "home"}, {"n": 3, "page": "page3"}]
    assert err.splitlines()[-1] == f"visits: alert at version 4, 2 rows: {MORE}"
    assert run("watch", tmp_path, "--alert", MORE, "--once").code == 0


def test_a_command_gets_the_rows_of_each_version(store: statestore.VersionedStore, tmp_path: Path) -> None:
    """It runs without a shell, and the watch goes on, though it fails."""
    table = open_warehouse(tmp_path).open("visits")
    heard = tmp_path.parent / f"{tmp_path.name}-heard"
    script = (
        "import os, sys, pathlib\n"
        "about = [os.environ[f'STATESTORE_{name}'] for name in ('TABLE', 'VERSION', 'ALERT')]\n"
        f"with pathlib.Path({str(heard)!r}).open('a') as file: print(*about, sys.stdin.read(), sep='|', file=file)\n"
        "sys.exit(7)"
    )
    statement = "SELECT page FROM visits WHERE n = 2 AND page <> 'home'"
    command = [sys.executable, "-c", script]
    watch_alerts(table, checks(tmp_path, statement, command=command), 3, lambda: commit(store, store.version))
    said = [f'visits|{number}|{statement}|{{"page": "page2"}}' for number in (3, 4)]
    assert [line for line in heard.read_text().splitlines() if line] == said
    heard.unlink()
    answer = run("watch", tmp_path, "visits", "--once", "--alert", statement, "--run", shlex.join(command))
    assert answer.code == 3 and "ended with status 7" in answer.err and answer.out == ""
    assert heard.read_text().splitlines()[0] == said[1]


def test_versions_that_are_gone_are_told_and_no_alert(
    store: statestore.VersionedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = open_warehouse(tmp_path).open("visits")

    def wait() -> None:
        for number in range(1, 5):
            commit(store, number)
        store.expire(before=3_500)

    watch_alerts(table, checks(tmp_path, "FROM visits WHERE n = 1 AND page = 'home'"), 3, wait)
    assert "cannot be checked" in capsys.readouterr().err


def test_statements_once(store: statestore.VersionedStore, tmp_path: Path) -> None:
    commit(store, 3)
    code, out, err = run("watch", tmp_path, "visits", "--alert", "FROM visits WHERE n > 9", "--alert", MORE, "--once")
    assert (code, err) == (3, f"visits: alert at version 2, 2 rows: {MORE}\n")
    assert "page3" in out and "home" in out
    assert run("watch", tmp_path, "--alert", "FROM visits WHERE n > 9", "--once") == (0, "", "")
    code, out, err = run("watch", tmp_path, "--alert", "FROM visits", "--once", "--limit", "1", "--json")
    assert (code, len(out.splitlines())) == (3, 1) and "3 rows: FROM visits" in err and "2 more rows" in err


def test_wrong_alerts(store: statestore.VersionedStore, tmp_path: Path) -> None:
    assert "--once go with --alert" in run("watch", tmp_path, "--once").err
    assert run("watch", tmp_path, "--run", "true").code == 2
    assert run("watch", tmp_path, "visits", "ada", "--alert", MORE).code == 2
    assert run("watch", tmp_path, "--alert", MORE, "--columns", "n").code == 2
    assert "can be run" in run("watch", tmp_path, "--alert", MORE, "--run", "no-such-command-here -x").err
    code, _, err = run("watch", tmp_path, "--alert", "SELEC 1", "--once")
    assert code == 2 and "INVALID_SQL" in err
    assert run("watch", tmp_path, "--alert", "SELECT * FROM others", "--once").code == 1
