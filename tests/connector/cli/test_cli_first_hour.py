"""The first hour of a user: the program's version, its help, hints for wrong times, errors in the words of options."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from typer.main import get_command

import statestore
from statestore.connector.cli.main import app, in_words_of_options

BEGIN = 1_577_836_800_000  # 2020-01-01


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
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


def test_no_value_yet_is_said(warehouse: Path) -> None:
    found = run("get", warehouse, "prices", "curry", "--as-of", "2019-06-01T00:00Z")
    assert (found.code, found.out) == (1, "")
    assert found.err.splitlines()[1] == "the first value of this key is from 2020-01-01T00:00:00.000Z"
    assert run("get", warehouse, "prices", "rice", "--as-of", str(BEGIN)).err == "no value for this key in prices\n"


@pytest.mark.parametrize("arguments", [("get", "prices", "curry"), ("scan", "prices")])
def test_seconds_for_milliseconds_are_said(warehouse: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments
    hint = "--as-of 1577836850 is 1970-01-19T06:17:16.850Z, and prices begins at 2020-01-01T00:00:00.000Z;"
    assert hint in " ".join(run(command, warehouse, *rest, "--as-of", "1577836850").err.split())
    assert run(command, warehouse, *rest, "--as-of", "1577836850000").err == ""


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


def test_an_error_of_a_command_names_its_option(warehouse: Path) -> None:
    found = run("sql", warehouse, "SELECT * FROM '/etc/passwd.csv'")
    assert "--allow-external-access" in found.err and "=True" not in found.err
    assert "--batch-id selects" in run("inspect", warehouse, "--batch-id", "3").err
