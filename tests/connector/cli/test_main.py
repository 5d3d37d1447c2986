"""The command line: its output to stdout and stderr, its words, its exit codes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.command_line import run
from typer.main import get_command

import statestore
from statestore.connector.cli.main import app, in_words_of_options
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError

SCRIPT = Path(sys.executable).parent / "statestore"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(root)
    with catalog.create_store(
        "prices", key={"item": "string"}, value={"price": "decimal(10,2)", "note": "string"}
    ) as store:
        store.put("curry", {"price": Decimal("8.00"), "note": None}, 1000)
        store.put("milk", {"price": Decimal("2.00"), "note": "[bold]x\x1b[31m"}, 2000)
        store.commit()
        store.put("curry", {"price": Decimal("9.50"), "note": "dear"}, 5000)
        store.put("milk", None, 6000)
        store.commit()
    with catalog.create_store(
        "pairs", key={"a": "bigint", "b": "timestamp"}, value={"v": "double", "raw": "binary"}
    ) as store:
        store.put((1, datetime(2020, 1, 1, tzinfo=UTC)), (float("inf"), b"\x00\xff"), 1000)
        store.commit()
    return root


def curry(price: str, note: str | None, start: int, end: int | None, **more: Any) -> dict[str, Any]:
    return {"item": "curry", "price": price, "note": note, "valid_from": at(start), "valid_to": at(end), **more}


def at(second: int | None) -> str | None:
    return None if second is None else f"1970-01-01T00:00:{second:02}.000Z"


def test_inspect_has_a_row_for_each_store(warehouse: Path) -> None:
    pairs, prices = run("inspect", warehouse, "--json").rows
    assert (pairs["store"], pairs["key"]) == ("pairs", {"a": "bigint", "b": "timestamp"})
    assert pairs["value"] == {"v": "double", "raw": "binary"}
    assert {name: prices[name] for name in ("store", "version", "keys", "rows", "from", "to")} == {
        "store": "prices",
        "version": 2,
        "keys": 1,
        "rows": 3,
        "from": at(1),
        "to": at(6),
    }
    shown = run("inspect", warehouse / "prices")
    assert shown.code == 0 and "item string" in shown.out and "pairs" not in shown.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), curry("9.50", "dear", 5, None)),
        (("--as-of", "1970-01-01T00:00:01Z"), curry("8.00", None, 1, 5)),
        (("--as-of", "1970-01-01 01:00:04.999+01:00"), curry("8.00", None, 1, 5)),
        (("--as-of", "60000"), curry("9.50", "dear", 5, None)),
        (("--version", "1"), curry("8.00", None, 1, None)),
        (("--version", "1", "--as-of", "60000"), curry("8.00", None, 1, None)),
    ],
)
def test_get(warehouse: Path, options: tuple[str, ...], expected: dict[str, Any]) -> None:
    found = run("get", warehouse, "prices", "curry", *options, "--json")
    assert (found.code, found.rows, found.err) == (0, [expected], "")


def test_get_by_several_columns(warehouse: Path) -> None:
    """Binary is shown as base64; an infinity, which JSON does not have, as text."""
    found = run("get", warehouse, "pairs", '{"b": "2020-01-01T00:00:00Z", "a": 1}', "--json").rows
    assert [(row["a"], row["b"], row["v"], row["raw"]) for row in found] == [
        (1, "2020-01-01T00:00:00.000Z", "Infinity", "AP8=")
    ]


@pytest.mark.parametrize(("key", "options"), [("rice", ()), ("milk", ()), ("curry", ("--as-of", "999"))])
def test_no_value_is_a_failure_without_output(warehouse: Path, key: str, options: tuple[str, ...]) -> None:
    """A script can distinguish a missing key from a value by the exit code alone."""
    found = run("get", warehouse, "prices", key, *options)
    assert (found.code, found.out, found.err.splitlines()[0]) == (1, "", "no value for this key in prices")


def test_history_is_oldest_first(warehouse: Path) -> None:
    expected = [
        curry("8.00", None, 1, 5, _commit_version=1),
        curry("9.50", "dear", 5, None, _commit_version=2),
    ]
    assert run("history", warehouse, "prices", "curry", "--json").rows == expected
    limited = run("history", warehouse, "prices", "curry", "--json", "--limit", "1")
    assert limited.rows == expected[:1]
    assert limited.err == "1 more row; --limit 2 shows all\n"


def test_versions_are_newest_first(warehouse: Path) -> None:
    found = run("versions", warehouse, "prices", "--json").rows
    assert [(row["version"], row["operation"], row["rows"], row["tombstones"]) for row in found] == [
        (2, "write", 1, 1),
        (1, "write", 2, 0),
        (0, "create", 0, 0),
    ]


def test_sql_travels_in_time(warehouse: Path) -> None:
    query = "SELECT item, price FROM prices TIMESTAMP AS OF '1970-01-01T00:00:03Z' ORDER BY item"
    assert run("sql", warehouse, query, "--json").rows == [
        {"item": "curry", "price": "8.00"},
        {"item": "milk", "price": "2.00"},
    ]


def test_sql_values_of_every_kind_become_json(warehouse: Path) -> None:
    query = """SELECT 'nan'::DOUBLE AS nan, [1.5, '-inf'::DOUBLE] AS list, TIME '10:00' AS time,
        INTERVAL 1 MONTH AS month,
        {'d': DATE '2020-01-01', 'b': 'ab'::BLOB} AS struct, MAP {'a': 1} AS map, NULL AS nothing, true AS yes,
        TIMESTAMP '2020-01-01 00:00:00.000001' AS naive,
        'line\nbreak ü' AS text"""
    assert run("sql", warehouse, query, "--json").rows == [
        {
            "nan": "NaN",
            "list": [1.5, "-Infinity"],
            "time": "10:00:00",
            "month": {"months": 1, "days": 0, "nanoseconds": 0},
            "struct": {"d": "2020-01-01", "b": "YWI="},
            "map": [["a", 1]],
            "nothing": None,
            "yes": True,
            "naive": "2020-01-01T00:00:00.000001",
            "text": "line\nbreak ü",
        }
    ]


def test_columns_of_one_name_are_all_shown(warehouse: Path) -> None:
    query = "SELECT 1 AS a, 2 AS a, 3 AS a_1"
    assert run("sql", warehouse, query, "--json").rows == [{"a": 1, "a_1": 2, "a_1_1": 3}]
    assert run("sql", warehouse, query).out.splitlines()[3].split() == ["│", "1", "│", "2", "│", "3", "│"]


def test_tables_show_values_as_they_are(warehouse: Path) -> None:
    """No value is read as markup, and none reaches the terminal as a command."""
    shown = run("get", warehouse, "prices", "milk", "--as-of", "1970-01-01T00:00:02Z").out
    assert "[bold]x\\x1b[31m" in shown and "\x1b" not in shown


FAILURES: list[tuple[int, str, tuple[str, ...]]] = [
    (1, "TABLE_NOT_FOUND", ("get", "{}", "prics", "curry")),
    (1, "TABLE_NOT_FOUND", ("history", "{}", "../prices", "curry")),
    (1, "VERSION_NOT_FOUND", ("get", "{}", "prices", "curry", "--version", "99")),
    (1, "VERSION_NOT_FOUND", ("get", "{}", "prices", "curry", "--version", "-1")),
    (1, "VERSION_NOT_FOUND", ("sql", "{}", "SELECT * FROM prices VERSION AS OF 99")),
    (1, "PATH_NOT_FOUND", ("inspect", "{}/nothing")),
    (1, "EXTERNAL_ACCESS_OFF", ("sql", "{}", "SELECT * FROM '/etc/passwd.csv'")),
    (2, "NAIVE_DATETIME", ("get", "{}", "prices", "curry", "--as-of", "1970-01-01T00:00:01")),
    (2, "INVALID_TIME", ("get", "{}", "prices", "curry", "--as-of", "yesterday")),
    (2, "", ("get", "{}", "prices", "curry", "--as-of", "2013")),
    (2, "TIME_OUT_OF_RANGE", ("get", "{}", "prices", "curry", "--as-of", "9" * 20)),
    (2, "WRONG_KEY", ("get", "{}", "pairs", "1")),
    (2, "WRONG_KEY", ("get", "{}", "pairs", '{"a": "x", "b": "2020-01-01T00:00:00Z"}')),
    (2, "WRONG_KEY", ("get", "{}", "prices$versions", "1")),
    (2, "WRONG_KEY", ("get", "{}", "prices", "\udcff")),
    (2, "INVALID_SQL", ("sql", "{}", "SELEC 1")),
    (2, "INVALID_SQL", ("sql", "{}", "")),
    (2, "INVALID_SQL", ("sql", "{}", "SELECT '\udcff'")),
    (2, "INVALID_SQL", ("sql", "{}", "SELECT error('two\nlines \x1b[31m')")),
    (2, "INVALID_OPTION", ("demo", "--engine", "flink")),
    (2, "NOT_EMPTY", ("demo", "--engine", "duckdb", "--out", "{}")),
    (2, "NOT_A_FOLDER", ("demo", "--engine", "duckdb", "--out", "{}/prices/store.json")),
    (1, "Not a directory", ("demo", "--engine", "duckdb", "--out", "{}/prices/store.json/x")),
]


@pytest.mark.parametrize(("code", "name", "arguments"), FAILURES)
def test_a_failure_is_one_line_on_stderr(warehouse: Path, code: int, name: str, arguments: tuple[str, ...]) -> None:
    found = run(*(argument.replace("{}", str(warehouse), 1) for argument in arguments))
    assert (found.code, found.out) == (code, "")
    assert found.err.startswith("statestore: ") and name in found.err
    assert found.err.count("\n") == 1 and found.err.endswith("\n") and "\x1b" not in found.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("get", "{}"),
        ("get", "{}", "prices", "curry", "--version", "x"),
        ("versions", "{}", "prices", "--limit", "0"),
        ("inspect", "{}", "--nonsense"),
    ],
)
def test_wrong_usage_is_2(warehouse: Path, arguments: tuple[str, ...]) -> None:
    found = run(*(argument.replace("{}", str(warehouse)) for argument in arguments))
    assert found.code == 2
    assert "Traceback" not in found.out + found.err and "Usage: statestore" in found.out + found.err


def test_help_names_every_command() -> None:
    found = run("--help")
    assert found.code == 0
    reading = ("inspect", "sql", "get", "history", "scan", "diff", "changes", "versions")
    upkeep = ("verify", "compact", "expire", "vacuum", "hold")
    assert all(f"\n  {name} " in found.out for name in (*reading, *upkeep, "demo"))


def test_a_damaged_store_is_said_in_one_line(warehouse: Path, tmp_path: Path) -> None:
    shutil.copytree(warehouse / "prices", tmp_path / "prices")
    entry = tmp_path / "prices" / "log" / f"{1:020d}.json"
    entry.write_bytes(entry.read_bytes().replace(b'"rows"', b'"r0ws"', 1))
    found = run("get", tmp_path, "prices", "curry")
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("statestore: [LOG_CORRUPT]") and found.err.count("\n") == 1


def test_a_reader_that_stops_reading_is_no_crash(warehouse: Path) -> None:
    """Here of the installed script, whose answers and exit codes are those of `run` otherwise."""
    query = "SELECT * FROM range(100000)"
    command: list[str | Path] = [SCRIPT, "sql", warehouse, query, "--json", "--limit", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b'{"range": 0}\n'
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.slow
def test_demo_on_duckdb(tmp_path: Path) -> None:
    """The demo shows every airport's weather, the errors of arrival order and a plot, and leaves a warehouse to
    explore."""
    pytest.importorskip("altair")
    out = tmp_path / "demo"
    out.mkdir()
    for name in (".statestore-demo", "left by the last run"):
        (out / name).touch()
    found = run("demo", "--engine", "duckdb", "--out", out, "--json")
    assert found.code == 0, found.err
    assert not (out / "left by the last run").exists()
    assert (out / "wind_known_at_departure.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (out / "warehouse").iterdir()) == ["weather", "weather_by_arrival"]
    totals = next(row for row in found.rows if "wrong_wind" in row)
    assert totals["flights"] > 300_000 and 0 < totals["wrong_wind"] < totals["flights"]
    question = "SELECT count(*) AS airports FROM weather TIMESTAMP AS OF '2013-07-04T12:00Z'"
    assert run("sql", out / "warehouse", question, "--json").rows == [{"airports": 3}]


def test_demo_without_its_data_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NotFoundError(ErrorCode.DEMO_NOT_INSTALLED, "type: pip install 'statestore[demo]'")

    monkeypatch.setattr("statestore.connector.demo.run.load", missing)
    found = run("demo", "--engine", "duckdb", "--out", tmp_path / "demo")
    assert found.code == 1 and "pip install 'statestore[demo]'" in found.err


# The version, the help, and errors in the words of options

BEGIN = 1_577_836_800_000  # 2020-01-01


@pytest.fixture(scope="module")
def old_prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("old_prices")
    with statestore.connect(root).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        store.put("curry", 8.0, BEGIN)
        store.put("curry", 9.5, BEGIN + 100_000)
        store.commit()
    return root


def test_the_version_is_that_of_the_installed_package() -> None:
    assert run("--version").out == f"statestore {version('statestore')}\n"


COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_help_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns every option and every word of its text stands whole, and no line is longer."""
    monkeypatch.setenv("COLUMNS", "80")
    group: Any = get_command(app)
    for command in ("", *COMMANDS):
        found = run(*command.split(), "--help").out
        words = set(found.split())
        assert max(map(len, found.splitlines())) <= 80, command
        for parameter in (group.commands[command] if command else group).params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert {option.strip() for option in parameter.opts} <= {word.strip(",") for word in words}, command
                assert set(parameter.help.split()) <= words, command
        assert not [line for line in found.splitlines() if re.search(r"(\w-|…|\w\.\.\.)$", line)], command
        if not command:
            sentences = [each.get_short_help_str(1000) for each in group.commands.values()]
            assert not [text for text in sentences if text.rstrip(".") not in " ".join(found.split())]


def test_no_value_yet_is_said(old_prices: Path) -> None:
    found = run("get", old_prices, "prices", "curry", "--as-of", "2019-06-01T00:00Z")
    assert (found.code, found.out) == (1, "")
    assert found.err.splitlines()[1] == "the first value of this key is from 2020-01-01T00:00:00.000Z"
    assert run("get", old_prices, "prices", "rice", "--as-of", str(BEGIN)).err == "no value for this key in prices\n"


@pytest.mark.parametrize("arguments", [("get", "prices", "curry"), ("scan", "prices")])
def test_seconds_for_milliseconds_are_said(old_prices: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments
    hint = "--as-of 1577836850 is 1970-01-19T06:17:16.850Z, and prices begins at 2020-01-01T00:00:00.000Z;"
    assert hint in " ".join(run(command, old_prices, *rest, "--as-of", "1577836850").err.split())
    assert run(command, old_prices, *rest, "--as-of", "1577836850000").err == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("as_of=5 is early", "--as-of 5 is early"),
        ("read its rows with scan(filter=…)", "read its rows with scan --where …"),
        ("[X] start_version is 5, end_version is 3", "[X] --from is 5, --to is 3"),
        ("pass allow_external_access=True if", "pass --allow-external-access if"),
        ("option batchId selects state in one", "--batch-id selects state in one"),
        ("expected a JSON object with as_of, start_time", "expected a JSON object with as_of, start_time"),
        ("store 'as_of' at /data/version=3/filter=1", "store 'as_of' at /data/version=3/filter=1"),
    ],
)
def test_errors_name_options(message: str, expected: str) -> None:
    assert in_words_of_options(message) == expected


def test_an_error_of_a_command_names_its_option(old_prices: Path) -> None:
    found = run("sql", old_prices, "SELECT * FROM '/etc/passwd.csv'")
    assert "--allow-external-access" in found.err and "=True" not in found.err
    assert "--batch-id selects" in run("inspect", old_prices, "--batch-id", "3").err


# Completion, called as bash and zsh do: commands, options, paths, and the stores at the path typed


@pytest.fixture(scope="module")
def three_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shell") / "warehouse"
    catalog = statestore.connect(root)
    for name in ("prices", "prints", "weather"):
        catalog.create_store(name, key={"k": "string"}, value={"v": "bigint"}).close()
    (root / "no store").mkdir()
    return root


def bash(*words: str) -> list[str]:
    """The completions of the last word that bash gets."""
    environment = {"COMP_WORDS": " ".join(["statestore", *words]), "COMP_CWORD": str(len(words))}
    return _ask("complete_bash", environment).split()


def zsh(*words: str) -> str:
    return _ask("complete_zsh", {"_TYPER_COMPLETE_ARGS": " ".join(["statestore", *words])})


def _ask(what: str, environment: dict[str, str]) -> str:
    """The answer of the installed script, in this process: a process of its own would take a second for each."""
    with patch.dict(os.environ, {"_STATESTORE_COMPLETE": what, **environment}):
        answer = run()
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def test_commands_and_options(three_stores: Path) -> None:
    assert bash("ve") == ["versions", "verify"] and {"diff", "inspect", "sql"} <= set(bash(""))
    assert "--dry-run" in bash("vacuum", str(three_stores), "--")


def test_stores_at_the_path(three_stores: Path) -> None:
    assert bash("get", str(three_stores), "pr") == ["prices", "prints"]
    assert bash("compact", str(three_stores), "") == ["prices", "prints", "weather"]
    assert bash("diff", f"{three_stores}/prices", "p") == ["prices"]
    assert bash("get", f"{three_stores}/nothing", "p") == []
    assert '"prices"' in zsh("get", str(three_stores), "pri") and "weather" not in zsh("get", str(three_stores), "pri")


def test_paths(three_stores: Path) -> None:
    """Directories only, as they were begun."""
    (three_stores.parent / "warehouse.txt").touch()
    assert bash("inspect", f"{three_stores.parent}/ware") == [str(three_stores)]
    assert bash("inspect", f"{three_stores}/pri") == [f"{three_stores}/prices", f"{three_stores}/prints"]
    assert f'"{three_stores}"' in zsh("inspect", f"{three_stores.parent}/ware")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [SCRIPT, "--show-completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    assert "_STATESTORE_COMPLETE=complete_" in done.stdout and "statestore" in done.stdout


@pytest.mark.slow  # above, the same function answers without bash
def test_bash_itself(three_stores: Path, tmp_path: Path) -> None:
    """Installed into a home of its own, sourced, and asked by bash's own completion function."""
    shell = shutil.which("bash")
    assert shell is not None
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment["PATH"] = f"{SCRIPT.parent}:{os.environ['PATH']}"
    subprocess.run([SCRIPT, "--install-completion", "bash"], env=environment, capture_output=True, check=True)
    asked = (
        f"source ~/.bashrc; COMP_WORDS=(statestore scan '{three_stores}' we); COMP_CWORD=3; "
        '_statestore_completion statestore; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([shell, "--norc", "-c", asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["weather"]
