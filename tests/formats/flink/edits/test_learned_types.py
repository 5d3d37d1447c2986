"""Edits of states whose columns are learned from their values, after which other values would tell other columns."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at

import statestore
from benchmarks.engines import flink_forms
from benchmarks.engines.flink_forms import OPERATOR, Form, ascii_of, kryo
from benchmarks.engines.flink_snapshots import FIRST_KEY
from benchmarks.engines.kafka_forms import varint
from statestore.formats.errors import UnsupportedError

ROWS = 256
STATE = f"{OPERATOR}.measured"


def number_or_text(number: int) -> bytes:
    """A number in each third value, else a text, both by Kryo as a ``java.lang.Object``."""
    return b"\3\1" + ascii_of(f"text-{number}") if number % 3 else b"\2" + varint(2 * number)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(flink_forms, "DISTINCT", ROWS)
    return flink_forms.savepoint(tmp_path / "state", Form(kryo("java.lang.Object"), number_or_text), ROWS)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [("value LIKE '\"text-%'", pa.int32()), ("value NOT LIKE '\"text-%'", pa.string())],
    ids=["numbers stay", "texts stay"],
)
@pytest.mark.parametrize("settings", [{}, {"rename_operator": f"{OPERATOR}=elsewhere"}], ids=["as it was", "renamed"])
def test_rows_that_stay_are_those_of_the_source(
    condition: str, kind: pa.DataType, settings: dict[str, str], place: Path, tmp_path: Path
) -> None:
    """All values of the source are texts of JSON, and those that stay are of one class."""
    before = rows_of(source_at(place), STATE)
    with statestore.edit(place, tmp_path / "target", settings=settings) as edit:
        edit.sql(f'DELETE FROM "{STATE}" WHERE {condition}')
    assert edit.receipt is not None and not edit.receipt.notes[len(settings) :]
    state = STATE.replace(OPERATOR, "elsewhere") if settings else STATE
    after = rows_of(source_at(tmp_path / "target", {"uids": "elsewhere"}), state)
    assert after.schema.field("value").type == kind
    texts = {row["key"]: row["value"] for row in before.to_pylist()}
    stay = {
        key: text.strip('"') if kind == pa.string() else int(text)
        for key, text in texts.items()
        if ("text-" in text) is (kind == pa.string())
    }
    assert {row["key"]: row["value"] for row in after.to_pylist()} == stay and 0 < len(stay) < ROWS


def test_another_process_reads_a_target_in_the_columns_of_its_source(place: Path, tmp_path: Path) -> None:
    source = source_at(place)
    rows = rows_of(source, STATE)
    texts = rows.filter(pa.array(["text-" in each for each in rows.column("value").to_pylist()]))
    plan = planned(source, [state_edit(source, STATE, texts, texts.slice(0, 0))])
    target = written(plan, tmp_path / "target")
    at = pickle.loads(pickle.dumps(target.at(STATE, plan.target_version)))
    assert at.schema == rows.schema
    assert {
        row for part in at.parts(()) for batch in at.rows(part, ["value"], ()) for row in batch["value"].to_pylist()
    } == {text for text in rows.column("value").to_pylist() if "text-" not in text}


def test_a_pojo_keeps_its_objects_of_kryo(tmp_path: Path) -> None:
    """A list of Kryo 2 in a POJO: it stays, or gets other elements in the class that it has."""
    place = fixture("rocksdb-1.20") / manifest("rocksdb-1.20")["snapshots"][1]["path"]
    state = next(each for each in source_at(place).states() if each.endswith(".profile"))
    expected = {row["key"]: row["value"] for row in rows_of(source_at(place), state).to_pylist()}
    with statestore.edit(place, tmp_path / "target") as edit:
        edit.sql(f"""UPDATE "{state}" SET value.visits = 7 WHERE key = 'user-9';
                     UPDATE "{state}" SET value.tags = ['new', 'é', 't1'], value.nick = NULL WHERE key = 'user-10'""")
    assert len(expected["user-9"]["tags"]) == 1
    expected["user-9"]["visits"] = 7
    expected["user-10"] |= {"tags": ["new", "é", "t1"], "nick": None}
    found = rows_of(source_at(tmp_path / "target"), state)
    assert {row["key"]: row["value"] for row in found.to_pylist()} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'INSERT INTO "{STATE}" SELECT 1, value FROM "{STATE}" LIMIT 1', "column value: values of .* be written"),
        (
            f"UPDATE \"{STATE}\" SET value = '7' WHERE key = {FIRST_KEY}",
            "texts of JSON, which do not tell their classes",
        ),
    ],
)
def test_values_of_kryo_whose_class_is_not_known_are_refused(
    text: str, message: str, place: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(UnsupportedError, match=f"EDIT_UNSUPPORTED.*{message}"),
        statestore.edit(place, tmp_path / "target") as edit,
    ):
        edit.sql(text)
    assert not (tmp_path / "target").exists()
