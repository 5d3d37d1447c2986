"""Forged compressed segments: lengths are judged before anything is decompressed, and damage is named."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from support.parameters import SHARE
from support.processes.forged_segments import CODED, COMPRESSED, coded, compressed, forged
from support.processes.scripts import command
from support.stores.segment_tables import random_table, segment_table, store_schema, write_in_blocks

from statestore.formats.errors import CorruptError
from statestore.formats.segments import stored_batch
from statestore.formats.segments.batch_message import PREFIX_BYTES, batch_fields
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.segments.stored_batch import MAX_UNPACKED_BYTES, column_places

ANY_SAVING = Compression(least_saving=0.0)


class Places:
    """The byte positions of the numbers of the only record batch of a file."""

    def __init__(self, meta: SegmentMeta, content: bytes, table: pa.Table) -> None:
        self.names = table.column_names
        start, length = meta.file.metadata_ranges[1]
        self.base = start + PREFIX_BYTES
        self.body = start + length
        self.fields = batch_fields(content[self.base : self.body])
        self.columns = column_places(table.schema)
        self.content = content

    def node(self, name: str) -> int:
        place: int = self.base + self.fields.nodes + 16 * self.columns[self.names.index(name)].node
        return place

    def buffer(self, name: str, number: int) -> int:
        place: int = self.base + self.fields.buffers + 16 * (self.columns[self.names.index(name)].buffer + number)
        return place

    def prefix(self, name: str, number: int) -> int:
        """The position of the length before compression of a buffer."""
        return self.body + int(struct.unpack_from("<q", self.content, self.buffer(name, number))[0])


def _read(change: Callable[[Places, bytearray], None], name: str) -> pa.Array:
    content, meta = compressed()
    damaged = bytearray(content)
    change(Places(meta, content, COMPRESSED), damaged)
    segment = Segment(forged(bytes(damaged), meta), pa.py_buffer(damaged), store_schema(COMPRESSED))
    return segment.column_array(name)


def _put(number: int, place: Callable[[Places], int]) -> Callable[[Places, bytearray], None]:
    def change(places: Places, content: bytearray) -> None:
        struct.pack_into("<q", content, place(places), number)

    return change


@pytest.mark.parametrize(
    ("name", "place", "number", "message"),
    [
        ("valid_from", lambda p: p.prefix("valid_from", 1), 2**40, "1099511627776 bytes before compression, at most"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), 2**63 - 1, "before compression, at most"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), MAX_UNPACKED_BYTES, "values have 67108864 bytes, expected"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), 8 * 200 + 65, "values have 1665 bytes, expected 1600"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), 8 * 200 - 1, "values have 1599 bytes, expected 1600"),
        ("k", lambda p: p.prefix("k", 1), 4 * 201 + 1, "ZSTD"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), 0, "values have 0 bytes, expected 1600"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), -2, "has -2 bytes before compression"),
        ("valid_from", lambda p: p.prefix("valid_from", 1), -1, "expected 1600"),
        ("k", lambda p: p.prefix("k", 1), 2**20, "offsets have 1048576 bytes, expected 804"),
        ("k", lambda p: p.prefix("k", 2), 2**20, "values have 1048576 bytes, expected"),
        ("valid_to", lambda p: p.prefix("valid_to", 0), 8_000, "validity bits have 8000 bytes, expected 25"),
        ("valid_from", lambda p: p.node("valid_from"), 10**15, "1000000000000000 values for 200 rows"),
        ("valid_from", lambda p: p.node("valid_from"), -1, "-1 values for 200 rows"),
        ("valid_to", lambda p: p.node("valid_to") + 8, 1, "it has .* nulls and says 1"),
        ("valid_to", lambda p: p.node("valid_to") + 8, -1, "-1 nulls among 200 values"),
        ("valid_from", lambda p: p.buffer("valid_from", 1), 2**40, "does not lie in its record batch"),
        ("valid_from", lambda p: p.buffer("valid_from", 1), -8, "does not lie in its record batch"),
        ("valid_from", lambda p: p.buffer("valid_from", 1), 4, "does not lie in its record batch"),
        ("valid_from", lambda p: p.buffer("valid_from", 1) + 8, 2**62, "does not lie in its record batch"),
        ("valid_from", lambda p: p.buffer("valid_from", 1) + 8, -1, "does not lie in its record batch"),
        ("valid_from", lambda p: p.buffer("valid_from", 1) + 8, 4, "column 'valid_from'"),
        ("valid_from", lambda p: p.buffer("valid_from", 1) + 8, 0, "values have 0 bytes, expected 1600"),
        ("valid_from", lambda p: p.base + p.fields.rows, 2**62, "4611686018427387904 rows, the commit says 200"),
    ],
)
def test_forged_lengths(name: str, place: Callable[[Places], int], number: int, message: str) -> None:
    """A number of the framing or a length before compression that is not what the rows need."""
    with pytest.raises(CorruptError, match=rf"segments/a.arrow: (?s:.*){message}") as caught:
        _read(_put(number, place), name)
    assert f"column {name!r}" in caught.value.message or "record batch" in caught.value.message


@pytest.mark.parametrize("name", ["valid_from", "k"])
def test_nothing_is_decompressed_to_a_length_that_is_too_great(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lengths of all buffers of the column are judged first."""
    monkeypatch.setattr(stored_batch, "_ZSTD", None)
    with pytest.raises(CorruptError, match="at most 67108864 are allowed"):
        _read(_put(MAX_UNPACKED_BYTES + 1, lambda p: p.prefix(name, 1)), name)


def test_a_small_file_that_claims_long_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros of any length compress to nearly nothing; a column of a batch has a greatest length."""
    monkeypatch.setattr("statestore.formats.segments.compressed_write.MAX_UNPACKED_BYTES", 1 << 30)
    values = pa.table({"v": pa.array(["\0" * (80 << 20)])})
    table = segment_table(pa.array(["a"]), [0], [OPEN], values)
    data, meta = write_in_blocks([table], compression=ANY_SAVING)
    assert data.size < 20_000
    segment = Segment(meta, data, store_schema(table))
    assert segment.column_array("k").to_pylist() == ["a"]
    with pytest.raises(CorruptError, match=r"column 'v': 83886.* bytes before compression, at most 67108864"):
        segment.column_array("v")


def test_damaged_values_name_the_column() -> None:
    """Bytes that Zstandard cannot read; other columns are still read."""

    def damage(places: Places, content: bytearray) -> None:
        begin = places.prefix("valid_from", 1) + 8
        content[begin : begin + 4] = b"\xff\xff\xff\xff"

    with pytest.raises(CorruptError, match="column 'valid_from'"):
        _read(damage, "valid_from")
    assert _read(damage, "k").equals(COMPRESSED.column("k").combine_chunks())


def test_only_zstandard_is_read() -> None:
    """The other codec of Arrow's files does not tell when a buffer has fewer bytes than it says."""
    _, meta = compressed()
    schema = store_schema(COMPRESSED).with_metadata(
        {"statestore.format": "segment/2", "statestore.role": "closed", "statestore.tombstone": "false"}
    )
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(COMPRESSED.cast(schema).combine_chunks().to_batches()[0])
        end = sink.tell()
    content = sink.getvalue().to_pybytes()
    body = 8 + 8 + int.from_bytes(content[12:16], "little")
    length = 8 + int.from_bytes(content[body + 4 : body + 8], "little")
    ranges = ((0, body), (body, length), (end, len(content) - end))
    lz4 = forged(content, replace(meta, file=FileRef("s", 0, "", ranges)))
    with pytest.raises(CorruptError, match=r"codec 0, method 0; expected zstd"):
        Segment(lz4, pa.py_buffer(content), store_schema(COMPRESSED)).column("k")


@pytest.mark.parametrize(("rows", "batch_rows"), [(200, 0), (200, -1), (200, 1), (200, 199), (0, 200), (2**62, 1)])
def test_batches_that_the_commit_miscounts(rows: int, batch_rows: int) -> None:
    """Refused when the file is opened, before a list of as many batches is made."""
    content, meta = compressed()
    wrong = replace(meta, blocks=(replace(meta.blocks[0], rows=rows, batch_rows=batch_rows),))
    with pytest.raises(CorruptError, match="record batches"):
        Segment(wrong, pa.py_buffer(content), store_schema(COMPRESSED))


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_of_a_large_file(damage: str) -> None:
    """Regions that no answer touches are not read; a damaged one is refused by its checksum."""
    table = random_table(150_000)
    data, meta = write_in_blocks([table], compression=Compression())
    assert data.size > 2 << 20
    content = bytearray(data)
    if damage == "cut":
        with pytest.raises(CorruptError, match="truncated"):
            Segment(meta, pa.py_buffer(content[:-9]), store_schema(table))
        return
    content[len(content) // 2] ^= 1
    segment = Segment(meta, pa.py_buffer(content), store_schema(table))
    assert segment.take("k", np.array([0])).to_pylist() == [table.column("k")[0].as_py()]
    with pytest.raises(CorruptError, match="region 1 "):
        segment.verify_all()


@pytest.mark.parametrize("kind", ["compressed", "coded"])
@pytest.mark.parametrize("step", [167, pytest.param(3 if SHARE == 1 else 29, marks=pytest.mark.slow)])
def test_forged_bytes_never_crash(step: int, kind: str) -> None:
    """Change every ``step``-th byte in turn, with checksums that match: an error or readable rows, and no crash."""
    done = subprocess.run(command("forged_segments", step, kind), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000 // step


CODED_PLACES = Places(coded()[1], coded()[0], CODED)


@pytest.mark.parametrize(
    ("name", "number", "place", "value", "message"),
    [
        ("price", 1, 0, -3, "has -3 bytes before compression"),
        ("price", 1, 0, -1, "column 'price'"),
        ("price", 1, 8, 9, "9 bytes, flags"),
        ("price", 1, 8, 1 | 4 << 8, "flags 4"),
        ("valid_from", 1, 24, 0, "unit 0 cannot be those of timestamp"),
        ("valid_from", 1, 8, 7, "coded numbers have"),
        ("k", 2, 0, -2, "values are coded"),
        ("valid_to", 0, 0, -2, "validity bits are coded"),
        ("k", 1, 16, -5, "its last offset is|offsets"),
        ("k", 1, 16, 10**6, "values have .* bytes, expected"),
        ("k", 1, 16, 2**40, "base 1099511627776"),
    ],
)
def test_forged_codes(name: str, number: int, place: int, value: int, message: str) -> None:
    """A prefix, or a number of the header of coded numbers, that this writer does not write."""
    content, meta = coded()
    damaged = bytearray(content)
    struct.pack_into("<q", damaged, CODED_PLACES.prefix(name, number) + place, value)
    segment = Segment(forged(bytes(damaged), meta), pa.py_buffer(damaged), store_schema(CODED))
    with pytest.raises(CorruptError, match=f"(?s){message}"):
        segment.column_array(name)


def test_coded_numbers_in_a_file_of_the_format_before_are_refused() -> None:
    content, meta = coded()
    older = content.replace(b"segment/3", b"segment/2")
    segment = Segment(forged(older, meta), pa.py_buffer(older), store_schema(CODED))
    with pytest.raises(CorruptError, match="has -2 bytes before compression"):
        segment.column_array("price")


def test_coded_numbers_of_children_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of no bytes could be as many as a forged length says."""
    monkeypatch.setattr(stored_batch, "MAX_UNPACKED_BYTES", 1599)
    content, meta = coded()
    with pytest.raises(CorruptError, match="values have 1600 bytes before coding, at most 1599 are allowed"):
        Segment(meta, pa.py_buffer(content), store_schema(CODED)).column_array("price")
