"""Words that a new user types wrong, or of another program, and the answer that names the option and the way."""

from __future__ import annotations

import csv
import io
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.parameters import mostly_slow
from typer.main import get_command

import statestore
from statestore.connector.cli.main import app


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    with statestore.connect(tmp_path).create_store(
        "s", key={"k": "string"}, value={"v": "double", "w": "string"}, history_retention="3650 days"
    ) as store:
        store.put("a,b", (1.5, ""), "2024-05-01T09:30Z")
        store.commit()
        store.put("a,b", (2.5, None), "2024-05-02T09:30Z")
        store.put("c", (3.5, "x"), "2024-05-02T09:30Z")
        store.commit()
    return tmp_path


def test_options_of_windows_are_those_of_create_store(tmp_path: Path) -> None:
    columns = ("--key", "k:string", "--value", "v:int", "--retention", "3600000")
    window = ("--window-size", "60000", "--retain-duplicates", "--time-ordered")
    assert run("create", tmp_path, "w", "--kind", "window", *columns, *window).code == 0
    join = ("--window-before", "1 min", "--num-segments", "5", "--batched-changelog")
    assert run("create", tmp_path, "j", "--kind", "join_window", *columns, *join).code == 0
    windowing = {name: statestore.connect(tmp_path).locate(name)[1].windowing for name in ("w", "j")}
    w, j = windowing["w"], windowing["j"]
    assert w is not None and (w.retention, w.window_size, w.duplicates, w.time_ordered) == (3600000, 60000, True, True)
    assert j is not None and (j.before, j.segments, j.batched_changelog) == (60_000, 5, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--retain-duplicates",), "--retain-duplicates: a versioned store has the options --history-retention, --seg"),
        (("--kind", "window"), 'a window store needs --retention; for example --retention "1 hour"'),
        (("--kind", "join_window", "--retention", "1h", "--num-segments", "1"), "--num-segments is 1; expected an int"),
        (("--history-retention", "1x"), "--history-retention is '1x'; expected milliseconds (not negative), or a text"),
        (("--kind", "keyed"), "--value: a keyed store has no value columns"),
    ],
)
def test_errors_of_create_name_options(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    found = run("create", tmp_path, "s", "--key", "k:string", "--value", "v:int", *arguments)
    assert found.code == 2 and said in found.err and "=" not in found.err
    assert list(tmp_path.iterdir()) == []


def test_differences_as_csv(warehouse: Path) -> None:
    found = run("diff", warehouse, "s", "--from", "1", "--format", "csv")
    assert found.out == 'change,k,old.v,new.v,old.w,new.w\nchanged,"a,b",1.5,2.5,"",\nadded,c,,3.5,,x\n'
    (_, first, _) = csv.reader(io.StringIO(found.out))
    assert first == ["changed", "a,b", "1.5", "2.5", "", ""]
    tabs = run("diff", warehouse, "s", "--from", "1", "--format", "tsv").out.splitlines()
    assert tabs[1:] == ['changed\ta,b\t1.5\t2.5\t""\t', "added\tc\t\t3.5\t\tx"]
    as_json = run("diff", warehouse, "s", "--from", "1", "--format", "json")
    assert as_json.rows == run("diff", warehouse, "s", "--from", "1", "--json").rows
    same = run("compare", warehouse / "s", str(warehouse / "s"), "--format", "csv")
    assert same.code == 0 and same.out.startswith("change,k,old.v,new.v") and same.out.count("\n") == 1
    assert run("diff", warehouse, "s", "--from", "1", "--format", "xml").code == 2


def test_inspect_as_csv(warehouse: Path) -> None:
    found = run("inspect", warehouse, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(found.out))
    (item,) = run("inspect", warehouse, "--json").rows
    assert (row["store"], row["key"], row["keys"], row["bytes"]) == ("s", "k string", "2", str(item["bytes"]))
    assert (row["retention"], row["health"]) == (item["retention"], "ok")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("diff", "{}", "s", "--from", "1714555800ms"), "for seconds write 1714555800000ms"),
        (("diff", "{}", "s", "--from", "2@1714555800"), "for seconds write 1714555800000\n"),
        (("diff", "{}", "s", "--from", "1714555800"), "--from 1714555800 is a version"),
        (("changes", "{}", "s", "--to", "1714555800ms"), "--to 1714555800ms is 1970-01-20"),
        (("expire", "{}", "s", "--before", "1714555800"), "for seconds write 1714555800000\n"),
        (("expire", "{}", "--before", "1714555800"), "--before 1714555800 is 1970-01-20"),
        (("put", "{}", "s", "a", '{"v": 1, "w": ""}', "--timestamp", "1714555800"), "--timestamp 1714555800 is 1970"),
    ],
)
def test_seconds_are_noticed(warehouse: Path, arguments: tuple[str, ...], hint: str) -> None:
    assert hint in run(*(each.replace("{}", str(warehouse)) for each in arguments)).err


@pytest.mark.parametrize("arguments", [("diff", "{}", "s", "--from", "2024-05-01T09:30Z"), ("changes", "{}", "s")])
def test_no_hint_where_times_are_right(warehouse: Path, arguments: tuple[str, ...]) -> None:
    assert "milliseconds" not in run(*(each.replace("{}", str(warehouse)) for each in arguments)).err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ls", "{}"), 2, "Did you mean 'inspect'?"),
        (("help",), 2, "Did you mean '--help'?"),
        (("insepct", "{}"), 2, "Did you mean 'inspect'?"),
        (("diff", "{}", "s", "--from", "-1"), 2, "--from is -1: a number is a version, from 0 on"),
        (("scan", "{}", "s", "--where", "q > 1"), 2, "--where q > 1: Binder Error"),
        (("scan", "{}", "s", "--where", "v >"), 2, "--where v >: "),
        (("export", "{}", "s", "-o", "{}/no/x.csv"), 2, "no is no folder"),
        (("load", "{}", "s", "{}/no.csv"), 1, "no.csv: No such file"),
        (("put", "{}", "s", "a", "1"), 2, "value: found '1'"),
        (("compare", "{}/s", "{}/t"), 1, "create it with statestore create"),
        (("create", "{}", "s", "--key", "k:int", "--value", "v:int"), 2, "choose another name"),
        (("inspect", "{}/s/log"), 1, "a warehouse, which statestore create makes"),
    ],
)
def test_slips(warehouse: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    found = run(*(each.replace("{}", str(warehouse)) for each in arguments))
    assert (found.code, found.out) == (code, "") and said in found.err
    assert "line 1" not in found.err and "Errno" not in found.err and "connect(" not in found.err


def test_short_options_of_the_program(warehouse: Path) -> None:
    assert run("-V").out == run("--version").out
    for command in ((), ("get",), ("create",)):
        assert run(*command, "-h").out == run(*command, "--help").out


# A path where nothing is: the command fails, says so, and leaves nothing behind

TWO_COLUMNS = ("--key", "k:string", "--value", "v:int")
AT_A_PATH = {
    "inspect": (),
    "describe": (),
    "sql": ("SELECT 1",),
    "shell": (),
    "get": ("s", "k"),
    "history": ("s", "k"),
    "scan": ("s",),
    "versions": ("s",),
    "report": ("-o", "page.html"),
    "diff": ("s", "--from", "1"),
    "compare": ("other",),
    "changes": ("s",),
    "watch": ("s",),
    "explore": ("--no-browser",),
    "export": ("s", "-o", "rows.csv"),
    "put": ("s", "k", "1"),
    "load": ("s", "rows.csv"),
    "drop": ("s", "--yes"),
    "import": ("copy/s",),
    "edit": ("--dry-run",),
    "capture": ("w",),
    "verify": (),
    "compact": (),
    "expire": ("--before", "2024-01-01T00:00Z"),
    "vacuum": (),
    "hold": ("--", "true"),
}


def test_no_command_is_left_out() -> None:
    assert {*AT_A_PATH, "create", "demo"} == set(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", AT_A_PATH)
def test_a_path_where_nothing_is(tmp_path: Path, command: str) -> None:
    with chdir(tmp_path):
        found = run(command, "new", *AT_A_PATH[command])
    assert (found.code, found.out) == (1, "") and "new" in found.err
    assert "PATH_NOT_FOUND" in found.err or "STORE_NOT_FOUND" in found.err
    assert list(tmp_path.iterdir()) == []


WRONG: list[tuple[Sequence[str], str]] = [
    (("s", "--key", "k:nosuch", "--value", "v:int"), "'nosuch' is not a type"),
    (("s", "--key", "k:string", "--value", "v:nosuch"), "'nosuch' is not a type"),
    (("s", "--key", "k", "--value", "v:int"), "--key is 'k'"),
    (("s", "--key", "k:string"), "needs --value"),
    (("a/b", *TWO_COLUMNS), "store name 'a/b'"),
    (("s", *TWO_COLUMNS, "--kind", "foo"), "store kind 'foo'"),
    (("s", *TWO_COLUMNS, "--serde", "foo"), "serde 'foo'"),
    (("s", *TWO_COLUMNS, "--key-groups", "0"), "--key-groups is 0"),
    (("s", *TWO_COLUMNS, "--retention", "1h"), "did you mean --history-retention?"),
    (("s", *TWO_COLUMNS, "--kind", "session"), "a session store needs --retention"),
    (("s", *TWO_COLUMNS, "--history-retention", "soon"), "--history-retention is 'soon'"),
]


@pytest.mark.parametrize("path", ["new", "new/below"])
def test_create_with_a_wrong_option(tmp_path: Path, path: str) -> None:
    for arguments, said in WRONG:
        found = run("create", tmp_path / path, *arguments)
        assert (found.code, found.out) == (2, "") and said in found.err, arguments
        assert list(tmp_path.iterdir()) == [], arguments


# Paths that nobody would give on purpose end every command with one line, and nothing is read for ever

COMMANDS: dict[str, Any] = vars(get_command(app))["commands"]
PATHS = {"path", "paths", "source", "other", "file"}
WITHOUT_A_PATH = {"demo"}
STRANGE = [
    "", "-", "~", "fifo", "socket", "file", "file/in", "loop", "dangling", "a\nb", "a\x1b[31m\x7f", "\u202e", "x" * 300,
    "\udce4", "\x00", "%00", "../absent/..", "file:fifo", "file://fifo", "file:///dev/null", "/dev/null",
    "s3://", "//:",
]  # fmt: skip
QUICK = ("create", "explore", "import", "inspect", "load")
FEW = ["fifo", "file/in", "loop", "a\nb", "\udce4", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("hostile")
    os.mkfifo(found / "fifo")
    (found / "file").write_text("x")
    (found / "loop").symlink_to("loop")
    (found / "dangling").symlink_to("nowhere")
    for name in ("a\nb", "a\x1b[31m\x7f", "\u202e", "empty"):
        (found / name).mkdir()
    os.mkfifo(found / "empty" / "store.json")
    before = Path.cwd()
    os.chdir(found)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        yield found
    os.chdir(before)


def with_path(command: str, path: str) -> list[list[str]]:
    """The command with a path in the place of each of its paths."""
    names = [each.name for each in COMMANDS[command].params if each.param_type_name == "argument"]
    return [
        [command, "--", *(path if at == number else "empty" if name in PATHS else "k" for at, name in enumerate(names))]
        for number, each in enumerate(names)
        if each in PATHS
    ]


@pytest.mark.parametrize("command", mostly_slow(sorted(COMMANDS.keys() - WITHOUT_A_PATH), QUICK))
def test_a_command_ends_with_one_line(folder: Path, command: str) -> None:
    before = sorted(folder.rglob("*"))
    for path in STRANGE if command == "inspect" else FEW:
        for arguments in with_path(command, path):
            answer = run(*arguments)
            assert answer.code in (1, 2), (arguments, answer)
            *usage, said = answer.err.rstrip("\n").split("\n")
            assert not usage or usage[0].startswith("Usage: "), (arguments, answer.err)
            assert usage or said.startswith("statestore: ["), (arguments, answer.err)
            assert "Traceback" not in answer.err and said.isprintable(), (arguments, answer.err)
    assert sorted(folder.rglob("*")) == before
