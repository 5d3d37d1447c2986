"""The engine's own reader confirms a target before it appears, or there is no target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from support.engines.toy_edits import NOW, Model, edits_between, opened, tree, write_source
from support.engines.toy_engine import Toys

import statestore
from statestore.catalog.edits.apply import apply_edit
from statestore.catalog.edits.receipt import Receipt
from statestore.formats.edits import EditOptions
from statestore.formats.engine_reads import EngineRead, EngineReads
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError

AFTER = Model({("a", "x"): 1, ("d", "x"): 5}, {"a": [1.0, 2.0]})
READS = {
    "toys": EngineRead({"name": "toys"}, ("k", "field", "n")),
    "queues": EngineRead({"name": "queues"}, ("k", "item")),
    "totals": EngineRead({"name": "totals"}, ("count",), left_out="no reader tells keys"),
}
Change = Callable[[pa.RecordBatch, str], pa.RecordBatch]


def moved(place: str) -> Mapping[str, bytes]:
    return {"toy.txt": f"toy-1 at {place}".encode()}


class Reader:
    """Reads toys by the reader of this project's tests, and changes what it has read."""

    name = "Toy 7's reader"

    def __init__(self, change: Change = lambda batch, state: batch) -> None:
        self._change = change
        self.places: set[str] = set()

    def rows(self, place: str, read: EngineRead, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        assert (Path(place) / "toy.txt").read_text() == f"toy-1 at {place}"
        (Path(place) / "left by the reader").touch()
        self.places.add(place)
        state = read.options["name"]
        source = opened(Path(place))
        at = source.at(state, source.newest(state))
        for part in at.parts(()):
            for batch in at.rows(part, schema.names, ()):
                yield self._change(batch.select(schema.names), state)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Toys, "engine_reads", lambda self: EngineReads("toy", READS, moved))
    return write_source(tmp_path / "source")


def edit(source: Path, reader: Reader) -> Receipt:
    edits = edits_between(NOW, AFTER)
    return apply_edit(opened(source), 2, edits, str(source.with_name("target")), EditOptions(), reader=reader)


def test_the_receipt_says_what_was_confirmed(source: Path, tmp_path: Path) -> None:
    reader, before = Reader(), tree(source)
    receipt = edit(source, reader)
    rows = len(AFTER.toys) + len(AFTER.queues["a"]) + len(AFTER.totals())
    assert f"queues, totals, toys: confirmed by Toy 7's reader: {rows} rows." in receipt.notes
    assert "Of totals only count is confirmed: no reader tells keys." in receipt.notes
    assert not any(Path(place).exists() for place in reader.places)
    assert (tmp_path / "target" / "toy.txt").read_text() == "toy-1"
    assert "left by the reader" not in tree(tmp_path / "target")
    assert tree(source) == before
    assert {path.name for path in tmp_path.iterdir()} == {"source", "target"}


def without_a_row(batch: pa.RecordBatch, state: str) -> pa.RecordBatch:
    return batch.slice(1) if state == "toys" else batch


def with_another_value(batch: pa.RecordBatch, state: str) -> pa.RecordBatch:
    if state != "toys" or not batch.num_rows:
        return batch
    numbers = pa.array([99, *batch.column(2).to_pylist()[1:]], batch.schema.field(2).type)
    return pa.RecordBatch.from_arrays([*batch.columns[:2], numbers], schema=batch.schema)


def failing_in_the_target(batch: pa.RecordBatch, state: str) -> pa.RecordBatch:
    if "d" in batch.column(0).to_pylist():  # a key that the edit has added
        raise RuntimeError("the engine's error\nand its stack")
    return batch


def failing_in_both(batch: pa.RecordBatch, state: str) -> pa.RecordBatch:
    if state == "toys":
        raise RuntimeError("the engine's error\nand its stack")
    return batch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_a_row, r"Toy 7's reader finds 1 rows in state toys, and here are 2; it lacks the row .*\"n\": 1"),
        (with_another_value, r"finds 2 rows in state toys, and here are 2; it (lacks|alone has) the row"),
        (failing_in_the_target, r"cannot read its state toys \(the engine's error\), and reads that of the source"),
    ],
)
def test_a_target_that_the_engine_reads_otherwise_is_not_made(
    source: Path, tmp_path: Path, change: Change, message: str
) -> None:
    with pytest.raises(StateStoreError, match=message) as caught:
        edit(source, Reader(change))
    assert caught.value.code == ErrorCode.EDIT_DIFFERS
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_what_the_reader_cannot_tell_is_named(source: Path) -> None:
    def refusing(batch: pa.RecordBatch, state: str) -> pa.RecordBatch:
        if state == "queues":
            raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, "its column item is a toy")
        return batch

    notes = edit(source, Reader(refusing)).notes
    assert "The rows of queues are unconfirmed by Toy 7's reader: its column item is a toy" in notes
    rows = len(AFTER.toys) + len(AFTER.totals())
    assert f"totals, toys: confirmed by Toy 7's reader: {rows} rows." in notes


def test_what_the_reader_does_not_read_in_the_source_either_is_named(source: Path) -> None:
    before = tree(source)
    notes = edit(source, Reader(failing_in_both)).notes
    reason = "it does not read those of the source either (the engine's error)"
    assert f"The rows of toys are unconfirmed by Toy 7's reader: {reason}" in notes
    assert any(note.startswith("queues, totals: confirmed") for note in notes)
    assert tree(source) == before


def test_an_engine_without_a_reader_is_refused_at_once(tmp_path: Path) -> None:
    from support.flink.fixtures import fixture, manifest

    path = fixture("hashmap") / manifest("hashmap")["snapshots"][-1]["path"]
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*no reader.*leave out with_engine") as caught:
        statestore.edit(path, tmp_path / "target", with_engine=True)
    assert "start the job from the target" in caught.value.message
    assert list(tmp_path.iterdir()) == []
