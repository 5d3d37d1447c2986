"""The type of keys that only a changelog has, which does not say it: recognised where nothing else fits.

A job that has not materialized its state yet, and has no timers, leaves no serializer of its keys. Its changes begin
with the key, and have the key group, which follows from the key's hash code. A type of which all changes can be read,
and all key groups are right, is that of the keys, unless another type would do as well. A double and a long of the same
bits have the same hash code. Java writes one NaN, so that many negative numbers are no double's bits, and doubles below
1e-300 are nobody's keys. Kryo writes the class of a key, so that a number has one meaning there. A tuple of one
field has the bytes and the hash code of its field; nothing tells them apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.key_bytes import java_hash
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, KryoOf, Opaque, SpanOf
from statestore.formats.flink.serializers.opaque_parts import opaque_part
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.change_sets import read_changes
from statestore.formats.flink.streams.logged_states import LoggedStates
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.key_groups import murmur_of

UNKNOWN_KEY = Opaque("", "a changelog, which does not name the serializer of keys")
_CANDIDATES = (Basic("string"), Basic("long"), Basic("int"))
_KRYO = KryoOf("org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer", "java.lang.Object")
_KRYO_CLASSES = {2: Basic("int"), 3: Basic("string"), 9: Basic("long")}
"""The classes that Kryo's objects begin with, in all versions, of which keys are recognised."""
_MOST_CHANGES = 1 << 14
_MOST_KEYS = 512
_CHANCE = 1_000_000
"""One in so many: the chance that keys of another type would have the right key groups, at most."""
_RECENT_MS, _FAR_MS = 1e11, 2.5e14
"""Epoch milliseconds between which dates of today lie: 1973 and the year 9892."""
_SET = (1, 2)


def logged_key(
    files: SnapshotFiles, logs: Sequence[tuple[ChangelogHandle, LoggedStates]], groups: int, *, is_old: bool
) -> FlinkType:
    """The type of an operator's keys, `UNKNOWN_KEY` where it cannot be recognised.

    ``is_old``: Kryo is that of Flink 1.x.

    Raises CorruptError FLINK_FILE, and the errors of `SnapshotFiles.open_at`.
    """
    changes = list(_some_changes(files, logs))
    candidates = (*_CANDIDATES, replace(_KRYO, is_old=is_old))
    fitting = [each for each in candidates if _fits(each, changes, groups)]
    return fitting[0] if len(fitting) == 1 else UNKNOWN_KEY


def _some_changes(
    files: SnapshotFiles, logs: Sequence[tuple[ChangelogHandle, LoggedStates]]
) -> Iterator[tuple[KeyedStateHeader, np.ndarray, Cells]]:
    """Yield the first changes of keyed states: a state, key groups and the changes."""
    left = _MOST_CHANGES
    for handle, log in logs:
        states = [each for each in log.states if each.kind != "timers"]
        names = log.names(len(handle.changes))
        for changes in read_changes(files, handle.changes):
            cells = changes.cells
            long_enough = (changes.groups >= 0) & (cells.size >= 3)
            groups, cells = changes.groups[long_enough], cells.select(long_enough)
            found = cells.numbers(1, ">i2")
            for state in states:
                described = names[changes.number].items()
                mine = np.isin(found, [number for number, name in described if name == state.name])
                if mine.any():
                    yield state, groups[mine][:left], cells.select(mine).select(slice(0, left))
                    left -= int(mine.sum())
                if left <= 0:
                    return


def _fits(kind: FlinkType, changes: Sequence[tuple[KeyedStateHeader, np.ndarray, Cells]], groups: int) -> bool:
    """Return whether all changes can be those of keys of a type, and no chance makes it so."""
    group_of: dict[bytes, int] = {}
    try:
        for state, found, cells in changes:
            spans, _, rest = decode_cells(
                [SpanOf(kind), state.namespace, Opaque("")], cells.cut(3), [True, False, True], state.name
            )
            assert spans is not None and rest is not None
            is_set = np.isin(cells.first_bytes(), _SET)
            if is_set.any() and state.kind != "list" and opaque_part(state.value) is None:
                _check_values(state, rest.filter(pa.array(is_set)))
            group_of.update(zip(spans.to_pylist(), found.tolist(), strict=True))
        if len(group_of) < _least_keys(groups):
            return False
        keys = _keys(kind, list(group_of))
    except (CorruptError, UnsupportedError):
        return False
    for (one, key), group in list(zip(keys, group_of.values(), strict=True))[:_MOST_KEYS]:
        code = java_hash(one, key)
        if code is None or murmur_of(code) % groups != group:
            return False
    return kind not in _CANDIDATES[1:] or _are_whole_numbers([key for _, key in keys], kind)


def _keys(kind: FlinkType, spans: Sequence[bytes]) -> list[tuple[FlinkType, object]]:
    """The keys that have these bytes, each with the type that decides its hash code: of Kryo's the class in the bytes.

    Raises as `decode_cells`.
    """
    (column,) = decode_cells([kind], cells_of(pa.array(spans, pa.binary())), [True], "keys")
    assert column is not None
    if not isinstance(kind, KryoOf):
        return [(kind, key) for key in column.to_pylist()]
    classes = [_KRYO_CLASSES.get(span[0], UNKNOWN_KEY) for span in spans]
    return [
        (one, None if text is None or one is UNKNOWN_KEY else json.loads(text))
        for one, text in zip(classes, column.to_pylist(), strict=True)
    ]


def _are_whole_numbers(keys: list[object], kind: FlinkType) -> bool:
    """Return whether keys are no floating-point numbers and no dates of the same bytes and hash codes."""
    is_long = kind == Basic("long")
    digits, nan = (52, 0x7FF8 << 48) if is_long else (23, 0x7FC0 << 16)
    bits: Ints = np.array(keys, np.int64)
    most = 0x7FF if is_long else 0xFF
    exponents = (bits >> digits) & most
    is_nan = (exponents == most) & (bits & ((1 << digits) - 1) != 0)
    if not (is_nan & (bits != nan)).any() and not ((exponents == 0).all() and bits.any()):
        return False
    sizes = np.abs(bits.astype(np.float64))
    return not is_long or bool(((sizes > 0) & (sizes < _RECENT_MS)).any() or (sizes > _FAR_MS).any())


def _check_values(state: KeyedStateHeader, values: pa.Array) -> None:
    decode_cells([state.value], cells_of(values), [True], state.name)


def _least_keys(groups: int) -> int:
    keys, chance = 0, 1
    while chance < _CHANCE and groups > 1:
        keys, chance = keys + 1, chance * groups
    return keys if groups > 1 else _MOST_KEYS
