"""Page tables: reads of a file in an object store fetch and verify pages of 16 KiB by the table at the file's end."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from pyarrow import ipc
from support.parameters import named
from support.stores.segment_tables import segment_table, store_schema, write_in_blocks

from statestore.formats.errors import CorruptError
from statestore.formats.places.object_cache import PAGE_BYTES, REQUEST_BYTES, CachedObject, joined
from statestore.formats.segments.compressed_write import CompressedBatches, Compression
from statestore.formats.segments.decoded_columns import DecodedColumns
from statestore.formats.segments.ipc_file import (
    encode_file,
    open_batches,
    open_file,
    verify_column,
    verify_stored_column,
)
from statestore.formats.segments.key_index import encode_index
from statestore.formats.segments.page_table import check_pages
from statestore.formats.segments.regions import REGION_BYTES, VerifiedBytes, checksum_regions, missing_parts
from statestore.formats.segments.remote_key_index import RemoteKeyIndex
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta
from statestore.formats.values.types import TIME

ROWS = 70_000
SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("valid_from", TIME)])
HEADER = struct.Struct("<8sIIII")


def batches(count: int = 3, schema: pa.Schema = SCHEMA) -> list[pa.RecordBatch]:
    random = np.random.default_rng(1)
    columns = [
        [pa.array(random.integers(0, 1 << 62, ROWS)), pa.array(np.arange(ROWS) + 1_000_000 * n).cast(TIME)]
        for n in range(count)
    ]
    return [pa.RecordBatch.from_arrays(each[: len(schema)], schema=schema) for each in columns]


def encoded(given: Any = None, schema: pa.Schema = SCHEMA) -> tuple[bytes, FileRef]:
    data, ref = encode_file("segments/a.arrow", schema, batches() if given is None else given, paged=True)
    return data.to_pybytes(), ref


DATA, REF = encoded()
END = REF.metadata_ranges[-1][0]


class Remote:
    """An object of a store, and the parts of it that were asked for."""

    def __init__(self, content: bytes = DATA) -> None:
        self.content = content
        self.asked: list[tuple[int, int]] = []
        self.object = CachedObject(len(content), self.read, None)

    def read(self, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return self.content[start:stop]


def damaged(at: int, data: bytes = DATA) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_the_table_is_as_the_format_says() -> None:
    """Read with nothing of this package."""
    tail = DATA[END:]
    assert REF.tail_checksum == xxhash.xxh3_64_hexdigest(tail)
    assert tail[:8] == b"\xff\xff\xff\xff\0\0\0\0"
    magic, size, pages, marks, framings = HEADER.unpack_from(tail, 8)
    assert (magic, size, pages, marks, framings) == (b"SSPAGES\x01", 16_384, -(-END // 16_384), 3, 0)
    checksums = struct.unpack_from(f"<{pages}Q", tail, 8 + HEADER.size)
    for page, checksum in enumerate(checksums):
        part = DATA[page * size : min((page + 1) * size, END)]
        assert xxhash.xxh3_64_intdigest(part) == checksum, page
    assert struct.unpack_from("<3q", tail, 8 + HEADER.size + 8 * pages) == (0, 1_000_000, 2_000_000)
    assert REF.checksums == checksum_regions(pa.py_buffer(DATA))  # the log has those of regions as for each file


@pytest.mark.parametrize("compressed", [False, True])
def test_arrow_reads_a_file_with_a_table(compressed: bool) -> None:
    given = CompressedBatches(batches(), Compression()) if compressed else batches()
    data, ref = encoded(given)
    assert ref.tail_checksum
    assert ipc.open_file(pa.py_buffer(data)).read_all() == pa.Table.from_batches(batches())
    assert ipc.open_stream(pa.py_buffer(data[8:])).read_all() == pa.Table.from_batches(batches())


def test_a_file_without_times_has_none_in_its_table() -> None:
    only = pa.schema([SCHEMA.field("number")])
    data, ref = encoded(batches(3, only), only)
    assert ref.tail_checksum
    assert VerifiedBytes(ref, Remote(data).object).marks(3) is None


def test_a_small_file_has_no_table() -> None:
    data, ref = encode_file("a", SCHEMA, [batches(1)[0].slice(0, 1000)], paged=True)
    assert ref.tail_checksum == "" and data.to_pybytes() == encode_file("a", SCHEMA, [batches(1)[0].slice(0, 1000)])[0]


def test_a_file_is_read_page_by_page() -> None:
    remote = Remote()
    verified = VerifiedBytes(REF, remote.object)
    assert remote.asked == []
    assert verified.slice(5 * PAGE_BYTES + 7, 10).to_pybytes() == DATA[5 * PAGE_BYTES + 7 :][:10]
    assert remote.asked == [(END, len(DATA)), (5 * PAGE_BYTES, 6 * PAGE_BYTES)]
    marks = verified.marks(3)
    assert marks is not None and marks.tolist() == [0, 1_000_000, 2_000_000] and verified.marks(2) is None
    schema, found = open_file(verified)
    assert schema == SCHEMA and verify_column(verified, found[1], 0) == batches()[1].column(0)
    fetched = sum(stop - start for start, stop in remote.asked)
    assert fetched < 8 * ROWS + 8 * PAGE_BYTES + 4 * len(REF.checksums)
    verified.verify_all()
    assert remote.object.buffer.to_pybytes() == DATA


def test_a_local_file_is_verified_by_the_regions_of_the_log() -> None:
    verified = VerifiedBytes(REF, pa.py_buffer(damaged(2 * REGION_BYTES + 5)))
    assert verified.marks(3) is None
    verified.verify(0, 2 * REGION_BYTES)
    with pytest.raises(CorruptError, match=r"region 2 "):
        verified.verify(0, 2 * REGION_BYTES + 1)


@pytest.mark.parametrize("page", [0, 7, (END - 1) // PAGE_BYTES])
def test_a_damaged_page_is_named(page: int) -> None:
    remote = Remote(damaged(page * PAGE_BYTES + 3))
    verified = VerifiedBytes(REF, remote.object)
    for other in range(-(-END // PAGE_BYTES)):
        if other != page:
            verified.verify(other * PAGE_BYTES, 1)
    with pytest.raises(CorruptError, match=rf"page {page} \(bytes {page * PAGE_BYTES} to .* its page table says"):
        verified.verify(page * PAGE_BYTES, 1)
    assert remote.asked.count((page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, END))) == 2  # once again, then reported


@pytest.mark.parametrize("at", [END, END + 8, END + 12, END + 40, len(DATA) - 1])
def test_a_damaged_end_is_reported(at: int) -> None:
    with pytest.raises(CorruptError, match=rf"its end \(bytes {END} to {len(DATA)}\) has checksum"):
        VerifiedBytes(REF, Remote(damaged(at)).object).verify(0, 1)


def forged(place: int, form: str, value: Any) -> tuple[bytes, FileRef]:
    """Return the file with other bytes in its end, of which the commit has the checksum."""
    data = bytearray(DATA)
    struct.pack_into(form, data, END + place, value)
    return bytes(data), replace(REF, tail_checksum=xxhash.xxh3_64_hexdigest(bytes(data[END:])))


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [
        (8, "<8s", b"SSPAGES\x02"),
        (16, "<I", 8192),
        (20, "<I", 1),
        (20, "<I", 1 << 31),
        (24, "<I", 1 << 31),
        (28, "<I", 1 << 31),
    ],
)
def test_a_forged_table_is_refused(place: int, form: str, value: Any) -> None:
    data, ref = forged(place, form, value)
    with pytest.raises(CorruptError, match=r"SEGMENT_CORRUPT.*page table"):
        VerifiedBytes(ref, Remote(data).object).verify(0, 1)


@pytest.mark.parametrize(
    "ranges", [(), ((0, 10),), ((0, len(DATA)),), ((0, 10), (0, len(DATA))), ((0, 10), (END, len(DATA) - END - 1))]
)
def test_a_commit_that_does_not_say_where_the_table_is(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(CorruptError, match="where its page table is"):
        VerifiedBytes(replace(REF, metadata_ranges=ranges), Remote().object)


def test_an_end_that_is_too_short_for_its_table_is_refused() -> None:
    cut = DATA[: END + 20]
    ranges = (*REF.metadata_ranges[:-1], (END, 20))
    ref = replace(
        REF, bytes=len(cut), checksums=checksum_regions(pa.py_buffer(cut)), metadata_ranges=ranges,
        tail_checksum=xxhash.xxh3_64_hexdigest(cut[END:]),
    )  # fmt: skip
    with pytest.raises(CorruptError, match="its page table is cut"):
        VerifiedBytes(ref, Remote(cut).object).verify(0, 1)


def test_what_was_verified_is_not_fetched_over() -> None:
    """A page that somebody has mapped does not change, whatever the store answers later."""
    remote = Remote()
    verified = VerifiedBytes(REF, remote.object)
    kept = verified.slice(5 * PAGE_BYTES, PAGE_BYTES)
    remote.content = bytes(len(DATA))
    fetched = [(page * PAGE_BYTES, PAGE_BYTES) for page in (4, 6)]
    remote.object.fetch(missing_parts(REF, remote.object, [*fetched, (5 * PAGE_BYTES, 1)]))
    assert kept.to_pybytes() == DATA[5 * PAGE_BYTES : 6 * PAGE_BYTES]


def test_what_another_process_fetched_meanwhile_is_not_fetched_again(tmp_path: Path) -> None:
    first, second = Remote(), Remote()
    early = VerifiedBytes(REF, CachedObject(len(DATA), first.read, tmp_path / "copy"))
    VerifiedBytes(REF, CachedObject(len(DATA), second.read, tmp_path / "copy")).verify(7 * PAGE_BYTES, 1)
    early.verify(7 * PAGE_BYTES, 1)
    assert first.asked == []


def test_a_table_that_was_verified_for_one_commit_is_not_taken_for_another() -> None:
    remote = Remote()
    VerifiedBytes(REF, remote.object).verify(0, 1)
    with pytest.raises(CorruptError, match="its end"):
        VerifiedBytes(replace(REF, tail_checksum="0" * 16), remote.object).verify(0, 1)


def test_what_another_process_fetched_is_found_by_the_table(tmp_path: Path) -> None:
    first, second = Remote(), Remote()
    VerifiedBytes(REF, CachedObject(len(DATA), first.read, tmp_path / "copy")).verify(3 * PAGE_BYTES, 1)
    again = VerifiedBytes(REF, CachedObject(len(DATA), second.read, tmp_path / "copy"))
    again.verify(3 * PAGE_BYTES, 1)
    assert second.asked == []
    again.verify(3 * PAGE_BYTES, PAGE_BYTES + 1)
    assert second.asked == [(4 * PAGE_BYTES, 5 * PAGE_BYTES)]


def test_an_object_that_this_process_put_is_not_fetched() -> None:
    remote = Remote()
    remote.object.keep(memoryview(DATA))
    VerifiedBytes(REF, remote.object).verify_all()
    assert remote.asked == []


@pytest.mark.parametrize(
    ("parts", "requests"),
    [
        ([], []),
        ([(10, 20)], [(10, 20)]),
        ([(0, 5), (5, 9)], [(0, 9)]),
        ([(20, 30), (0, 10)], [(0, 10), (20, 30)]),
        ([(0, 10), (11, 40_000)], [(0, 10), (11, 40_000)]),
        ([(0, 2 * REQUEST_BYTES + 1)], [(n * REQUEST_BYTES, (n + 1) * REQUEST_BYTES) for n in range(2)]
         + [(2 * REQUEST_BYTES, 2 * REQUEST_BYTES + 1)]),
        ([(0, 50), (10, 20)], [(0, 50)]),
    ],
)  # fmt: skip
def test_ranges_of_requests(parts: Iterable[tuple[int, int]], requests: list[tuple[int, int]]) -> None:
    assert joined(parts) == requests


@pytest.mark.parametrize("grouped", [False, True])
def test_a_key_of_many_rows_does_not_mislead_a_look_up(grouped: bool) -> None:
    """Hashes are not spread evenly over an index where keys have many rows; its marks say where each one is."""
    random = np.random.default_rng(3)
    hot = np.repeat(random.integers(0, 1 << 64, 12, np.uint64), 9_000)
    hashes = random.permutation(np.concatenate([hot, random.integers(0, 1 << 64, 200_000, np.uint64)]))
    data, ref = encode_index("a", hashes, grouped=grouped, paged=True)
    remote = Remote(data.to_pybytes())
    index = RemoteKeyIndex(ref, remote.object, len(hashes))
    absent = random.integers(0, 1 << 64, 3, np.uint64)
    for wanted in [*hashes[::20_000], *absent, np.uint64(0), np.uint64((1 << 64) - 1), hashes.min(), hashes.max()]:
        remote.object.fetch(missing_parts(ref, remote.object, index.near(int(wanted))))
        remote.asked.clear()
        found = index.find(int(wanted))
        assert found == np.flatnonzero(hashes == wanted).tolist()
        assert len(remote.asked) <= (2 if grouped else 0), remote.asked  # of a grouped index, the rows


@pytest.mark.parametrize("marks", ["wrong", "reversed"])
def test_marks_that_are_wrong_give_no_wrong_rows(marks: str) -> None:
    hashes = np.random.default_rng(4).integers(0, 1 << 64, 150_000, np.uint64)
    encoded_index, ref = encode_index("a", hashes, paged=True)
    data, end = bytearray(encoded_index), ref.metadata_ranges[-1][0]
    *_, pages, count, _ = HEADER.unpack_from(data, end + 8)
    at = end + 8 + HEADER.size + 8 * pages
    stored = np.frombuffer(data, "<u8", count, at).copy()
    forged = np.sort(hashes[:count]) if marks == "wrong" else stored[::-1]
    data[at : at + 8 * count] = forged.tobytes()
    ref = replace(ref, tail_checksum=xxhash.xxh3_64_hexdigest(bytes(data[end:])))
    index = RemoteKeyIndex(ref, Remote(bytes(data)).object, len(hashes))
    for wanted in hashes[:300]:
        assert index.find(int(wanted)) == np.flatnonzero(hashes == wanted).tolist()


def test_framings_of_the_table_are_verified_before_they_are_parsed() -> None:
    """A commit that gives two ranges of a file without blocks, whose batches are then where the table says."""
    data, ref = encoded(CompressedBatches(batches(), Compression()))
    at, _ = VerifiedBytes(ref, Remote(data).object).metadata_ranges[2]
    with pytest.raises(CorruptError, match=r"page \d+ \(bytes"):
        open_file(VerifiedBytes(ref, Remote(damaged(at + 20, data)).object))


@pytest.mark.parametrize("at", [0, 5 * PAGE_BYTES, END - 1, END, END + 40, len(DATA) - 1])
def test_a_full_check_compares_the_table_and_the_pages(at: int) -> None:
    check_pages(REF, memoryview(DATA))
    with pytest.raises(CorruptError, match="SEGMENT_CORRUPT"):
        check_pages(REF, memoryview(damaged(at)))


@pytest.mark.parametrize("place", ["object", "disk"])
def test_places_of_compressed_batches_are_in_the_table(place: str) -> None:
    data, ref = encoded(CompressedBatches(batches(), Compression()))
    assert len(ref.metadata_ranges) == 2
    remote = Remote(data)
    verified = VerifiedBytes(ref, remote.object if place == "object" else pa.py_buffer(data))
    _, found = open_batches(verified, lambda schema: None, [(3 * ROWS, ROWS)])
    assert [batch.num_rows for batch in found] == [ROWS] * 3
    fetched = sum(stop - start for start, stop in remote.asked)
    assert fetched <= PAGE_BYTES + ref.metadata_ranges[-1][1] + 2 * 8  # the schema and the end
    for batch, expected in zip(found, batches(), strict=True):
        assert verify_stored_column(verified, batch, 0)[0] == expected.column(0)
    assert (verified.metadata_ranges[0], verified.metadata_ranges[-1]) == ref.metadata_ranges


@pytest.mark.parametrize("place", ["object", "disk"])
def test_forged_places_of_batches_are_refused(place: str) -> None:
    data, whole = encoded(CompressedBatches(batches(), Compression()))
    end = whole.metadata_ranges[-1][0]
    *_, pages, marks, _ = HEADER.unpack_from(data, end + 8)
    for number, value in product(range(6), (-1, 0, 8, 1 << 40, -(1 << 63))):
        forged = bytearray(data)
        struct.pack_into("<q", forged, end + 8 + HEADER.size + 8 * (pages + marks + number), value)
        ref = replace(whole, tail_checksum=xxhash.xxh3_64_hexdigest(bytes(forged[end:])))
        ref = replace(ref, checksums=checksum_regions(pa.py_buffer(bytes(forged))))
        content = Remote(bytes(forged)).object if place == "object" else pa.py_buffer(bytes(forged))
        verified = VerifiedBytes(ref, content)
        with named((number, value)), pytest.raises(CorruptError, match="SEGMENT_CORRUPT"):
            for batch in open_batches(verified, lambda schema: None, [(3 * ROWS, ROWS)])[1]:
                verify_stored_column(verified, batch, 0)


@pytest.fixture(scope="module")
def blocks() -> tuple[list[Any], bytes, SegmentMeta]:
    """Two blocks of 20 batches each, as a table each, and their file."""
    random = np.random.default_rng(5)
    tables = []
    for first in (0, 30_000):
        starts = np.sort(random.integers(first, first + 60_000, 20_000)) * 1_000
        values = pa.table({"v": random.integers(0, 1 << 62, 20_000)})
        tables.append(
            segment_table(pa.array([random.bytes(32).hex() for _ in range(20_000)]), starts, starts + 7_000, values)
        )
    data, meta = write_in_blocks(tables, compression=Compression(batch_rows=1_000), paged=True)
    assert meta.file.tail_checksum
    return tables, data.to_pybytes(), meta


def segment_of(tables: list[Any], data: bytes, meta: SegmentMeta) -> Segment:
    return Segment(meta, Remote(data).object, store_schema(tables[0]), DecodedColumns(1 << 26))


def test_marks_say_how_many_rows_start_by_a_moment(blocks: tuple[list[Any], bytes, SegmentMeta]) -> None:
    tables, data, meta = blocks
    segment = segment_of(tables, data, meta)
    for number, table in enumerate(tables):
        starts = table["valid_from"].combine_chunks().cast(pa.int64()).to_numpy()
        moments = [starts[0] - 1, starts[-1], starts[-1] + 1, *starts[::777], *(starts[::1_000] - 1), *starts[::1_000]]
        for moment in moments:
            found = segment.started_by(int(moment), 20_000 * number, 20_000 * (number + 1))
            assert found == np.searchsorted(starts, moment, "right"), (number, moment)
    segment.verify_all()


@pytest.mark.parametrize(("number", "value"), [(0, 5), (3, -(1 << 62)), (3, 1 << 62), (7, 0), (19, 1 << 62), (20, 0)])
def test_marks_that_are_wrong_are_reported(
    blocks: tuple[list[Any], bytes, SegmentMeta], number: int, value: int
) -> None:
    """They are by every full check, and by a plan that they mislead, unless only a mark behind it tells so."""
    tables, data, meta = blocks
    forged, end = bytearray(data), meta.file.metadata_ranges[-1][0]
    *_, pages, _, _ = HEADER.unpack_from(data, end + 8)
    struct.pack_into("<q", forged, end + 8 + HEADER.size + 8 * (pages + number), value)
    tail_checksum = xxhash.xxh3_64_hexdigest(bytes(forged[end:]))
    ref = replace(meta.file, checksums=checksum_regions(pa.py_buffer(bytes(forged))), tail_checksum=tail_checksum)
    wrong = replace(meta, file=ref)
    with pytest.raises(CorruptError, match="page table"):
        segment_of(tables, bytes(forged), wrong).verify_all()
    with pytest.raises(CorruptError, match="page table"):
        Segment(wrong, pa.py_buffer(bytes(forged)), store_schema(tables[0])).verify_all()
    block = number // 20
    starts = tables[block]["valid_from"].combine_chunks().cast(pa.int64()).to_numpy()
    for moment in starts[::500]:
        try:
            found = segment_of(tables, bytes(forged), wrong).started_by(
                int(moment), 20_000 * block, 20_000 * (block + 1)
            )
        except CorruptError:
            continue
        assert found == np.searchsorted(starts, moment, "right") or (number, value) == (19, 1 << 62)
