"""`statestore edit`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.command_line import run
from support.engines.toy_edits import NOW, Model, opened, read, same, tree, write_source
from support.engines.toys import write_package

from statestore.connector.cli.main import app
from statestore.formats.edit_settings import settings_of_engines

CHANGE = "UPDATE toys SET n = 26 WHERE k = 'a' AND field = 'x'"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        yield


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def test_a_target_is_written(source: Path, tmp_path: Path) -> None:
    before, target = tree(source), tmp_path / "target"
    answer = run("edit", source, "--into", target, f"{CHANGE}; DELETE FROM queues WHERE k = 'b'", "--json")
    assert answer.code == 0
    assert [(row["state"], row["change"], row["key"], row["new"]) for row in answer.rows] == [
        ("queues", "removed", {"k": "b"}, None),
        ("queues", "removed", {"k": "b"}, None),
        ("toys", "changed", {"k": "a", "field": "x"}, {"n": 26}),
    ]
    assert f"{target} has version 2, verified" in answer.err
    assert f"next: start the job from {target} in place of {source}, which is as it was" in answer.err
    queues = {k: items for k, items in NOW.queues.items() if k != "b"}
    assert same(read(opened(target), 2), Model({**NOW.toys, ("a", "x"): 26}, queues))
    assert tree(source) == before
    assert run("edit", source, "--into", target, CHANGE).code == 2


def test_nothing_is_written_by_a_dry_run(source: Path, tmp_path: Path) -> None:
    answer = run("edit", source, "--dry-run", CHANGE)
    assert (answer.code, "1 → 26" in answer.out) == (0, True)
    assert "toys: 1 changed" in answer.err and "nothing was written" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_without_statements_the_target_is_a_copy(source: Path, tmp_path: Path) -> None:
    answer = run("edit", source, "--into", tmp_path / "target")
    assert (answer.code, answer.out) == (0, "")
    assert "no row changes" in answer.err
    assert same(read(opened(tmp_path / "target"), 2), NOW)


def test_statements_come_from_a_file(source: Path, tmp_path: Path) -> None:
    mark = "\ufeff"  # as editors of Windows write it
    (tmp_path / "mend.sql").write_text(f"{mark}{CHANGE};\n-- and one more\nDELETE FROM toys WHERE k = 'b';\n")
    answer = run("edit", source, "--dry-run", "-f", tmp_path / "mend.sql", "--json")
    assert [row["change"] for row in answer.rows if row["state"] == "toys"] == ["changed", "removed"]
    (tmp_path / "mend.sql").write_text("DELETE FROM toys;\nDELETE FROM toy")
    assert "line 2, column 13: no table 'toy'" in run("edit", source, "--dry-run", "-f", tmp_path / "mend.sql").err


def test_an_edit_is_a_version_of_its_own(source: Path, tmp_path: Path) -> None:
    answer = run("edit", source, "--into", tmp_path / "target", CHANGE, "--as-batch", "--version", "1")
    assert answer.code == 0 and "has version 2" in answer.err


def test_the_receipt_keeps_what_is_asked_for(source: Path, tmp_path: Path) -> None:
    text = "DELETE FROM toys WHERE k = 'c'"
    plain, kept = tmp_path / "plain", tmp_path / "kept"
    assert "its digests have the key" in run("edit", source, "--into", plain, text).err
    assert run("edit", source, "--into", kept, text, "--keep-rows", "--keep-statements").code == 0
    assert text not in (plain / "edit.json").read_text()
    assert json.loads((kept / "edit.json").read_text())["statements"] == [text]


def test_settings_of_engines_are_flags(source: Path, tmp_path: Path) -> None:
    usage = run("edit", "--help").out
    listed = usage.partition("Settings of TARGET, by engine:")[2]
    for flag in ("--partitions", "--provider", "--changelogs / --no-changelogs", "--codec", "--toy-depth"):
        assert flag in listed, flag
    assert run("edit", source, "--into", tmp_path / "target", "--toy-depth", "3", "--no-toy-loud").code == 0
    receipt = json.loads((tmp_path / "target" / "edit.json").read_text())
    assert receipt["options"]["settings"] == {"toy_depth": "3", "toy_loud": "false"}
    wrong = run("edit", source, "--dry-run", "--toy-depth", "0")
    assert wrong.code == 2 and "--toy-depth is '0'; expected a depth of 1 or more" in wrong.err


def test_no_setting_is_called_as_another_flag() -> None:
    group: Any = typer.main.get_command(app)
    command = group.commands["edit"]
    others = {name for each in command.params for name in each.opts if getattr(each, "rich_help_panel", None) is None}
    settings = settings_of_engines(installed=False)
    assert settings and not {f"--{name.replace('_', '-')}" for name in settings} & others


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([CHANGE], 2, "--into is missing; name the place of the changed copy, or give --dry-run"),
        (["--dry-run", "UPDATE totals SET count = 1"], 2, "EDIT_REFUSED"),
        (["--dry-run", "-f", "no.sql"], 1, "no.sql does not exist"),
        (["--dry-run", "-f", "/dev/null"], 1, "NOT_A_FILE"),
        (["--dry-run", "--partitions", "3"], 2, "--partitions is no setting for edits of"),
        (["--dry-run", "--toy-depth", "deep"], 2, "Invalid value for '--toy-depth'"),
        (["--dry-run", "--set", "toy_depth=3"], 2, "No such option: --set"),
        (["--dry-run", "UPDATE toys SET n = 0.5"], 2, "WRONG_VALUE"),
        (["--dry-run", "--version", "9"], 1, "VERSION_NOT_FOUND"),
    ],
)
def test_wrong_use_is_refused(source: Path, arguments: list[str], code: int, message: str) -> None:
    answer = run("edit", source, *arguments)
    assert (answer.code, message in answer.err) == (code, True), answer.err
