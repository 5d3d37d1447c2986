"""The place of a state's columns in the store that captures it, and rows of the state as rows of the store.

The store has the state's own columns, but those that say where the engine keeps a row. Its key is the row key of the
state. What cannot be a key gets a hidden one:

    row key with a type or a null that keys cannot have     ``_row``, the hash of the row key
    bag whose engine numbers the rows of a key              the key and ``_copy``, that number
    any other bag, or such a key                            ``_row``, the hash of the row, and ``_copy``, which is
                                                            0, 1, ... among rows with this hash

So rows, history and changes of the store are those of the bag once the hidden columns are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.capture.storable_types import in_storable_type, storable
from statestore.catalog.log.store_spec import Captured, StoreSpec
from statestore.catalog.store_kinds import new_spec
from statestore.formats.engine import Source, StateInfo
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.equal_hashes import numbered
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.types import RESERVED_COLUMNS, TIME, conform, make_schema
from statestore.formats.values.wider_types import cast_wider

ROW, COPY, PREFIX = "_row", "_copy", "state_"
INSERT, DELETE = "insert", "delete"


@dataclass(frozen=True)
class Layout:
    """The places of the columns of a state in its store.

    ``names`` are the columns of the state, each with its name in the store. ``hashed`` are those of which ``_row`` is
    the hash, and ``number`` is the column of the state with the number of a row within its key; () and None where the
    store has no such column. ``counted``: ``_copy`` tells equal rows from each other.
    """

    names: tuple[tuple[str, str], ...]
    key: pa.Schema
    value: pa.Schema
    hashed: tuple[str, ...] = ()
    number: str | None = None
    counted: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are read of the state."""
        return (*(name for name, _ in self.names), *([] if self.number is None else [self.number]))

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the store, all nullable."""
        return pa.schema([field.with_nullable(True) for field in (*self.key, *self.value)])

    @property
    def record_schema(self) -> pa.Schema:
        """Return the columns of records: those of the store, the time and the kind of the change."""
        return pa.schema([*self.schema, pa.field("timestamp", TIME), pa.field("_change_type", pa.string())])

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the state in the columns of the store, null where the rows lack one.

        Their types have to be those of the store, or narrower. With ``counted``, these have to be all rows of the
        state. Raises UnsupportedError CAPTURE_UNSUPPORTED where different rows have one hash.
        """
        found = {}
        for name, stored_name in self.names:
            kind = self.schema.field(stored_name).type
            has = name in rows.schema.names
            found[stored_name] = (
                cast_wider(in_storable_type(rows.column(name)), kind) if has else pa.nulls(rows.num_rows, kind)
            )
        if self.hashed:
            cells = [rows.column(name) for name in self.hashed]
            hashes = hash_keys([comparable(each, by_bits=not self.counted) for each in cells])
            found[ROW] = pa.array(hashes.view(np.int64))
            if self.counted:
                found[COPY] = pa.array(_copies(hashes, cells))
        elif self.number is not None:
            found[COPY] = rows.column(self.number).cast(pa.int64())
        batch = pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], names=self.schema.names)
        return conform(batch, self.schema)


def layout_of(spec: StoreSpec, columns: Collection[str]) -> Layout:
    """Return the layout of a captured store; ``columns`` are those of the state."""
    assert spec.captured is not None, "a store that captures a state"
    taken = spec.captured
    stored = [name for name in (*spec.key_names, *spec.value_names) if name not in taken.hidden]
    names = {name: _of_state(name, columns) for name in stored}
    pairs = tuple((names[name], name) for name in stored)
    if ROW not in taken.hidden:
        return Layout(pairs, spec.key, spec.value, number=COPY if COPY in taken.hidden else None)
    hashed = tuple(names[name] for name in taken.row_key or stored)
    return Layout(pairs, spec.key, spec.value, hashed, counted=not taken.row_key)


def captured_spec(source: Source, info: StateInfo, columns: pa.Schema, name: str, *, has_nulls: bool) -> StoreSpec:
    """Return the description of a new store for a state with these columns. ``has_nulls``: some keys have nulls.

    Raises UnsupportedError UNSUPPORTED_TYPE, which names the column.
    """
    shown = captured_fields(info, columns)
    taken = {field.name.lower() for field in shown}
    names = {field.name: _free(field.name, taken) for field in shown}
    fields = [pa.field(names[field.name], storable(field.type)) for field in shown]
    wanted = [names[each] for each in (info.row_key or (info.key if info.number is not None else ()))]
    is_key = bool(wanted) and not has_nulls and _can_be_key([each for each in fields if each.name in wanted])
    hidden = [] if is_key else [pa.field(ROW, pa.int64())]
    if not info.row_key:
        hidden.append(pa.field(COPY, pa.int64()))
    key = pa.schema([*(field for field in fields if is_key and field.name in wanted), *hidden])
    value = pa.schema([field for field in fields if field.name not in key.names])
    captured = Captured(
        source=source.identity,
        path=source.path,
        state=info.name,
        kind=info.kind,
        words=source.version_words,
        key=tuple(names[each] for each in info.key),
        row_key=tuple(names[each] for each in info.row_key),
        hidden=tuple(field.name for field in hidden),
        own_times=info.has_past,
    )
    schemas = make_schema(key, "key"), make_schema(value, "value")
    return new_spec(name, "versioned", schemas, {}, "natural", 128, captured=captured)


def captured_fields(info: StateInfo, columns: pa.Schema) -> list[pa.Field]:
    """Return the columns that are captured: a place of a row only where it tells rows of the state from each other."""
    return [field for field in columns if field.name not in info.placement or field.name in info.row_key]


def _of_state(name: str, columns: Collection[str]) -> str:
    """Return the column of the state that has a name in the store: the same, or what `_free` has prefixed."""
    while name not in columns and name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
    return name


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name of a column in the store: its own, or one that is free where stores have another use for it."""
    found = name
    while found.lower() in (*RESERVED_COLUMNS, ROW, COPY) or (found != name and found.lower() in taken):
        found = PREFIX + found
    return found


def _can_be_key(fields: Sequence[pa.Field]) -> bool:
    try:
        make_schema(pa.schema(fields), "key")
    except StateStoreError:
        return False
    return True


def _copies(hashes: Hashes, cells: Sequence[pa.Array]) -> Ints:
    """Return the number of each row among those with its hash, which have to be equal."""
    numbers, first = numbered(hashes)
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(first))
    starts = np.cumsum(counts) - counts
    copies = np.empty(len(hashes), np.int64)
    copies[order] = np.arange(len(hashes)) - np.repeat(starts, counts)
    again = np.flatnonzero(copies)
    columns = [comparable(each) for each in cells]
    if not keys_equal(columns, again, columns, first[numbers[again]]).all():
        raise UnsupportedError(
            ErrorCode.CAPTURE_UNSUPPORTED,
            "two different rows of a bag have one hash, and cannot be told from each other; leave the state out "
            "(states=, --state)",
        )
    return copies
