"""The SQL shell through a pipe, its completion, and the forms in which rows are printed."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from support.command_line import Answer, exit_code, in_encoding, run

import statestore
from statestore.connector.cli.shell import Session, Typed, history_file, transaction_word
from statestore.connector.cli.shell import piped as piped_lines
from statestore.connector.cli.shell_prompt import Words
from statestore.connector.sql import query
from statestore.connector.sql.query import answer, for_statement
from statestore.connector.sql.sql_duckdb import FirstRows
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.interrupts import stoppable


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
        ("select E'it\\';' ; select 'it\\'; '", ["select E'it\\';'", "select 'it\\'"], " '"),
        ("select e'it\\';", [], "select e'it\\';"),
        ("select 1 /* a /* b */ ; */; /* /* */ ;", ["select 1 /* a /* b */ ; */"], " /* /* */ ;"),
        ("select a$b$ ; select c$b$;", ["select a$b$", "select c$b$"], ""),
        ("select $1; select $1", ["select $1"], " select $1"),
        ("select `a;b` ; select 'a`;", ["select `a;b`"], " select 'a`;"),
        ("select $é$;$é$;", ["select $é$;$é$"], ""),
    ],
)
def test_statements_end_in_semicolons(text: str, statements: list[str], rest: str) -> None:
    """Whether they are typed at once or in pieces that end anywhere between two words."""
    typed = Typed()
    assert (typed.add(text), typed.text) == (statements, rest)
    lines, found = Typed(), []
    for line in (text if "--" in text else text.replace(" ", " \n")).splitlines(keepends=True):
        found += lines.add(line)
    assert [" ".join(each.split()) for each in found] == [" ".join(each.split()) for each in statements]


@pytest.mark.parametrize("inside", ["", "'", '"', "E'", "$a$", "/*"])
def test_a_long_statement_is_looked_at_once(inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines were typed before: searches begin in the line that was added."""
    typed, begins = Typed(), []
    skip = Typed._skip

    def counted(self: Typed, begun: str) -> None:
        begins.append(len(self.text) - self._seen)
        skip(self, begun)

    monkeypatch.setattr(Typed, "_skip", counted)
    lines = [f"select {inside}\n", *["; 2\n" if inside else ", 2\n"] * 500]
    assert [each for line in lines for each in typed.add(line)] == []
    assert typed._seen == len(typed.text) and not typed.is_blank
    assert len(begins) == (501 if inside else 0) and max(begins, default=0) <= len("; 2\n")
    assert len(typed.add({"E'": "'", "/*": "*/"}.get(inside, inside) + ";\n")) == 1
    assert typed.is_blank and typed.text == "\n"


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


ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(100000) b"


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when DuckDB is about to run an endless statement."""

    def asked(opened: Any, text: str, external: bool, started: Any, first: Any, versions: Any) -> Any:
        def begun(connection: Any) -> None:
            started(connection)
            if "range" in text:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        return answer(opened, text, external, begun, first, versions)

    monkeypatch.setattr(query, "answer", asked)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_cancels_the_statement_that_runs(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At a terminal the statements after it run."""
    lines = io.StringIO(f".mode json\n{ENDLESS};\nSELECT 5 AS b;\n")
    shell = Session(str(warehouse))
    shell.run(piped_lines(lines))
    shown = capsys.readouterr()
    assert (shell.failures, shown.out, shown.err) == (1, '{"b": 5}\n', "statestore: cancelled\n")


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_ends_a_pipe_and_a_command(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    found = piped(monkeypatch, f".mode json\n{ENDLESS};\nSELECT 5 AS b;\n", "shell", warehouse)
    assert set(threading.enumerate()) <= before, "the statement runs on"
    assert (found.code, found.out, found.err) == (130, "", "")
    assert run("sql", warehouse, ENDLESS).code == 130
    assert run("scan", warehouse, "prices", "--where", f"0 < ({ENDLESS})").code == 130


def test_ctrl_c_while_a_pipe_waits_for_lines_ends_the_shell(warehouse: Path) -> None:
    def ask(_: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Session(str(warehouse), interactive=False).run(ask)


def test_ctrl_c_at_the_prompt_drops_what_was_typed(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed: Iterator[str | BaseException] = iter(
        ["SELECT 'open", KeyboardInterrupt(), ".mode json", "SELECT 1 AS a;", EOFError()]
    )

    def ask(_: str) -> str:
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    Session(str(warehouse)).run(ask)
    assert capsys.readouterr().out == '{"a": 1}\n'


def test_a_second_ctrl_c_does_not_wait_for_the_statement() -> None:
    release, main_thread = threading.Event(), threading.main_thread().ident or 0

    class Deaf:
        def interrupt(self) -> None:
            signal.pthread_kill(main_thread, signal.SIGINT)

    def work() -> Any:
        signal.pthread_kill(main_thread, signal.SIGINT)
        release.wait()

    with pytest.raises(KeyboardInterrupt):
        stoppable(work, Deaf().interrupt)
    assert not release.is_set()
    release.set()


def test_a_pipe_prints_every_value_and_goes_on(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte order mark, times that Python does not have, errors of later rows, and words of other shells."""
    late = "SELECT CASE WHEN range = 400000 THEN error('boo') END FROM range(500000)"
    text = f"\ufeff.mode csv\nSELECT DATE '0044-03-15 (BC)' AS d;\nexit\n{late};\n.limit x\n.limit 2\n"
    found = piped(monkeypatch, f"{text}FROM range(5);\n.exit\nSELEC;", "shell", warehouse)
    assert found.out.splitlines() == ["d", "0044-03-15 (BC)", "range", "0", "1"]
    errors = found.err.splitlines()
    assert found.code == 1 and len(errors) == 4
    assert "write .quit" in errors[0] and "[INVALID_SQL] Invalid Input Error: boo" in errors[1]
    assert "like .limit 1000" in errors[2] and errors[3] == "3 more rows; .limit 5 shows all"


def test_rows_that_are_not_shown_are_not_kept() -> None:
    """At most one batch is in memory beside the rows that are shown."""
    first = FirstRows(3)
    with duckdb.connect() as database:
        kept = first.of(database.table_function("range", [1_000_000]))
        assert (kept.num_rows, first.total) == (3, 1_000_000)
        assert kept.column(0).to_pylist() == [0, 1, 2]
        assert FirstRows(5).of(database.table_function("range", [0])).schema.names == ["range"]


def test_errors_of_later_rows_keep_their_code(warehouse: Path) -> None:
    late = "SELECT CASE WHEN range = 400000 THEN error('boo') END FROM range(500000)"
    for statement in (late, f"WITH t AS ({late}) FROM t"):
        with pytest.raises(InvalidInputError, match="INVALID_SQL"):
            answer(partial(for_statement, str(warehouse), {}), statement, first=FirstRows(1))


@pytest.mark.local_files
def test_the_history_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = history_file()
    assert made is not None and made.stat().st_mode & 0o777 == 0o600 and made.parent.stat().st_mode & 0o777 == 0o700
    made.chmod(0o644)
    again = history_file()
    assert again == made and made.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", str(made))  # a file where a folder is needed
    assert history_file() is None


@pytest.mark.parametrize("command", ["shell", "sql"])
def test_closed_streams_and_texts_that_cannot_be_printed(
    warehouse: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("stdin", "stdout"):
            patch.setattr(sys, name, None)
        assert exit_code(command, warehouse) == (0 if command == "shell" else 2)
        sys.stdin.close()
        sys.stdout.close()
    code, out, _ = in_encoding("utf-8", command, warehouse, stdin="SELECT 'é' AS a".encode())
    assert code == 0 and "é" in out.decode()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["shell", "sql"])
def test_a_process_with_closed_streams(warehouse: Path, command: str) -> None:
    """Files that it opens get the numbers of its streams."""
    statestore_ = [sys.executable, "-m", "statestore", command, str(warehouse)]
    closed = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh", *statestore_], capture_output=True, text=True)
    assert closed.returncode == (0 if command == "shell" else 2) and "Traceback" not in closed.stderr


def test_completion_knows_tables_columns_and_commands(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that need quotes are completed with them."""
    session = Session(str(warehouse))
    words = Words(session)
    known = session.words()
    monkeypatch.setattr(session, "words", lambda: [*known, "kv-string.count"])

    def completed(text: str) -> list[str]:
        return [each.text for each in words.get_completions(Document(text), CompleteEvent())]

    assert {"prices", "price"} <= set(completed("SELECT pri"))
    assert completed("sel") == ["SELECT"] and completed("SELECT sum(no") == ["note", "NOT"]
    assert completed(".mo") == [".mode"] and completed(".mode t") == ["table", "tsv"]
    assert completed("") == []
    assert completed("SELECT * FROM pri")[:2] == ["prices", "prices$versions"]
    assert completed("FROM kv") == ['"kv-string.count"'] and completed('FROM "kv-') == ['"kv-string.count"']
    assert completed(".schema kv") == ["kv-string.count"]


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


def test_a_transaction_reads_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tables of a store agree, too, whichever is named first after a commit."""
    store = statestore.connect(tmp_path).create_store("t", key={"k": "bigint"}, value={"n": "bigint"})

    def lines() -> Iterator[str]:
        for number, line in enumerate(
            [
                ".mode json",
                "/* one */ begin transaction;",
                "SELECT max(n) AS a FROM t;",
                "SELECT (SELECT max(version) FROM t$versions) AS a, (SELECT count(*) FROM history('t')) AS b;",
                "BEGIN;",
                "COMMIT; -- and",
                "SELECT max(n) AS a FROM t;",
                "ROLLBACK;",
            ]
        ):
            store.put(1, {"n": number}, timestamp=1000 + number)
            store.commit()
            yield line

    given = lines()
    shell = Session(str(tmp_path))
    shell.run(lambda _: next(given, ".quit"))
    answered = capsys.readouterr()
    assert [json.loads(line) for line in answered.out.splitlines()] == [{"a": 2}, {"a": 3, "b": 3}, {"a": 6}]
    assert "BEGIN within a transaction" in answered.err and "ROLLBACK without a transaction" in answered.err
    assert shell.failures == 2
    store.close()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("BEGIN", "BEGIN"),
        ("start  Transaction read only", "START"),
        ("-- now\nend", "END"),
        ("abort work", "ABORT"),
        ("start", None),
        ("SELECT 1 AS begin", None),
        ("BEGIN SELECT 1", None),
    ],
)
def test_words_of_transactions(text: str, word: str | None) -> None:
    assert transaction_word(text) == word
