"""Damaged and forged segments: always a CorruptError, never a crash, never other rows."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from support.processes.forged_segments import SMALL, forged, small
from support.processes.scripts import command
from support.stores.segment_tables import random_table, store_schema, write

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.segments.column_checks import check_values
from statestore.formats.segments.regions import REGION_BYTES
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta


@cache
def _large() -> tuple[bytes, SegmentMeta]:
    data, meta = write(random_table(80_000))
    assert data.size > 3 * REGION_BYTES
    return data.to_pybytes(), meta


def test_every_flipped_byte_is_refused() -> None:
    """A small segment has one region: no damaged byte gets as far as Arrow."""
    content, meta = small()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptError, match="region 0 "):
            Segment(meta, pa.py_buffer(damaged), store_schema(SMALL))


def test_every_truncation_is_refused() -> None:
    """A file of any other length is refused."""
    content, meta = small()
    for length in [*range(len(content)), len(content) + 1, 2 * len(content)]:
        with pytest.raises(CorruptError, match="SEGMENT_TRUNCATED"):
            Segment(meta, pa.py_buffer((content * 2)[:length]), store_schema(SMALL))


@pytest.mark.parametrize("position", [0.3, 0.5, 0.7])
def test_only_columns_in_damaged_regions_are_refused(position: float) -> None:
    """A column elsewhere is still right, one that touches the damage is refused, and so is the whole."""
    content, meta = _large()
    place = int(position * len(content)) // 2 * 2
    damaged = bytearray(content)
    damaged[place] ^= 4
    table = random_table(80_000)
    segment = Segment(meta, pa.py_buffer(damaged), store_schema(table))
    region = place // REGION_BYTES
    refused = []
    for name in table.column_names:
        try:
            assert segment.column_array(name).equals(table.column(name).combine_chunks())
        except CorruptError as error:
            assert f"region {region} " in error.message
            refused.append(name)
    assert 0 < len(refused) < len(table.column_names)
    with pytest.raises(CorruptError):
        list(segment.batches(refused[:1], 0, 1))
    with pytest.raises(CorruptError):
        segment.verify_all()


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_forged_bytes_never_crash(step: int) -> None:
    """Change each byte in turn, with checksums that match: an error or readable rows after a full check, no crash."""
    done = subprocess.run(command("forged_segments", step), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000 // step


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        ((0, 10**9),),
        ((0, 8), (8, 8)),
        ((0, 0), (0, 0)),
        ((0, 100), (50, 8), (100, 8)),
        ((-8, 16), (8, 8)),
        ((0, 2**63), (2**63, 1)),
    ],
)
def test_forged_ranges(ranges: tuple[tuple[int, int], ...]) -> None:
    """Ranges that are not those of the file are refused."""
    content, meta = small()
    with pytest.raises(CorruptError):
        Segment(forged(content, meta, metadata_ranges=ranges), pa.py_buffer(content), store_schema(SMALL))


def _rewritten(schema: pa.Schema, compression: str | None = None, table: pa.Table = SMALL) -> tuple[bytes, SegmentMeta]:
    """The rows in a file that Arrow wrote with other options or metadata, and a commit with the checksums of that
    file."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        batch = table.cast(schema).combine_chunks().to_batches()[0]
        body = sink.tell()
        writer.write_batch(batch)
        end = sink.tell()
    content = sink.getvalue().to_pybytes()
    body = body or 8 + 8 + int.from_bytes(content[12:16], "little")
    length = 8 + int.from_bytes(content[body + 4 : body + 8], "little")
    ranges = ((0, body), (body, length), (end, len(content) - end))
    return content, replace(write(SMALL)[1], file=FileRef("s", 0, "", ranges))


def _stored_schema(**metadata: str) -> pa.Schema:
    stored = {"statestore.format": "segment/1", "statestore.role": "delta", "statestore.tombstone": "false"}
    return store_schema(SMALL).with_metadata({**stored, **{f"statestore.{key}": metadata[key] for key in metadata}})


def _open_rewritten(schema: pa.Schema, compression: str | None = None, table: pa.Table = SMALL) -> Segment:
    content, meta = _rewritten(schema, compression, table)
    return Segment(forged(content, meta), pa.py_buffer(content), store_schema(SMALL))


def test_file_of_another_writer() -> None:
    """A file that follows docs/format.md is read, from any writer."""
    segment = _open_rewritten(_stored_schema())
    segment.verify_all()
    assert segment.column_array("k").equals(SMALL.column("k").combine_chunks())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compression_is_refused(codec: str) -> None:
    """Nothing is decompressed: compressed columns are not of this format version."""
    with pytest.raises(CorruptError, match="compressed"):
        _open_rewritten(_stored_schema(), codec)


@pytest.mark.parametrize("change", [{"role": "open"}, {"tombstone": "true"}, {"format": "key-index/1"}])
def test_metadata_that_disagrees(change: dict[str, str]) -> None:
    """A file that says of itself what the commit does not say is refused."""
    with pytest.raises(CorruptError, match=f"statestore.{next(iter(change))}"):
        _open_rewritten(_stored_schema(**change))


def test_later_format() -> None:
    """A segment of a later release is not damage: the error says to upgrade."""
    with pytest.raises(UnsupportedError, match=r"segment/9.*upgrade"):
        _open_rewritten(_stored_schema(format="segment/9"))


def test_other_columns() -> None:
    """Columns that the store does not have are refused, both schemas shown."""
    table = SMALL.rename_columns(["k", "cost", *SMALL.column_names[2:]])
    with pytest.raises(CorruptError, match=r"(?s)cost: double.*price: double"):
        _open_rewritten(store_schema(table).with_metadata(_stored_schema().metadata), table=table)


def test_row_count_that_disagrees() -> None:
    """A commit with another number of rows is refused."""
    content, meta = small()
    with pytest.raises(CorruptError, match="it has 20 rows, the commit says 21"):
        Segment(replace(meta, rows=21), pa.py_buffer(content), store_schema(SMALL))


def test_verify_all_knows_the_rules() -> None:
    """Intact Arrow that is not a segment: unsorted rows, null slots of valid_to without the open end."""
    unsorted = SMALL.take(pa.array([*range(1, 20), 0]))
    ends = pa.array(SMALL.column("valid_to").to_pylist(), pa.timestamp("us", "UTC"))
    for table, message in ((unsorted, "not sorted"), (SMALL.set_column(3, "valid_to", ends), "open end")):
        with pytest.raises(CorruptError, match=message):
            _open_rewritten(_stored_schema(), table=table).verify_all()


@pytest.mark.parametrize("place", [1, 1 << 16, (1 << 16) + 1, 69_999])
def test_offsets_that_descend_anywhere_are_refused(place: int) -> None:
    """Offsets are compared piece by piece, and from the last of a piece to the first of the next."""
    count = 70_000
    offsets = np.arange(count + 1, dtype=np.int32) + 10
    offsets[place] = 0 if place > 1 else 5
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"a" * (count + 10))]
    with pytest.raises(pa.ArrowInvalid, match="do not ascend"):
        check_values(pa.Array.from_buffers(pa.string(), count, buffers))
