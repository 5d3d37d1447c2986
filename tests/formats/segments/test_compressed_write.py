"""Compressed segments: the same rows as plain ones, for this reader and for Arrow, and little read at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from support.stores.segment_tables import (
    opened_blocks,
    random_table,
    segment_table,
    store_schema,
    typed_values,
    write_in_blocks,
)

from statestore.formats.segments import compressed_write, segment, stored_batch
from statestore.formats.segments.compressed_write import CompressedBatches, Compression
from statestore.formats.segments.decoded_columns import DecodedColumns
from statestore.formats.segments.ipc_file import encode_file, write_file
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.segments.segment_write import COMPRESSED_BATCH_ROWS

EACH = COMPRESSED_BATCH_ROWS
ANY_SAVING = Compression(least_saving=0.0)
CODED = Compression(least_saving=0.0, plain=("valid_from",), coded=True)


def typed_table(rows: int) -> pa.Table:
    starts = np.arange(rows) * 1000
    ends = np.where(starts % 3000 == 0, OPEN, starts + 5000)
    keys = pa.array([f"key-{number % 50}" for number in range(rows)])
    return segment_table(keys, starts, ends, typed_values(rows), [1] * rows, np.where(ends == OPEN, 0, 2))


@pytest.fixture
def decompressed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The lengths of all buffers that are decompressed."""
    lengths: list[int] = []

    class Counting:
        def decompress(self, data: pa.Buffer, size: int) -> pa.Buffer:
            lengths.append(size)
            return pa.Codec("zstd").decompress(data, size)

    monkeypatch.setattr(stored_batch, "_ZSTD", Counting())
    yield lengths


@pytest.mark.parametrize("cuts", [(), (700,), (1, 2, 3)])
@pytest.mark.parametrize("compression", [None, Compression(), ANY_SAVING, Compression(9, 0.8)])
def test_every_type_is_read_back(compression: Compression | None, cuts: Sequence[int]) -> None:
    """By this reader and by Arrow's, whatever is compressed and however rows are cut into blocks."""
    table = typed_table(2_000)
    blocks = [table.slice(a, b - a) for a, b in zip((0, *cuts), (*cuts, 2_000), strict=True)]
    data, meta = write_in_blocks(blocks, compression=compression)
    found = Segment(meta, data, store_schema(table))
    found.verify_all()
    by_arrow = ipc.open_file(data).read_all()
    by_arrow.validate(full=True)
    for name in table.column_names:
        assert found.column_array(name).equals(table.column(name).combine_chunks()), name
        assert by_arrow.column(name).equals(table.column(name)), name
    assert (found.int64("valid_to")[::3] == OPEN).all()  # null slots hold it, compressed or not
    counted = duckdb.connect().from_arrow(by_arrow).aggregate("count(DISTINCT k)")
    assert counted.fetchall() == [(50,)]


@pytest.mark.parametrize("cuts", [(), (700,), (1, 2, 3)])
@pytest.mark.parametrize("compression", [CODED, Compression(coded=True), Compression(9, 0.8, coded=True)])
def test_coded_numbers_of_every_type_are_read_back(compression: Compression, cuts: Sequence[int]) -> None:
    """By this reader; Arrow refuses the file, because it does not know the form."""
    table = typed_table(2_000)
    more = {
        "price": pa.array([None if n % 7 == 0 else n / 100 for n in range(2_000)]),
        "count": pa.array(range(2_000), pa.int32()),
        "day": pa.array([None if n % 5 else n for n in range(2_000)], pa.date32()),
        "seen": pa.array([n * 1_000_000 for n in range(2_000)], pa.timestamp("us")),
        "took": pa.array([n % 50 for n in range(2_000)], pa.duration("us")),
    }
    for name, column in more.items():
        table = table.add_column(1, name, column)
    blocks = [table.slice(a, b - a) for a, b in zip((0, *cuts), (*cuts, 2_000), strict=True)]
    data, meta = write_in_blocks(blocks, compression=compression)
    found = Segment(meta, data, store_schema(table))
    found.verify_all()
    for name in table.column_names:
        assert found.column_array(name).equals(table.column(name).combine_chunks()), name
    assert (found.int64("valid_to")[::3] == OPEN).all()
    with pytest.raises((pa.ArrowException, OSError, MemoryError)):
        ipc.open_file(data).read_all().validate(full=True)


@pytest.mark.parametrize("compression", [None, Compression(), CODED, Compression(coded=True)])
def test_times_and_versions_are_read_where_they_are(compression: Compression | None) -> None:
    """Coded ones that do not run lie in the file; of others there are small copies; nothing else is kept."""
    table = typed_table(2_000)
    data, meta = write_in_blocks([table.slice(0, 700), table.slice(700)], compression=compression)
    kept = DecodedColumns()
    found = Segment(meta, data, store_schema(table), kept)
    places = {}
    for name in ("valid_from", "valid_to", "_added", "_closed"):
        whole = Segment(meta, data, store_schema(table)).int64(name)
        batches = found.numbers_in_place(name)
        assert np.concatenate([each.take(np.arange(each.rows)) for each in batches]).tolist() == whole.tolist()
        places[name] = {data.address <= each.data.address < data.address + data.size for each in batches}
        assert sum(each.data.size for each in batches) <= whole.nbytes
    assert kept.bytes == 0
    assert places["valid_from"] == {compression in (None, CODED)}


def test_coded_numbers_save_disk_and_named_columns_are_not_decompressed(decompressed: list[int]) -> None:
    table = random_table(4 * EACH)
    small, _ = write_in_blocks([table], compression=Compression(plain=("valid_from", "_added")))
    smaller, meta = write_in_blocks([table], compression=Compression(plain=("valid_from", "_added"), coded=True))
    assert smaller.size < 0.75 * small.size
    found = Segment(meta, smaller, store_schema(table))
    starts = table.column("valid_from").cast(pa.int64()).to_numpy()
    assert np.array_equal(found.int64_rows("valid_from", EACH, EACH + 5), starts[EACH : EACH + 5])
    assert found.int64("_added").tolist() == table.column("_added").to_pylist()
    assert decompressed == []


def test_lengths_of_texts_take_few_bytes() -> None:
    """Lengths that vary by less than sixteen take half of a byte."""
    rows, random = 4 * EACH, np.random.default_rng(3)
    keys = pa.array(["k" * length for length in random.integers(14, 27, rows)])
    values = pa.table({"v": ["v" * (number % 3) for number in range(rows)]})
    table = segment_table(keys, np.arange(rows), np.full(rows, OPEN), values, [1] * rows, [0] * rows)
    data, meta = write_in_blocks([table], compression=Compression(1, coded=True))
    found = Segment(meta, data, store_schema(table))
    found.verify_all()
    for name in ("k", "v"):
        assert found.column_array(name).equals(table.column(name).combine_chunks()), name
    assert data.size < rows * (0.6 + 0.6)


def test_coded_columns_count_to_the_memory_of_decoded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = DecodedColumns()
    monkeypatch.setattr(segment, "decoded", kept)
    found = opened_blocks([random_table(2 * EACH)], CODED)
    found.int64_rows("valid_from", 0, 1)
    assert kept.bytes == 8 * EACH


def test_a_file_is_the_same_as_the_bytes(tmp_path: Path) -> None:
    """Written to a descriptor or to memory; the bounds of batches are where both say."""
    data, meta = write_in_blocks([random_table(3 * EACH)], compression=Compression())
    batches = ipc.open_file(data).read_all().to_batches()
    schema = batches[0].schema
    encoded, ref = encode_file("s", schema, CompressedBatches(batches, Compression()))
    file = os.open(tmp_path / "s", os.O_RDWR | os.O_CREAT)
    try:
        assert write_file(file, "s", schema, CompressedBatches(batches, Compression())) == ref
    finally:
        os.close(file)
    assert (tmp_path / "s").read_bytes() == encoded.to_pybytes() == data.to_pybytes()
    assert len(meta.file.metadata_ranges) == 3 + 2


def test_columns_that_save_little_stay_as_they_are(decompressed: list[int]) -> None:
    """Random numbers are views of the file, whatever else is compressed."""
    table = random_table(EACH)
    found = opened_blocks([table], Compression())
    prices = found.column_array("price")
    assert decompressed == []
    data = found._verified.data
    assert data.address <= prices.buffers()[1].address < data.address + data.size
    assert found.int64("_closed").tolist() == table.column("_closed").to_pylist()
    assert decompressed == [8 * EACH]


def test_named_columns_are_not_compressed(decompressed: list[int]) -> None:
    found = opened_blocks([random_table(EACH)], Compression(plain=("_added", "valid_from")))
    found.int64("_added"), found.int64("valid_from")
    assert decompressed == []
    found.int64("_closed")
    assert decompressed == [8 * EACH]


def test_compression_saves_disk() -> None:
    table = random_table(2 * EACH).drop_columns(["price"])
    plain, _ = write_in_blocks([table])
    small, _ = write_in_blocks([table], compression=Compression())
    assert small.size < 0.5 * plain.size


def test_only_what_is_asked_for_is_decompressed(decompressed: list[int]) -> None:
    """One column of the batches of the rows in question; each once while it is kept."""
    found = opened_blocks([random_table(4 * EACH)], ANY_SAVING)
    list(found.batches(["valid_to"], EACH + 1, EACH + 2))
    assert decompressed == [8 * EACH]  # the validity bits are random, and not compressed
    found.take("valid_to", np.array([EACH + 5, EACH + 1]))
    list(found.batches(["valid_to"], EACH, 2 * EACH))
    assert len(decompressed) == 1
    found.take("_added", np.array([3 * EACH]))
    assert decompressed == [8 * EACH] * 2


@pytest.mark.parametrize("compression", [None, ANY_SAVING])
def test_parts_of_columns(compression: Compression | None) -> None:
    """Any range of rows, within a batch or over several, and beyond blocks."""
    first, second = random_table(2 * EACH + 10, 1), random_table(EACH - 7, 2)
    found = opened_blocks([first, second], compression)
    whole = pa.concat_tables([first, second])
    starts = whole.column("valid_from").cast(pa.int64()).to_numpy()
    for start, stop in ((0, 1), (5, 5), (EACH - 1, EACH + 1), (0, len(starts)), (2 * EACH, len(starts)), (9, 2 * EACH)):
        assert found.int64_rows("valid_from", start, stop).tolist() == starts[start:stop].tolist()
        assert found.bools_rows("_split", start, stop).tolist() == [False] * (stop - start)
        assert not found.int64_rows("valid_from", start, stop).flags.writeable
    rows = np.random.default_rng(1).permutation(len(starts))[:100]
    assert found.take("k", rows).equals(whole.column("k").take(pa.array(rows)).combine_chunks())


def test_a_part_in_one_batch_is_a_view() -> None:
    found = opened_blocks([random_table(2 * EACH)], None)
    part = found.int64_rows("valid_from", 10, 20)
    data = found._verified.data
    assert data.address < part.__array_interface__["data"][0] < data.address + data.size


@pytest.mark.parametrize("rows", [1, EACH, EACH + 1, 4 * EACH + 3])
def test_started_by(rows: int, decompressed: list[int]) -> None:
    """Results equal those of a search in the whole column, within any bounds; few batches are read."""
    found = opened_blocks([random_table(rows)], ANY_SAVING)
    starts = random_table(rows).column("valid_from").cast(pa.int64()).to_numpy()
    places = {0, rows - 1, EACH - 1, EACH, 2 * EACH + 1} & set(range(rows))
    for moment in {-1, 10**13, *(int(starts[place]) + step for place in places for step in (-1, 0, 1))}:
        for start, stop in ((0, rows), (rows // 3, rows // 2), (1, rows)):
            expected = np.searchsorted(starts[start:stop], moment, "right") if start < stop else 0
            assert found.started_by(moment, start, stop) == expected
    again = opened_blocks([random_table(rows)], ANY_SAVING)
    decompressed.clear()
    again.started_by(int(starts[-1]), 0, rows)
    assert len(decompressed) <= 3


def test_a_large_value_is_stored_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has so few rows that its columns are short; what is longer than a reader accepts is not compressed."""
    monkeypatch.setattr(compressed_write, "MAX_UNPACKED_BYTES", 6 << 20)
    values = pa.table({"v": pa.array(["a" * (5 << 20), "b" * (7 << 20)])})
    table = segment_table(pa.array(["k"] * 2), range(2), [OPEN] * 2, values)
    data, meta = write_in_blocks([table], compression=Compression())
    assert meta.blocks[0].batch_rows == 1
    found = Segment(meta, data, store_schema(table))
    assert found.take("v", np.array([1, 0])).to_pylist() == ["b" * (7 << 20), "a" * (5 << 20)]
    assert 7 << 20 < data.size < 8 << 20


def test_memory_of_decoded_columns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped, and what was handed out stays right."""
    kept = DecodedColumns(limit=20 * EACH)
    monkeypatch.setattr(segment, "decoded", kept)
    table = random_table(8 * EACH)
    found = opened_blocks([table], ANY_SAVING)
    handed_out = [found.int64_rows("valid_from", EACH * n, EACH * (n + 1)) for n in range(8)]
    assert kept.bytes == 16 * EACH
    expected = table.column("valid_from").cast(pa.int64()).to_numpy()
    assert np.array_equal(np.concatenate(handed_out), expected)
    assert np.array_equal(found.int64("valid_from"), expected)  # larger than the bound: kept alone
    assert kept.bytes == 64 * EACH
    found.int64_rows("_added", 0, 1)
    assert kept.bytes == 8 * EACH


def test_columns_that_few_cells_are_needed_of_are_kept_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most are needed once, and memory that is used again at once costs less than memory that grows."""
    kept = DecodedColumns()
    monkeypatch.setattr(segment, "decoded", kept)
    table = random_table(2 * EACH)
    found = opened_blocks([table], ANY_SAVING)
    few, many = np.array([5, EACH + 7]), np.arange(0, 2 * EACH, 2)
    expected = table.column("_added").to_pylist()
    for bytes_kept in (0, 16 * EACH, 16 * EACH):
        assert found.take("_added", few).to_pylist() == [expected[row] for row in few.tolist()]
        assert kept.bytes == bytes_kept
    assert found.take("_closed", many).to_pylist() == table.column("_closed").take(many).to_pylist()
    assert kept.bytes == 32 * EACH


def test_the_columns_of_a_segment_are_dropped_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next use, because the collector may find the segment while the arrays are being looked up."""
    kept = DecodedColumns()
    monkeypatch.setattr(segment, "decoded", kept)
    first, second = (opened_blocks([random_table(EACH)], ANY_SAVING) for _ in range(2))
    first.int64("_added")
    second.int64_rows("_added", 0, 1)
    assert kept.bytes == 24 * EACH
    del first
    second.int64_rows("_closed", 0, 1)
    assert kept.bytes == 16 * EACH
    second.forget_decoded()
    assert kept.bytes == 0


def test_many_threads_read_the_same() -> None:
    """Arrays are right while others are dropped and made again."""
    found = opened_blocks([random_table(6 * EACH)], ANY_SAVING)
    expected = random_table(6 * EACH).column("_added").to_pylist()

    def read(seed: int) -> bool:
        start, stop = sorted(np.random.default_rng(seed).integers(0, 6 * EACH, 2).tolist())
        if seed % 5 == 0:
            found.forget_decoded()
        return bool(found.int64_rows("_added", start, stop).tolist() == expected[start:stop])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(40)))


def test_batches_without_columns_have_rows() -> None:
    found = opened_blocks([random_table(2 * EACH)], ANY_SAVING)
    assert [batch.num_rows for batch in found.batches([], 5, EACH + 9)] == [EACH - 5, 9]
