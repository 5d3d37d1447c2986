"""The compressed example files of docs/format.md: written once, readable for ever.

``PYTHONPATH=tests python tests/formats/segments/test_compressed_example.py``
writes that of the newest format anew; only a new format version may need that.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from support.paths import DATA
from support.stores.format_reader import read_rows
from support.stores.segment_tables import segment_table, store_schema, write_in_blocks

from statestore.formats.segments.batch_message import PREFIX_BYTES, read_batch_message
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import SegmentMeta, segment_meta_from_json, to_json
from statestore.formats.segments.stored_batch import column_places

PLAIN_NUMBERS, FOLDER = DATA / "format-2", DATA / "format-3"
COMPRESSION = Compression(coded=True)
ROWS = 300


def _table() -> pa.Table:
    numbers = range(ROWS)
    starts = np.arange(ROWS) * 1000
    values = pa.table({"v": pa.array([f"value of {i}" if i % 7 else None for i in numbers])})
    return segment_table(pa.array([f"key-{i % 10}" for i in numbers]), starts, starts + 10_000, values,
                         [1] * ROWS, [2] * ROWS)  # fmt: skip


def _blocks() -> list[pa.Table]:
    return [_table().slice(0, 200), _table().slice(200)]


def _meta(folder: Path) -> SegmentMeta:
    return segment_meta_from_json(json.loads((folder / "references.json").read_text())["closed"])


@pytest.mark.parametrize("folder", [PLAIN_NUMBERS, FOLDER])
def test_rows(folder: Path) -> None:
    """Today's reader reads the file, finds nothing wrong, and sees the rows of the page; Arrow reads the older form."""
    data, meta, table = pa.py_buffer((folder / "closed.arrow").read_bytes()), _meta(folder), _table()
    segment = Segment(meta, data, store_schema(table))
    segment.verify_all()
    found = pa.Table.from_batches(list(segment.batches(table.column_names, 0, ROWS)))
    assert found.to_pydict() == table.to_pydict()
    assert read_rows(data).to_pydict() == table.to_pydict()
    if folder == PLAIN_NUMBERS:
        assert ipc.open_file(data).read_all().to_pydict() == table.to_pydict()


def test_buffers_as_the_page_says() -> None:
    """Each block has a batch; a compressed buffer begins with its length, rounded up as Arrow does."""
    data, meta = (PLAIN_NUMBERS / "closed.arrow").read_bytes(), _meta(PLAIN_NUMBERS)
    assert [(block.rows, block.batch_rows) for block in meta.blocks] == [(200, 16_384), (100, 16_384)]
    start, length = meta.file.metadata_ranges[1]
    message = read_batch_message(pa.py_buffer(data[start + PREFIX_BYTES : start + length]))
    assert message.compressed
    assert message.nodes.tolist()[:2] == [[200, 0], [200, 29]]
    prefixes = [
        struct.unpack_from("<q", data, start + length + offset)[0] for offset, size in message.buffers.tolist() if size
    ]
    offsets, keys = 4 * 201, 5 * 200
    assert prefixes[0] == offsets  # keys have no nulls and no validity bits
    assert prefixes[1] == -(-keys // 64) * 64


def test_coded_numbers_as_the_page_says() -> None:
    """Starts run by a millisecond in one byte; the commit that wrote all rows takes no byte."""
    data, meta = (FOLDER / "closed.arrow").read_bytes(), _meta(FOLDER)
    start, length = meta.file.metadata_ranges[1]
    message = read_batch_message(pa.py_buffer(data[start + PREFIX_BYTES : start + length]))
    places = column_places(store_schema(_table()))
    found = {}
    for name, place in zip(_table().column_names, places, strict=True):
        at = start + length + message.buffers[place.buffer + 1][0]
        found[name] = struct.unpack_from("<qBBB5xqq", data, at)
    assert found["valid_from"][0] == -2
    assert (found["valid_from"][1], *found["valid_from"][3:]) == (1, 0, 0, 1000)
    assert found["valid_from"][2] & 1
    assert found["_added"] == (-2, 0, 1, 0, 1, 1)


@pytest.mark.parametrize(("folder", "compression"), [(PLAIN_NUMBERS, Compression()), (FOLDER, COMPRESSION)])
def test_statistics_are_still_the_same(folder: Path, compression: Compression) -> None:
    """Writing the rows again gives the same statistics (the bytes may differ by the release of Zstandard)."""
    _, new = write_in_blocks(_blocks(), compression=compression)
    assert replace(new, file=_meta(folder).file) == _meta(folder)


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data, meta = write_in_blocks(_blocks(), compression=COMPRESSION)
    (folder / "closed.arrow").write_bytes(data)
    meta = replace(meta, file=replace(meta.file, name="closed.arrow"))
    (folder / "references.json").write_text(json.dumps({"closed": to_json(meta)}, indent=2) + "\n")


if __name__ == "__main__":
    _write(FOLDER)
