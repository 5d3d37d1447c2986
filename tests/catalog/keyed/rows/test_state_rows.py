"""Stored rows of keyed states as bytes: one by one, as states write them, and by columns, as restores do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from support.key_strategies import key_tables, key_types
from support.properties import few_or_many

from statestore.catalog.keyed.rows.state_rows import (
    GROUP_BYTES,
    ONE,
    ONLY,
    Grouped,
    decoder,
    encoder,
    group_bytes,
    position_bytes,
    prefix_decoder,
    prefix_encoder,
    state_rows,
    stored_key,
    table_schema,
)
from statestore.catalog.keyed.rows.state_spec import StateDescriptor, StateKind
from statestore.formats.serdes import natural_keys
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_groups import MAX_PARALLELISM, key_group_function

Table = tuple[pa.Schema, list[tuple[Any, ...]]]
NO_NAMESPACE = st.just((pa.schema([]), [()]))


def named(table: Table, letter: str) -> Table:
    """The table with other column names."""
    schema, rows = table
    return schema.empty_table().rename_columns([f"{letter}{n}" for n in range(len(schema))]).schema, rows


@st.composite
def user_keys(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind, values = draw(key_types())
    return kind, draw(st.lists(values, min_size=1, max_size=3))


@few_or_many(12, 120, key_tables(), key_tables() | NO_NAMESPACE, user_keys(), st.sampled_from(["value", "list", "map"]))
def test_rows_by_columns_are_those_one_by_one(
    keys: Table, namespaces: Table, of_map: tuple[pa.DataType, list[Any]], kind: StateKind
) -> None:
    """Both ways give the same bytes in both directions, for keys, namespaces and map keys of all types, and no stored
    key is a prefix of another one's rows."""
    key, key_rows = keys
    by, by_rows = named(namespaces, "n") if namespaces[0] else namespaces
    by = pa.schema([field.with_nullable(False) for field in by])
    user_key, members = of_map
    spec = StateDescriptor("s", kind, pa.int64(), user_key if kind == "map" else None, by)
    rows = state_rows(spec)
    codec, prefix, group_of = KeyCodec(key), prefix_encoder(key), key_group_function(key, MAX_PARALLELISM)

    found: dict[bytes, tuple[Any, ...]] = {}
    row_prefixes: dict[bytes, tuple[Any, Any]] = {}
    for number, (cells, space) in enumerate(itertools.product(key_rows, by_rows)):
        shown = codec.to_user(cells)
        group = group_of(codec.normalize(shown))
        begin = group_bytes(group) + prefix(shown)
        given_space = KeyCodec(by).to_user(space) if len(by) else None
        row_prefix = begin + (rows.namespace(given_space) if len(by) else b"")
        assert row_prefixes.setdefault(row_prefix, (cells, space)) == (cells, space), "two prefixes have the same bytes"
        assert prefix_decoder(key)(begin, GROUP_BYTES) == (shown, len(begin))
        assert prefix_decoder(by)(row_prefix, len(begin)) == (given_space, len(row_prefix))
        if kind == "map":
            member_codec = KeyCodec(pa.schema([pa.field("user_key", user_key, nullable=False)]))
            for member in members:
                stored = rows.user_key(member_codec.to_user((member,)))
                assert rows.user_key_of(stored) == member_codec.to_user((member,))
                found[row_prefix + stored] = (group, *cells, *space, member)
        elif kind == "list":
            found[row_prefix + position_bytes(number)] = (group, *cells, *space, number)
        else:
            found[row_prefix + ONLY] = (group, *cells, *space, 0)
    for one, other in itertools.permutations(row_prefixes, 2):
        assert not other.startswith(one), "rows under one place would be taken for the other's"

    schema = stored_key(key, spec)
    ordered = dict(sorted(found.items()))
    values = list(range(len(ordered)))
    stored_values = pa.array([rows.value(value) for value in values], pa.binary())
    stored = pa.RecordBatch.from_arrays([pa.array(list(ordered), pa.binary()), stored_values], names=["key", "value"])
    columns = KeyCodec(schema).to_columns(list(ordered.values()))
    table = decoder(key, spec)(stored)
    assert table.groups.tolist() == columns[0].to_pylist() == sorted(table.groups.tolist())
    assert table.rows.schema == table_schema(key, spec)
    for column, wanted in zip(table.rows.columns, [*columns[1:], pa.array(values)], strict=False):
        assert column.equals(wanted) or schema.field(-1) == ONE
    assert table.rows.column(table.rows.num_columns - 1).to_pylist() == values
    back = encoder(key, spec)(table)
    assert back.column(0).cast(pa.binary()).equals(stored.column(0))
    assert back.column(1).cast(pa.binary()).equals(stored.column(1))
    cut = Grouped(table.groups[1:], table.rows.slice(1))
    assert encoder(key, spec)(cut).column(0).cast(pa.binary()).equals(stored.column(0)[1:])


def test_key_groups_and_places_sort_as_numbers() -> None:
    groups = [0, 1, 127, 128, 255, 256, MAX_PARALLELISM - 1]
    assert sorted(map(group_bytes, groups)) == list(map(group_bytes, groups))
    positions = [0, 1, 255, 256, 2**32, 2**63 - 1]
    assert sorted(map(position_bytes, positions)) == list(map(position_bytes, positions))
    columns = natural_keys.keys_from_bytes(
        pa.schema([("group", pa.int16()), ("position", pa.int64())]),
        pa.array(
            [group_bytes(group) + position_bytes(position) for group, position in zip(groups, positions, strict=False)]
        ),
    )
    assert columns[0].to_numpy().tolist() == groups[: len(positions)]
    assert np.array_equal(columns[1].to_numpy(), positions)
