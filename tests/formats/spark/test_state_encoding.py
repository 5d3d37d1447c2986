"""Stored rows of Spark's own checkpoints, decoded to the columns that are shown and encoded to the same bytes again.

What differs is named here (`STALE`, `EVOLVED`), and is read alike.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import archives
from support.checkpoints.spark_state_fixtures import ARCHIVE, LOCAL, MORE, TYPES, index, unpacked
from support.parameters import mostly_slow
from support.paths import DATA

from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Written, open_checkpoint
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view, state_views
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.rows.key_placement import hash_of, partition_of
from statestore.formats.spark.state_columns import decode_columns, decoder_of
from statestore.formats.spark.state_encoding import EncodedRows, encode_keys, encode_rows, encode_rows_in
from statestore.formats.spark.state_rows import record_batch, row_form

REPARTITIONED = DATA / "spark" / "repartitioned_checkpoints.tar.xz"
EVOLVED_TWICE = DATA / "spark" / "evolved_checkpoints.tar.xz"
ZEROS = DATA / "spark" / "zeros.tar.xz"
DEDUPLICATION = DATA / "spark" / "deduplication_3.3.0.tar.xz"
OTHERS = [
    (TYPES, "checkpoint"),
    *((EVOLVED_TWICE, f"evolved/{name}") for name in ("plain", "ttl")),
    *((ZEROS, name) for name in ("deduplicated", "grouped", "joined")),
    *((DEDUPLICATION, f"deduplication/{name}") for name in ("hdfs", "rocksdb")),
]
QUICK = [
    (ARCHIVE, f"checkpoints/spark4.3.0-{name}")
    for name in ("agg__hdfs", "join__rkj4", "sess__rkcl", "twsttl__rkav", "twsttl__rkck", "win__hdfsck", "limit__rkcl")
]
ALL_NAMES = mostly_slow(
    [
        *((archive, f"checkpoints/{name}") for archive in (ARCHIVE, MORE, REPARTITIONED) for name in index(archive)),
        *OTHERS,
    ],
    [*QUICK, *OTHERS],
)
STALE = "checkpoints/spark4.1.4-interval__hdfs"
"""Where Spark sets a calendar interval to null in a row that it has, it leaves the bytes of the value behind the
slots. Nothing reads them."""
EVOLVED = "evolved/plain", "evolved/ttl"
"""Rows that were written with an earlier schema of their variable are written with the newest one."""


@cache
def opened(archive: Path, name: str, batch: int | None = None) -> Checkpoint:
    return open_checkpoint(LOCAL, str(unpacked(archive) / name), batch)


def stored_of(checkpoint: Checkpoint, view: StateView, partition: int) -> Iterator[StoredRows]:
    source = open_partition(checkpoint, view.store, partition, view.family.name)
    return stored_rows(source, lambda rows: rows)


def shown(checkpoint: Checkpoint, view: StateView, rows: StoredRows, partition: int) -> pa.RecordBatch:
    decoder = decoder_of(checkpoint, view, row_form(checkpoint, view), partition=partition)
    return renamed(record_batch(decode_columns(decoder, rows.keys, rows.values), view, partition))


def pairs(rows: EncodedRows | StoredRows) -> dict[bytes, bytes]:
    keys, values = rows.keys.copied().to_pylist(), rows.values.copied().to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, values, strict=True))


def stored_again(encoded: EncodedRows) -> StoredRows:
    return StoredRows((encoded.keys, encoded.values))


def every_view(checkpoint: Checkpoint) -> Iterator[tuple[StateView, int, StoredRows]]:
    """The views whose rows are stored as they are shown, with the stored rows of each partition."""
    for view in [view for each in checkpoint.operators for view in state_views(checkpoint, each)]:
        for partition in view.store.partitions if view.shape != "join-side" else ():
            for rows in stored_of(checkpoint, view, partition):
                yield view, partition, rows


@pytest.mark.parametrize(("archive", "name"), ALL_NAMES)
def test_stored_rows_are_written_as_they_were_stored(archive: Path, name: str) -> None:
    """As of the newest batch of which a state has rows."""
    for batch in reversed(opened(archive, name).batches):
        if _check_rows(opened(archive, name, batch), name):
            return
    raise AssertionError("no batch with rows")


def _check_rows(checkpoint: Checkpoint, name: str) -> int:
    """Check the rows of all states, and return how many there are."""
    seen = 0
    for view, partition, rows in every_view(checkpoint):
        batch = shown(checkpoint, view, rows, partition)
        encoded = encode_rows_in(checkpoint, view, batch, np.full(batch.num_rows, partition))
        found, expected = pairs(encoded), pairs(rows)
        seen += len(expected)
        if name == STALE or name in EVOLVED:
            assert shown(checkpoint, view, stored_again(encoded), partition).equals(batch)
            assert found.keys() == expected.keys()
        if name == STALE:
            assert all(_are_alike(found[key], expected[key]) for key in expected)
        elif name not in EVOLVED:
            assert found == expected, view.name
        _check_places(checkpoint, view, partition, batch, expected)
    return seen


def _are_alike(found: bytes, stored: bytes) -> bool:
    """Return whether rows are equal but for the 16 bytes of a null interval, which are zeros where they are written."""
    if len(found) != len(stored):
        return False
    differing = [at for at in range(len(found)) if found[at] != stored[at]]
    return all(found[at] == 0 for at in differing) and (not differing or differing[-1] - differing[0] < 16)


def _check_places(
    checkpoint: Checkpoint, view: StateView, partition: int, batch: pa.RecordBatch, stored: dict[bytes, bytes]
) -> None:
    """Compare the partition by the rule with the one in which Spark has the rows, and the keys of deletions."""
    try:
        keys, rows = encode_keys(checkpoint, view, batch), encode_rows(checkpoint, view, batch)
    except UnsupportedError as error:
        assert error.code == "EDIT_UNSUPPORTED"
        assert f"state {view.name} of operator {view.operator_id}: " in error.message
        return
    assert set(keys.keys.copied().to_pylist()) == stored.keys() == set(rows.keys.copied().to_pylist())
    assert (keys.partition == partition).all() and (rows.partition == partition).all()


PLACED = [("agg__rkcl", "default"), ("agg__hdfs", "default"), ("twsttl__rk", "mp"), ("twsttl__rkav", "lst")]


@pytest.mark.parametrize(("name", "state"), [*PLACED, ("limit__rkcl", "default"), ("twsttl__rk", "timers")])
def test_the_rule_of_places_is_known_of_most_states(name: str, state: str) -> None:
    checkpoint = opened(ARCHIVE, f"checkpoints/spark4.3.0-{name}")
    rows = [each for each in every_view(checkpoint) if each[0].name == state]
    assert rows
    for view, partition, stored in rows:
        found = encode_rows(checkpoint, view, shown(checkpoint, view, stored, partition))
        assert (found.partition == partition).all()


# New rows


AGGREGATED = "checkpoints/spark4.3.0-agg__rkck"
keys_and_values = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=20),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
    ),
    max_size=30,
    unique_by=lambda row: row[0],
)


@settings(deadline=None, max_examples=40)
@given(keys_and_values)
def test_new_rows_are_read_back_from_the_partitions_of_their_keys(rows: list[tuple[Any, ...]]) -> None:
    checkpoint = opened(ARCHIVE, AGGREGATED)
    view = find_state_view(checkpoint, 0)
    schema = renamed(pa.RecordBatch.from_pylist([], view.schema)).schema
    names = schema.field("value").type
    values = [{field.name: _value(field.type, row) for field in names} for row in rows]
    (key,) = (field.name for field in schema.field("key").type)
    columns = [pa.array([{key: row[0]} for row in rows], schema.field("key").type), pa.array(values, names)]
    table = pa.table(columns, names=["key", "value"])
    encoded = encode_rows(checkpoint, view, table)
    expected = [partition_of(hash_of(view.family.key, [row[0]]) or 0, view.store.count) for row in rows]
    assert encoded.partition.tolist() == expected
    if rows:
        again = shown(checkpoint, view, stored_again(encoded), 0)
        assert again.column("key").to_pylist() == table.column("key").to_pylist()
        assert again.column("value").to_pylist() == table.column("value").to_pylist()


def _value(kind: pa.DataType, row: tuple[Any, ...]) -> Any:
    if pa.types.is_string(kind):
        return row[0]
    return row[2] if pa.types.is_floating(kind) else row[1]


def test_entries_of_a_list_become_one_row_in_their_order() -> None:
    checkpoint = opened(ARCHIVE, "checkpoints/spark4.3.0-twsttl__rkmo1")
    view = next(view for view in state_views(checkpoint, checkpoint.operator(0)) if view.shape == "list")
    (partition, rows) = next((partition, rows) for found, partition, rows in every_view(checkpoint) if found == view)
    batch = pa.table(shown(checkpoint, view, rows, partition))
    twice = pa.concat_tables([batch, batch])
    encoded = encode_rows_in(checkpoint, view, twice, np.full(twice.num_rows, partition))
    assert pairs(encoded) == {key: value + b"," + value for key, value in pairs(rows).items()}
    assert len(encode_keys(checkpoint, view, twice).keys) == len(encoded.keys)


def zeros(name: str) -> tuple[Checkpoint, StateView, pa.DataType]:
    checkpoint = open_checkpoint(LOCAL, str(archives.unpacked(ZEROS) / name))
    view = find_state_view(checkpoint, 0, None if name != "joined" else "left-keyToNumValues")
    return checkpoint, view, view.schema.field("key").type


def test_a_deduplication_has_one_zero_of_certain_bytes() -> None:
    checkpoint, view, kind = zeros("deduplicated")
    key, value = pa.array([{"k": -0.0}], kind), pa.array([{}], view.schema.field("value").type)
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*-0\.0"):
        encode_rows(checkpoint, view, pa.table([key, value], names=["key", "value"]))
    known = pa.table([pa.array([{"k": 0.0}], kind), value], names=["key", "value"])
    assert encode_rows(checkpoint, view, known).keys.copied().to_pylist()[0][8:] == bytes(8)
    assert encode_keys(checkpoint, view, pa.table([key], names=["key"])).keys.copied().to_pylist()[0][8:] != bytes(8)


def test_keys_of_functions_keep_their_zeros() -> None:
    checkpoint, view, kind = zeros("grouped")
    keys = pa.table([pa.array([{"k": -0.0}, {"k": 0.0}], kind)], names=["key"])
    assert len(set(encode_keys(checkpoint, view, keys).keys.copied().to_pylist())) == 2
    value = pa.array([{}, {}], view.schema.field("value").type)
    rows = encode_rows(checkpoint, view, keys.append_column("value", value))
    assert [key[8:16] for key in rows.keys.copied().to_pylist()] == [struct.pack("<d", -0.0), bytes(8)]


def test_keys_of_joins_have_one_zero_and_one_nan() -> None:
    checkpoint, view, kind = zeros("joined")
    alone = replace(view, store=replace(view.store, folders=(0,), written=Written(True, True, 1)))
    values = pa.array([{"value": 1}] * 4, view.schema.field("value").type)
    unusual = np.array([-0.0, np.nan, -np.nan, 1.5])
    keys = pa.StructArray.from_arrays([pa.array(unusual)], fields=list(kind))
    table = pa.table([keys, values], names=["key", "value"])
    with pytest.raises(InvalidInputError, match="the key of row 2 in row 1, too"):
        encode_rows(checkpoint, alone, table)
    found = encode_rows(checkpoint, alone, table.take([0, 2, 3])).keys.copied().to_pylist()
    assert [key[-8:] for key in found] == [bytes(8), struct.pack("<Q", 0x7FF8 << 48), struct.pack("<d", 1.5)]


# What is refused


def refused(name: str, table: pa.Table, *, archive: Path = ARCHIVE, state: str | None = None) -> StateStoreError:
    checkpoint = opened(archive, f"checkpoints/{name}")
    with pytest.raises((InvalidInputError, UnsupportedError)) as caught:
        encode_rows(checkpoint, find_state_view(checkpoint, 0, state), table)
    return caught.value


def some_rows(name: str) -> pa.Table:
    checkpoint = opened(ARCHIVE, f"checkpoints/{name}")
    view = find_state_view(checkpoint, 0)
    (_, partition, rows) = next(each for each in every_view(checkpoint) if each[0] == view)
    return pa.table(shown(checkpoint, view, rows, partition)).slice(0, 1)


AGG = "spark4.3.0-agg__hdfs"


def with_key(rows: pa.Table, key: Any) -> pa.Table:
    kind = rows.schema.field("key").type
    return rows.set_column(0, "key", pa.array([{kind[0].name: key}], kind))


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda rows: rows.drop_columns(["key"]), "EDIT_REFUSED", "no column key"),
        (
            lambda rows: rows.set_column(1, "value", pa.nulls(1, rows.schema.field(1).type)),
            "EDIT_REFUSED",
            "found null",
        ),
        (lambda rows: pa.concat_tables([rows, rows]), "EDIT_REFUSED", "the key of row 1 in row 0, too"),
        (lambda rows: rows.set_column(0, "key", pa.array(["a"])), "EDIT_REFUSED", "found string, expected struct"),
        (lambda rows: with_key(rows, "\ufffd"), "EDIT_UNSUPPORTED", "U+FFFD"),
    ],
    ids=["column", "null", "twice", "type", "text"],
)
def test_rows_that_spark_would_not_go_on_from(change: Any, code: str, said: str) -> None:
    error = refused(AGG, change(some_rows(AGG)))
    assert error.code == code and said in error.message and "state default of operator 0" in error.message


def test_sides_of_joins_and_whole_maps_are_not_written() -> None:
    assert "side of a join" in refused("spark4.3.0-join__hdfs", pa.table({"key": []}), state="left").message
    checkpoint = opened(ARCHIVE, "checkpoints/spark4.3.0-twsttl__rk")
    view = next(each for each in state_views(checkpoint, checkpoint.operator(0)) if each.shape == "map")
    whole = find_state_view(checkpoint, 0, view.name, flat=False)
    with pytest.raises(UnsupportedError, match="a row for each entry"):
        encode_rows(checkpoint, whole, whole.schema.empty_table())


@pytest.mark.parametrize(
    ("state", "column"),
    [("timers", "expiration_timestamp_ms"), ("timers", "key"), ("mp", "user_map_key"), ("lst", "list_element")],
)
def test_no_part_of_a_key_and_no_entry_is_null(state: str, column: str) -> None:
    checkpoint = opened(ARCHIVE, "checkpoints/spark4.3.0-twsttl__rk")
    view = find_state_view(checkpoint, 0, state)
    (_, partition, stored) = next(each for each in every_view(checkpoint) if each[0] == view)
    rows = pa.table(shown(checkpoint, view, stored, partition)).slice(0, 1)
    assert len(encode_rows(checkpoint, view, rows).keys) == 1
    number = rows.schema.get_field_index(column)
    without = rows.set_column(number, column, pa.nulls(1, rows.schema.field(number).type))
    with pytest.raises(InvalidInputError, match=f"EDIT_REFUSED.*column {column}: found null"):
        encode_rows(checkpoint, view, without)


def test_states_that_spark_keeps_for_itself_have_no_places() -> None:
    checkpoint = opened(ARCHIVE, "checkpoints/spark4.3.0-twsttl__rk")
    inner = [view for view in state_views(checkpoint, checkpoint.operator(0)) if not view.user]
    assert inner
    for view in inner:
        with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*not certain"):
            encode_keys(checkpoint, view, renamed(pa.RecordBatch.from_pylist([], view.schema)))


def test_numbers_of_other_widths_are_taken_if_they_fit() -> None:
    rows = some_rows(AGG)
    kind = rows.schema.field("value").type
    wider = pa.struct([field.with_type(pa.int32()) if field.type == pa.int64() else field for field in kind])
    checkpoint = opened(ARCHIVE, f"checkpoints/{AGG}")
    view = find_state_view(checkpoint, 0)
    small = [
        {name: 7 if isinstance(value, int) else value for name, value in row.items()}
        for row in rows.column("value").to_pylist()
    ]
    found = [
        pairs(encode_rows(checkpoint, view, rows.set_column(1, "value", pa.array(small, each))))
        for each in (kind, wider)
    ]
    assert found[0] == found[1]
