"""Whoever looks at a target sees that an edit made it, and what is wrong with a receipt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import run
from support.engines.toy_edits import NOW, Model, edits_between, opened, write_source
from support.engines.toys import write_package

import statestore
from statestore.catalog.edits.apply import apply_edit

AFTER = Model({**NOW.toys, ("a", "x"): 8}, NOW.queues)
UPDATE = "UPDATE toys SET n = 8 WHERE k = 'a' AND field = 'x'"


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(write_package(tmp_path_factory.mktemp("package") / "toys.zip"))
        yield


@pytest.fixture
def target(tmp_path: Path) -> Path:
    source = write_source(tmp_path / "source")
    edits = edits_between(NOW, AFTER)
    apply_edit(opened(source), 2, edits, tmp_path / "target", statements=[UPDATE], keep_statements=True)
    return tmp_path / "target"


def test_inspect_shows_the_receipt(target: Path) -> None:
    shown = run("inspect", target)
    assert shown.code == 0
    lines = shown.err.splitlines()
    assert f"made from {target.with_name('source')}, version 2, as version 2" in lines
    assert "toys: 0 removed, 0 added, 1 changed" in lines
    assert f"statement: {UPDATE}" in lines
    assert "made from" not in run("inspect", target.with_name("source")).err


def test_inspect_has_the_receipt_as_json(target: Path) -> None:
    rows = run("inspect", target, "--json").rows
    kept = json.loads((target / "edit.json").read_text())
    assert len(rows) == 3
    for row in rows:
        assert row["edit"]["states"] == kept["states"] and row["edit"]["statements"] == [UPDATE]
    assert all("edit" not in row for row in run("inspect", target.with_name("source"), "--json").rows)


def test_python_has_the_receipt(target: Path) -> None:
    found = statestore.inspect(target)
    receipt = found.receipt()
    assert receipt is not None and receipt.statements == (UPDATE,)
    assert f"edit: made from {target.with_name('source')}, version 2, as version 2" in repr(found)
    assert statestore.inspect(target.with_name("source")).receipt() is None


def test_a_damaged_receipt_is_told_and_the_state_is_shown(target: Path) -> None:
    text = (target / "edit.json").read_text()
    (target / "edit.json").write_text(text.replace('"changed": 1', '"changed": 0'))
    shown = run("inspect", target)
    assert shown.code == 0 and "not to be trusted" in shown.err and "made from" not in shown.err
    assert all("not to be trusted" in row["edit"]["damaged"] for row in run("inspect", target, "--json").rows)
    assert "not to be trusted" in repr(statestore.inspect(target))
    with pytest.raises(statestore.CorruptError, match="FILE_DAMAGED"):
        statestore.inspect(target).receipt()
