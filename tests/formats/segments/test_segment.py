"""Segments: any Arrow tool reads what was written, with statistics that plain loops confirm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from support.stores.segment_tables import opened, random_table, segment_table, store_schema, write

from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.segments import segment_write
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import OPEN, segment_meta_from_json, to_json

TIME = pa.timestamp("us", tz="UTC")
NESTED = pa.struct([("a", pa.list_(pa.string())), ("b", pa.map_(pa.string(), pa.struct([("c", pa.float64())])))])
TYPED_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", "Zürich", None, "x" * 100]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None, b"abc"]),
    "boolean": (pa.bool_(), [True, None, False, True]),
    "byte": (pa.int8(), [-128, None, 127, 0]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1, None, 0]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None, 0]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None, 0]),
    "float": (pa.float32(), [0.5, None, float("inf"), -0.0]),
    "double": (pa.float64(), [1e300, None, float("-inf"), -0.0]),
    "decimal": (pa.decimal128(38, 4), [Decimal("-1.5000"), None, Decimal(10**33), Decimal(0)]),
    "date": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31), date(1970, 1, 1)]),
    "timestamp": (TIME, [datetime(1, 1, 1, tzinfo=UTC), None, datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=UTC), None]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(2013, 1, 1), None, datetime(9999, 1, 1), None]),
    "interval": (pa.duration("us"), [None, None, None, None]),
    "array": (pa.list_(pa.list_(pa.int64())), [[[1, None], None, []], None, [], [[5]]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, [], [("c", 3)]]),
    "struct": (
        NESTED,
        [{"a": ["x", None], "b": [("k", {"c": 1.5})]}, None, {"a": None, "b": None}, {"a": [], "b": []}],
    ),
}


def _four_rows(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return segment_table(
        pa.array(["a", "b", "c", "d"]), [1, 2, 3, 4], [5, OPEN, 7, OPEN], pa.table({"v": pa.array(values, kind)})
    )


@pytest.mark.parametrize("name", TYPED_VALUES)
def test_value_types_round_trip(name: str) -> None:
    """Every type of value, nested and null, comes back from plain Arrow and from a Segment."""
    table = _four_rows(*TYPED_VALUES[name])
    data, meta = write(table)
    plain = ipc.open_file(data).read_all()
    plain.validate(full=True)
    assert plain.replace_schema_metadata().equals(table.cast(store_schema(table)))
    segment = Segment(meta, data, store_schema(table))
    assert segment.column_array("v").to_pylist() == table.column("v").to_pylist()
    segment.verify_all()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, -5]),
        (pa.string(), ["b", "a"]),
        (pa.binary(), [b"b", b"a"]),
        (pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}]),
        (pa.list_(pa.string()), [["x", None], []]),
    ],
)
def test_key_types_round_trip(kind: pa.DataType, values: list[Any]) -> None:
    """Keys may be nested as well."""
    segment = opened(segment_table(pa.array(values, kind), [1, 2], [5, OPEN]))
    assert segment.column_array("k").to_pylist() == values


def test_slices_and_chunks_are_written_as_rows() -> None:
    """Offsets and chunk borders of the table leave no trace in the file."""
    table = random_table(1000)
    pieces = pa.concat_tables([table.slice(100, 37), table.slice(137, 400)])
    data, meta = write(pieces)
    assert meta.rows == 437
    assert ipc.open_file(data).read_all().to_pydict() == table.slice(100, 437).to_pydict()
    assert ipc.open_file(data).num_record_batches == 1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-100, 100), st.integers(1, 50) | st.none(), st.integers(0, 5), st.integers(0, 5), st.booleans(),
            st.booleans(), st.integers(0, 9), st.text(max_size=3), st.integers(-9, 9),
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_statistics_agree_with_loops(rows: list[tuple[Any, ...]]) -> None:
    """Every number that lets a read skip or pass a segment, computed the slow way."""
    rows.sort(key=lambda row: row[0])
    starts, lengths, added, closed, split, late, dropped, texts, numbers = (
        list(part) for part in zip(*rows, strict=True)
    )
    ends = [OPEN if length is None else start + length for start, length in zip(starts, lengths, strict=True)]
    table = segment_table(pa.array(texts), starts, ends, None, added, closed, split, dropped)
    table = table.add_column(1, "k2", pa.array(numbers, pa.int32()))
    meta = write(table, "belief", tombstone=True, key_names=["k", "k2"], late=np.array(late), key_groups=(3, 9))[1]
    assert (meta.rows, meta.role, meta.tombstone, meta.key_groups, meta.index) == (
        len(rows),
        "belief",
        True,
        (3, 9),
        None,
    )
    assert (meta.min_valid_from, meta.max_valid_from) == (min(starts), max(starts))
    assert (meta.min_valid_to, meta.max_valid_to) == (min(ends), max(ends))
    assert (meta.min_added, meta.max_added, meta.max_dropped) == (min(added), max(added), max(dropped))
    triples = list(zip(added, closed, split, strict=True))
    assert meta.last_closed == max([c for a, c, s in triples if a < c and not s], default=0)
    assert meta.split_closed == max([c for _, c, s in triples if s], default=0)
    assert meta.late_added == max([a for a, was_late in zip(added, late, strict=True) if was_late], default=0)
    assert (meta.key_min, meta.key_max) == ((min(texts), min(numbers)), (max(texts), max(numbers)))
    assert segment_meta_from_json(to_json(meta)) == meta


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        (pa.string(), ["a", "x" * 64], ("a", "x" * 64)),
        (pa.string(), ["a", "x" * 65], ("a", None)),
        (pa.string(), ["x" * 65, "y"], (None, "y")),
        (pa.string(), ["\U0001f600", "\uffff"], ("\uffff", "\U0001f600")),
        (pa.bool_(), [True, False], (False, True)),
        (pa.bool_(), [True, True], (True, True)),
        (pa.int64(), [2**63 - 1, -(2**63)], (-(2**63), 2**63 - 1)),
        (pa.date32(), [date(2013, 1, 1), date(2012, 1, 1)], (None, None)),
        (pa.binary(), [b"a", b"b"], (None, None)),
        (pa.list_(pa.int64()), [[1], [2]], (None, None)),
        (pa.decimal128(5, 2), [Decimal(1), Decimal(2)], (None, None)),
    ],
)
def test_key_bounds(kind: pa.DataType, values: list[Any], bounds: tuple[Any, Any]) -> None:
    """Exact and JSON-able, or unknown; strings in the order of code points, never cut."""
    meta = write(segment_table(pa.array(values, kind), [1, 2], [5, OPEN]))[1]
    assert (meta.key_min, meta.key_max) == ((bounds[0],), (bounds[1],))
    assert segment_meta_from_json(to_json(meta)) == meta


def test_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of several batches reads like one: numpy, whole columns, chunks and slices."""
    monkeypatch.setattr(segment_write, "BATCH_ROWS", 300)
    table = random_table(1000)
    data, meta = write(table)
    assert [ipc.open_file(data).get_batch(n).num_rows for n in range(4)] == [300, 300, 300, 100]
    segment = Segment(meta, data, store_schema(table))
    segment.verify_all()
    assert segment.column("price").num_chunks == 4
    assert segment.column("k").to_pylist() == segment.column_array("k").to_pylist() == table.column("k").to_pylist()
    assert segment.column_array("k") is segment.column_array("k")
    assert segment.int64("valid_to").tolist() == [
        OPEN if end is None else end for end in table.column("valid_to").cast(pa.int64()).to_pylist()
    ]
    batches = list(segment.batches(["k", "price"], 250, 950, 200))
    assert [batch.num_rows for batch in batches] == [50, 200, 100, 200, 100, 50]
    assert pa.Table.from_batches(batches).to_pydict() == table.select(["k", "price"]).slice(250, 700).to_pydict()


@pytest.mark.parametrize("batch_rows", [300, 5000])
def test_taken_cells_are_those_of_the_whole_column(monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    """In any order, repeated or none; batches without such a row are not touched."""
    monkeypatch.setattr(segment_write, "BATCH_ROWS", batch_rows)
    table = random_table(1000)
    data, meta = write(table)
    random = np.random.default_rng(3)
    shuffled = random.integers(0, 1000, 200)
    for rows in (shuffled, np.sort(shuffled), np.array([], np.int64), np.array([999]), np.array([700, 699, 1, 700])):
        segment = Segment(meta, data, store_schema(table))
        assert segment.take("k", rows).to_pylist() == table.column("k").take(pa.array(rows, pa.int64())).to_pylist()
    touched = {number for column in segment._columns for number, found in enumerate(column) if found}
    assert touched == ({0, 2} if batch_rows == 300 else {0})


def test_wide_columns_make_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch holds more bytes of one column than 32-bit offsets allow, however long the strings."""
    monkeypatch.setattr(segment_write, "BATCH_COLUMN_BYTES", 1000)
    keys = pa.array(["x" * size for size in (10, 400, 400, 400, 3000, 1, 1, 1)])
    table = segment_table(keys, range(8), [OPEN] * 8)
    data, meta = write(table)
    file = ipc.open_file(data)
    batches = [file.get_batch(n) for n in range(file.num_record_batches)]
    assert all(batch.num_rows == 1 or batch.column(0).nbytes <= 1000 for batch in batches)
    assert file.read_all().column("k").to_pylist() == keys.to_pylist()
    assert Segment(meta, data, store_schema(table)).column_array("k").equals(keys)


@pytest.mark.parametrize("window", [(0, 1000), (0, 0), (999, 1000), (500, 5000), (7, 3), (123, 456)])
def test_batches_are_slices(window: tuple[int, int]) -> None:
    """Rows [start, stop), whatever the bounds; order and types as asked for."""
    table = random_table(1000)
    segment, names = opened(table), ["valid_to", "k", "_split"]
    expected = table.select(names).slice(window[0], max(min(window[1], 1000) - window[0], 0))
    batches = list(segment.batches(names, *window))
    assert pa.Table.from_batches(batches, pa.schema([segment.schema.field(n) for n in names])).to_pydict() == (
        expected.to_pydict()
    )
    assert sum(batch.num_rows for batch in segment.batches([], *window)) == expected.num_rows


def test_zero_copy(tmp_path: Path) -> None:
    """Columns, numpy views and slices lie inside the mapped file."""
    table = random_table(20_000)
    data, meta = write(table)
    path = tmp_path / "a.arrow"
    path.write_bytes(data)
    with pa.memory_map(str(path)) as file:
        mapped = file.read_buffer()
    segment = Segment(meta, mapped, store_schema(table))
    (batch,) = segment.batches(table.column_names, 100, 19_000)
    before = pa.total_allocated_bytes()
    arrays = [segment.column(name) for name in table.column_names] + batch.columns
    buffers = [buffer for array in arrays for buffer in array.buffers() if buffer is not None]
    places = [(buffer.address, buffer.size) for buffer in buffers]
    views = [segment.int64(name) for name in ("valid_from", "valid_to", "_added", "_closed")]
    places += [(view.ctypes.data, view.nbytes) for view in views]
    assert len(places) > 20
    assert all(mapped.address <= start and start + size <= mapped.address + mapped.size for start, size in places)
    assert pa.total_allocated_bytes() == before
    assert not any(view.flags.writeable for view in [*views, segment.bools("_split")])


def test_open_ends_are_in_the_null_slots() -> None:
    """Whatever Arrow left in the null slots of the table, the file holds the open end there."""
    ends = pa.array([5, None, 7, None], pa.int64()).cast(TIME)
    assert ends.buffers()[1].to_pybytes() != end_column(np.array([5, OPEN, 7, OPEN])).buffers()[1].to_pybytes()
    table = _four_rows(pa.int64(), [1, 2, 3, 4])
    segment = opened(table.set_column(3, "valid_to", ends))
    assert segment.int64("valid_to").tolist() == [5, OPEN, 7, OPEN]
    assert segment.column_array("valid_to").cast(pa.int64()).to_pylist() == [5, None, 7, None]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62) | st.just(OPEN), max_size=40), st.integers(0, 9))
def test_time_columns_share_memory(ends: list[int], skip: int) -> None:
    """No copy of the numbers; open ends are nulls; slices of an array work."""
    array = np.array(ends, np.int64)[skip:]
    column = end_column(array)
    column.validate(full=True)
    assert column.cast(pa.int64()).to_pylist() == [None if end == OPEN else end for end in ends[skip:]]
    assert time_column(array).cast(pa.int64()).to_pylist() == ends[skip:]
    if len(array):
        assert column.buffers()[1].address == time_column(array).buffers()[1].address == array.ctypes.data


def test_unknown_column() -> None:
    """The error names the columns there are."""
    with pytest.raises(NotFoundError, match=r"no column 'cost'.*'price'"):
        opened(random_table(5)).column("cost")


def _without(name: str) -> pa.Table:
    return random_table(5).drop_columns([name])


BASE = random_table(5)
NULLED = BASE.set_column(4, "_added", pa.array([1, None, 1, 1, 1], pa.int64()))
IN_MILLISECONDS = BASE.set_column(
    2, "valid_from", BASE.column("valid_from").cast(pa.timestamp("ms", "UTC"), safe=False)
)


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        (BASE.slice(0, 0), {}, "no rows"),
        (BASE.take(pa.array([1, 0, 2, 3, 4])), {}, "not sorted"),
        (_without("_split"), {}, "its columns are"),
        (BASE, {"role": "belief"}, "its columns are"),
        (BASE, {"tombstone": True}, "its columns are"),
        (BASE, {"key_names": ["other"]}, "its columns are"),
        (NULLED, {}, "'_added' has nulls"),
        (IN_MILLISECONDS, {}, "'valid_from' is timestamp"),
    ],
)
def test_invalid_tables(table: pa.Table, changes: dict[str, Any], message: str) -> None:
    """Nothing is written that would not be a segment."""
    with pytest.raises(InvalidInputError, match=message) as caught:
        write(table, **changes)
    assert caught.value.code == "INVALID_SEGMENT"


def test_reference_describes_the_framing() -> None:
    """Metadata ranges are the schema message, each batch's metadata and the footer, as docs/format.md says."""
    data, meta = write(BASE)
    (start, schema_length), (batch, batch_length), (footer, footer_length) = meta.file.metadata_ranges
    content = data.to_pybytes()
    assert start == 0 and batch == schema_length and footer + footer_length == len(content) == meta.file.bytes
    assert content[:8] == b"ARROW1\0\0" and content[-6:] == b"ARROW1"
    assert content[batch : batch + 4] == b"\xff\xff\xff\xff" == content[footer : footer + 4]
    assert ipc.read_schema(pa.BufferReader(content[8:schema_length])).names == BASE.column_names
    assert batch_length == 8 + int.from_bytes(content[batch + 4 : batch + 8], "little")
    assert replace(meta.file, name="b") != meta.file
