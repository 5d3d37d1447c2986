"""The one file of records that an edit writes besides its target, by `statestore.edit` and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.kafka.edits import TOPIC, Logged, made_changelog

import statestore
from statestore.catalog.edits.receipt import keyed_digest
from statestore.formats.error_codes import ErrorCode
from statestore.formats.kafka.edits import produce_records

OTHER = "shop-prices-changelog"
SOURCE: list[Logged] = [(0, 1000, b"\x00a", b"5"), (0, 2000, b"\xffb", b"6"), (0, 3000, b"c", b"7")]
BYTES: dict[str, Any] = {"kind": "timestamped-key-value", "key_serde": "bytes", "value_serde": "bytes"}
FLAGS = ("--kind", BYTES["kind"], "--key-serde", "bytes", "--value-serde", "bytes")
DELETE = f"""DELETE FROM "{TOPIC}" WHERE key = '\\x00a'::BLOB"""
CHANGE = f"""{DELETE}; UPDATE "{TOPIC}" SET value = '8'::BLOB WHERE key = 'c'::BLOB; DELETE FROM "{OTHER}" """


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made_changelog(tmp_path / "changelogs", SOURCE[:1], OTHER)
    return made_changelog(tmp_path / "changelogs", SOURCE)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_one_file_has_the_records_of_all_topics(source: Path, tmp_path: Path) -> None:
    """A delete has a null; the program of the target reads the file as it reads the folder, and so does inspect."""
    file = tmp_path / "shop-all-changelog.jsonl"
    with statestore.edit(source, tmp_path / "target", settings={"records": file}, **BYTES) as edit:
        edit.sql(CHANGE)
    found = lines(file)
    assert [list(row) for row in found] == [["topic", "partition", "timestamp", "key", "value", "headers"]] * 3
    assert [(row["topic"], bytes.fromhex(row["key"]), row["value"]) for row in found] == [
        (OTHER, b"\x00a", None),
        (TOPIC, b"\x00a", None),
        (TOPIC, b"c", b"8".hex()),
    ]
    assert [row["timestamp"] for row in found][2] == 3000
    in_folder = [
        each for path in sorted((tmp_path / "target").glob("*.jsonl")) for each in produce_records._records(path)
    ]
    assert list(produce_records._records(file)) == in_folder and len(in_folder) == 3
    assert edit.receipt is not None and any(f"All 3 records are in {file}" in note for note in edit.receipt.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changelogs", file.name, "target"]


def test_a_preview_writes_no_file(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    answer = run("edit", source, "--dry-run", "--records", file, *FLAGS, DELETE)
    assert (answer.code, file.exists()) == (0, False)


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("there.jsonl", "TARGET_EXISTS", "which exists"),
        ("link.jsonl", "TARGET_EXISTS", "which exists"),
        ("changelogs/new.jsonl", "TARGET_EXISTS", "lies in"),
        ("target/new.jsonl", "INVALID_OPTION", "a folder that exists and is not the target"),
        ("new.json", "INVALID_OPTION", "ends in .jsonl"),
        ("s3://bucket/new.jsonl", "UNSUPPORTED_PATH", "setting records"),
    ],
)
def test_a_place_that_is_no_new_file_is_refused(
    source: Path, tmp_path: Path, name: str, code: str, problem: str
) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "nothing")
    before = sorted(tmp_path.rglob("*"))
    path = name if "://" in name else str(tmp_path / name)
    edit = statestore.edit(source, tmp_path / "target", settings={"records": path}, **BYTES)
    edit.sql(DELETE)
    with pytest.raises(statestore.StateStoreError, match=rf"\[{code}\].*{re.escape(problem)}"):
        edit.apply()
    assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "there.jsonl").read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_kept_and_so_is_the_key_of_the_receipt(source: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "all.jsonl", tmp_path / "target"

    def take_its_place(_: object) -> None:
        file.write_text("mine")

    begun = statestore.edit(source, target, settings={"records": file}, progress=take_its_place, **BYTES)
    begun.sql(DELETE)
    with pytest.raises(statestore.StateStoreError, match=r"EDIT_NOT_DELIVERED.*is there and verified.*not written"):
        begun.apply()
    assert file.read_text() == "mine"
    assert begun.receipt is not None and begun.receipt.proves(DELETE)
    kept = json.loads((target / "edit.json").read_text())
    assert kept["notes"][-1].startswith(f"Not handed on: {target} is there and verified")
    assert begun.receipt.key is not None and begun.receipt.key not in (target / "edit.json").read_text()
    with pytest.raises(statestore.InvalidInputError, match="has ended"):
        begun.apply()


def test_the_command_line_prints_the_key_though_records_were_not_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    wrong = statestore.StorageError(ErrorCode.DISK_FAILED, "no space left")

    def fail(*_: Any) -> None:
        raise wrong

    monkeypatch.setattr("statestore.formats.kafka.edit_plan.write_records_file", fail)
    answer = run("edit", source, "--into", target, "--records", tmp_path / "all.jsonl", *FLAGS, DELETE)
    assert answer.code != 0 and "EDIT_NOT_DELIVERED" in answer.err and "no space left" in answer.err
    assert f"receipt in {target}/edit.json" in answer.err
    [key] = re.findall("have the key ([0-9a-f]{64}),", answer.err)
    digest = json.loads((target / "edit.json").read_text())["statements"][0]
    assert digest == keyed_digest(key, DELETE)


def test_what_follows_is_said_by_the_page_of_the_target(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    answer = run("edit", source, "--into", target, *FLAGS, DELETE)
    assert answer.code == 0 and f"next: {target}/README.md says how the job goes on" in answer.err
