"""The receipt in a target says what was done, proves it to who holds its key, and tells an erased value to nobody."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.engines.toy_edits import NOW, Model, edits_between, opened, write_source

from statestore.catalog.edits.apply import apply_edit
from statestore.catalog.edits.receipt import RECEIPT_FILE, Receipt, read_receipt
from statestore.formats.edits import EditOptions
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import parse_location

ERASED = Model({**NOW.toys, ("secret-person", "diagnosis"): 987654}, {**NOW.queues, "secret-person": [31.5]})
DELETE = "DELETE FROM toys WHERE k = 'secret-person'"


def folder(path: Path) -> Folder:
    return folder_at(parse_location(str(path)))


def erased(tmp_path: Path, **options: Any) -> Receipt:
    """The receipt of an edit that erases a person's rows."""
    source = write_source(tmp_path / "source", {1: ERASED})
    target = str(tmp_path / "target")
    return apply_edit(opened(source), 1, edits_between(ERASED, NOW), target, statements=[DELETE], **options)


def kept(receipt: Receipt) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(receipt.target) / RECEIPT_FILE).read_text())
    return found


def test_it_says_what_was_done(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    after = Model({("a", "x"): 1, ("a", "y"): 20, ("d", "x"): 5}, {**NOW.queues, "a": [1.0, None, 4.0]})
    options = EditOptions(as_batch=True, settings={"depth": "3"})
    receipt = apply_edit(opened(source), 2, edits_between(NOW, after), str(tmp_path / "target"), options)
    found = kept(receipt)
    assert (found["source"], found["version"]) == (str(source), 2)
    assert (found["target"], found["target_version"]) == (str(tmp_path / "target"), 3)
    assert found["source_identity"] == "toy-1"
    assert found["options"] == {"as_batch": True, "allow_late": False, "settings": {"depth": "3"}}
    counts = {s["name"]: (s["removed"], s["added"], s["changed"], s["follows"]) for s in found["states"]}
    # One list lost an item of two that are equal and got another one: its other rows are as they were.
    assert counts == {"toys": (2, 1, 1, False), "queues": (1, 1, 0, False), "totals": (2, 1, 0, True)}
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", found["time"]) and found["user"] and found["host"] and found["product"]


def test_written_files_are_told_with_their_digests(tmp_path: Path) -> None:
    receipt = erased(tmp_path)
    for file in receipt.written:
        content = (tmp_path / "target" / file.path).read_bytes()
        assert (file.bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    there = {p.relative_to(tmp_path / "target").as_posix() for p in (tmp_path / "target").rglob("*.*")}
    assert {file.path for file in receipt.written} == {"1.json", "queues/1-1.json", "toy.txt"}
    copied = there - {file.path for file in receipt.written} - {"edit.json"}
    lines = []
    for path in sorted(copied):
        content = (tmp_path / "target" / path).read_bytes()
        lines.append(f"{path}\t{len(content)}\t{hashlib.sha256(content).hexdigest()}")
    assert receipt.copied.files == len(copied) and receipt.copied.linked == 0
    assert receipt.copied.sha256 == hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_files_of_the_source_are_told_by_names_and_sizes(tmp_path: Path) -> None:
    receipt = erased(tmp_path)
    files = [path for path in (tmp_path / "source").rglob("*") if path.is_file()]
    lines = sorted(f"{path.relative_to(tmp_path / 'source').as_posix()}\t{path.stat().st_size}" for path in files)
    assert receipt.source_files == hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("keep", [{}, {"keep_statements": True}, {"keep_rows": True}])
def test_an_erasure_survives_only_where_it_was_asked_for(tmp_path: Path, keep: dict[str, bool]) -> None:
    receipt = erased(tmp_path, **keep)
    target = tmp_path / "target"
    rest = [path for path in target.rglob("*") if path.is_file() and path.name != RECEIPT_FILE]
    assert all(b"secret" not in path.read_bytes() and b"987654" not in path.read_bytes() for path in rest)
    text = (target / RECEIPT_FILE).read_text()
    assert ("secret-person" in text) == bool(keep)
    assert (DELETE in text) == ("keep_statements" in keep)
    assert ("987654" in text) == ("keep_rows" in keep)
    assert receipt.key is not None and (receipt.key in text) == ("keep_rows" in keep)
    digests = [hashlib.sha256(each.encode()).hexdigest() for each in (DELETE, "secret-person", "987654")]
    assert not any(each in text for each in digests)


def test_the_key_proves_what_the_digests_stand_for(tmp_path: Path) -> None:
    receipt = erased(tmp_path)
    assert receipt.key is not None
    digest = hmac.new(bytes.fromhex(receipt.key), DELETE.encode(), "sha256").hexdigest()
    assert receipt.statements == (f"hmac-sha256:{digest}",)
    assert receipt.proves(DELETE) and not receipt.proves(DELETE + " ")
    (toys,) = [state for state in receipt.states if state.name == "toys"]
    row = json.dumps({"field": "diagnosis", "k": "secret-person", "n": 987654})
    assert toys.before == "hmac-sha256:" + hmac.new(bytes.fromhex(receipt.key), row.encode(), "sha256").hexdigest()
    found = read_receipt(folder(tmp_path / "target"))
    assert found is not None and found.key is None and not found.proves(DELETE)


def test_two_edits_have_two_keys(tmp_path: Path) -> None:
    one, two = (erased(tmp_path / name) for name in ("one", "two"))
    assert one.statements != two.statements and one.states[0].before != two.states[0].before


def test_statements_that_remove_nothing_are_kept(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    after = Model({**NOW.toys, ("new", "x"): 1}, NOW.queues)
    insert = "INSERT INTO toys VALUES ('new', 'x', 1)"
    receipt = apply_edit(opened(source), 2, edits_between(NOW, after), str(tmp_path / "t"), statements=[insert])
    assert receipt.statements == (insert,) and receipt.proves(insert)


@pytest.mark.parametrize(
    "text", [DELETE, "-- a note\nUPDATE toys SET n = 1 WHERE k = 'p'", "WITH x AS (SELECT 1) " + DELETE]
)
def test_a_statement_that_finds_no_row_is_kept_as_a_digest(tmp_path: Path, text: str) -> None:
    source = write_source(tmp_path / "source")
    receipt = apply_edit(opened(source), 2, [], str(tmp_path / "target"), statements=[text])
    assert text not in (tmp_path / "target" / RECEIPT_FILE).read_text() and receipt.proves(text)


def test_rows_are_kept_in_whole_where_asked_for(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    after = Model({**NOW.toys, ("a", "x"): 8}, {**NOW.queues, "b": [float("inf"), 2.0]})
    apply_edit(opened(source), 2, edits_between(NOW, after), str(tmp_path / "target"), keep_rows=True)
    found = read_receipt(folder(tmp_path / "target"))
    assert found is not None
    states = {state.name: state for state in found.states}
    assert states["toys"].rows_before == ({"k": "a", "field": "x", "n": 1},)
    assert states["toys"].rows_after == ({"k": "a", "field": "x", "n": 8},)
    assert states["queues"].rows_before == ({"k": "b", "item": "NaN"}, {"k": "b", "item": -0.0})
    assert states["queues"].rows_after == ({"k": "b", "item": "Infinity"}, {"k": "b", "item": 2.0})


@pytest.mark.parametrize("keep_rows", [False, True])
def test_it_is_read_as_it_was_returned(tmp_path: Path, keep_rows: bool) -> None:
    receipt = erased(tmp_path, keep_rows=keep_rows)
    found = read_receipt(folder(tmp_path / "target"))
    assert found is not None
    one, two = (json.dumps({**each.as_json(), "key": 0}, sort_keys=True) for each in (found, receipt))
    assert one == two
    assert found.key == (receipt.key if keep_rows else None)


def test_it_shows_itself(tmp_path: Path) -> None:
    receipt = erased(tmp_path)
    shown = repr(receipt)
    assert shown.splitlines()[0] == f"made from {tmp_path / 'source'}, version 1, as version 1"
    assert "toys: 1 removed, 0 added, 0 changed" in shown
    assert "totals: 1 removed, 0 added, 0 changed, follows" in shown
    assert "secret" not in shown and "<td>toys</td>" in receipt._repr_html_()


# Files that are no receipts


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert read_receipt(folder(tmp_path)) is None


def damages(text: str) -> dict[str, str]:
    body = json.loads(text)
    return {
        "cut": text[: len(text) // 2],
        "empty": "",
        "no JSON": "nothing",
        "a list": "[]",
        "of somebody else": '{"name": "mine"}',
        "another number": text.replace('"removed": 1', '"removed": 0', 1),
        "another source": json.dumps({**body, "source": "/elsewhere"}),
        "a later format": json.dumps({**body, "statestore_receipt": 2}),
        "deep": "[" * 100_000,
    }


@pytest.mark.parametrize("damage", list(damages("{}")))
def test_a_damaged_one_is_told_and_not_trusted(tmp_path: Path, damage: str) -> None:
    erased(tmp_path)
    file = tmp_path / "target" / RECEIPT_FILE
    file.write_text(damages(file.read_text())[damage])
    with pytest.raises(CorruptError, match=f"{file}: no receipt as an edit writes it.*not to be trusted") as raised:
        read_receipt(folder(tmp_path / "target"))
    assert raised.value.code == ErrorCode.FILE_DAMAGED


@pytest.mark.parametrize("name", ["states", "written", "copied", "options", "notes", "version", "time", "source"])
@pytest.mark.parametrize("value", [None, 5, "x", [1], {"a": 1}, -1.5])
def test_another_type_is_told(tmp_path: Path, name: str, value: Any) -> None:
    """Also where the checksum goes with it."""
    body = kept(erased(tmp_path))
    if type(body[name]) is type(value) and name in ("version", "source"):
        return
    del body["sha256"]
    body[name] = value
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    text = json.dumps({**body, "sha256": hashlib.sha256(canonical).hexdigest()})
    if name == "options" and isinstance(value, dict):
        return
    (tmp_path / "target" / RECEIPT_FILE).write_text(text)
    with pytest.raises(CorruptError, match="no receipt as an edit writes it"):
        read_receipt(folder(tmp_path / "target"))
