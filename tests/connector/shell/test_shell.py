"""The SQL shell through a pipe, its completion, and the forms in which rows are printed."""

from __future__ import annotations

import io
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from support.command_line import Answer, run

import statestore
from statestore.connector.shell import session
from statestore.connector.shell.session import Session
from statestore.connector.shell.statements import cut
from statestore.connector.shell.terminal_prompt import Words
from statestore.connector.sql.query import answer


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    with statestore.connect(root).create_store(
        "prices", key={"item": "string"}, value={"price": "double", "note": "string"}
    ) as store:
        store.put("curry", (8.0, None), 1000)
        store.put('a,"b"\n', (2.5, ""), 1000)
        store.commit()
    return root


def piped(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str | Path) -> Answer:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return run(*arguments)


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 1; select 2;", ["select 1", "select 2"], ""),
        ("select ';' as \";\"\n, 1;\n", ["select ';' as \";\"\n, 1"], "\n"),
        ("select 'it''s;", [], "select 'it''s;"),
        ("select 1 -- no; end\n;", ["select 1 -- no; end"], ""),
        ("/* ; */ select $$;$$; /* ;", ["/* ; */ select $$;$$"], " /* ;"),
        (";; -- nothing\n;", [], ""),
    ],
)
def test_statements_end_in_semicolons(text: str, statements: list[str], rest: str) -> None:
    assert cut(text) == (statements, rest)


def test_a_pipe_of_statements(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors go to stderr and do not end the shell; the last statement needs no semicolon."""
    text = (
        ".tables\n.schema prices\n.mode csv\nSELECT item,\n price FROM prices\n  ORDER BY price;\nSELEC;\n"
        ".mode x\n.nothing\n.mode json\nSELECT 1 AS a; SELECT 2 AS a;\n"
        ".mode line\nSELECT count(*) AS n FROM prices VERSION AS OF 1"
    )
    found = piped(monkeypatch, text, "shell", warehouse)
    assert found.out.splitlines() == [
        "prices",
        "prices (item string, price double, note string, valid_from timestamp, valid_to timestamp)",
        "item,price",
        '"a,""b""',
        '",2.5',
        "curry,8.0",
        '{"a": 1}',
        '{"a": 2}',
        "── 1 " + "─" * 34,
        "n  2",
    ]
    assert found.code == 1 and [line[:20] for line in found.err.splitlines()] == [
        "statestore: [INVALID",
        "statestore: .mode x:",
        "statestore: .nothing",
    ]
    good = piped(monkeypatch, ".help\n.quit\nSELEC;", "shell", warehouse)
    assert good.code == 0 and ".tables" in good.out and good.err == ""
    assert piped(monkeypatch, "SELECT 1;", "shell", warehouse / "nothing").code == 1


def test_ctrl_c_cancels_the_statement_that_runs(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when DuckDB is about to run an endless statement; the statements after it run."""

    def interrupted(path: str, text: str, selected: Any, started: Any) -> Any:
        def begun(connection: Any) -> None:
            started(connection)
            if "range" in text:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        return answer(path, text, selected, started=begun)

    monkeypatch.setattr(session, "answer", interrupted)
    endless = "SELECT count(*) FROM range(100000000000) a, range(100000) b;"
    before = set(threading.enumerate())
    found = piped(monkeypatch, f".mode json\n{endless}\nSELECT 5 AS b;\n", "shell", warehouse)
    assert set(threading.enumerate()) <= before, "the statement runs on"
    assert (found.code, found.out, found.err) == (1, '{"b": 5}\n', "statestore: cancelled\n")


def test_completion_knows_tables_columns_and_commands(warehouse: Path) -> None:
    words = Words(Session(str(warehouse)))

    def completed(text: str) -> list[str]:
        return [each.text for each in words.get_completions(Document(text), CompleteEvent())]

    assert {"prices", "price"} <= set(completed("SELECT pri"))
    assert completed("sel") == ["SELECT"] and completed("SELECT sum(no") == ["note", "NOT"]
    assert completed(".mo") == [".mode"] and completed(".mode t") == ["table", "tsv"]
    assert completed("") == []


@pytest.mark.parametrize("arguments", [("-",), ()])
def test_sql_from_stdin(warehouse: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    found = piped(monkeypatch, "SELECT max(price) AS p FROM prices\n", "sql", warehouse, *arguments, "--json")
    assert (found.code, found.rows) == (0, [{"p": 8.0}])


def test_forms_of_rows(warehouse: Path) -> None:
    """CSV distinguishes null from an empty text; every reading command has the forms."""
    csv = run("scan", warehouse, "prices", "--format", "csv", "--columns", "item,note,price").out
    assert sorted(csv.split("\n", 1)[1].splitlines()) == sorted(['"a,""b""', '","",2.5', "curry,,8.0"])
    assert csv.startswith("item,note,price\n")
    for command in (("get", "prices", "curry"), ("history", "prices", "curry"), ("changes", "prices"),
                    ("versions", "prices"), ("sql", "SELECT * FROM prices")):  # fmt: skip
        name, *rest = command
        tsv = run(name, warehouse, *rest, "--format", "tsv")
        rows = run(name, warehouse, *rest, "--json").rows
        assert tsv.code == 0 and tsv.out.splitlines()[0].split("\t") == list(rows[0])
        assert run(name, warehouse, *rest, "--format", "json").rows == rows
        assert run(name, warehouse, *rest, "--format", "xml").code == 2
        assert run(name, warehouse, *rest, "--format", "csv", "--json").code == 2
