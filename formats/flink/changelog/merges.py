"""Changes of states whose namespaces are merged, as those of session windows.

The namespaces that a merge has to do with are replayed one change after another, all others at once. The elements of
merged lists are known. Merged values are what a function of the job made of them; a job that merges a window sets its
value right after that, and then only the value that was set counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.changelog.logged_changes import (
    CLEAR,
    MERGE,
    SET,
    SET_INTERNAL,
    LoggedChanges,
    merged_namespaces,
)
from statestore.formats.flink.changelog.replay import (
    Entries,
    Materialized,
    elements_of,
    replayed_list,
    replayed_values,
)
from statestore.formats.flink.changelog.stored_entries import scopes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import FlinkType, LengthOf, Prefix, SpanOf
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.kernels.arrays import Bools


def replayed_with_merges(
    reading: KeyedReading, changes: LoggedChanges, kinds: Sequence[FlinkType], materialized: Materialized
) -> Entries:
    """Yield the entries of a list, reducing or aggregating state.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE, and FLINK_UNSUPPORTED for a merged value.
    """
    merges = _merges(reading, changes, kinds)
    real = ~changes.are(MERGE)
    real[list(merges)] = True
    met = {scope for target, sources in merges.values() for scope in (target, *sources)}
    affected = _among(changes.scopes, met) & real
    width = prefix_width(reading.groups)
    before: dict[bytes, bytes] = {}

    def others() -> Entries:
        for keys, values in materialized():
            mine = _among(keys, met)
            for place in np.flatnonzero(mine).tolist():
                before[keys.cell(place)] = values.cell(place)
            yield keys.select(~mine), values.select(~mine)

    plain = changes.select(~affected & ~changes.are(MERGE))
    if reading.form.kind == "list":
        yield from replayed_list(plain, kinds[2], width, others, reading.origin)
    else:
        yield from replayed_values(plain, width, others)
    left = _replayed_one_by_one(reading, changes, kinds[2], np.flatnonzero(affected).tolist(), merges, before)
    keys, values = pa.array(list(left), pa.binary()), pa.array(list(left.values()), pa.binary())
    yield cells_of(keys), cells_of(values)


def _merges(
    reading: KeyedReading, changes: LoggedChanges, kinds: Sequence[FlinkType]
) -> dict[int, tuple[bytes, list[bytes]]]:
    """The scopes that each merge is into, and those that are merged, by the place of the change. Flink logs a merge of
    none for each element that extends a window; these are left out.
    """
    places = np.flatnonzero(changes.are(MERGE))
    mine = changes.select(changes.are(MERGE))
    targets, sources = merged_namespaces(reading, mine, kinds[0])
    some = pc.greater(pc.list_value_length(sources), 0).to_numpy(zero_copy_only=False)
    chosen = pa.array(some)
    places, sources, targets = places[some], sources.filter(chosen), targets.filter(chosen)
    keys = _keys_of(reading, mine.scopes.select(some), kinds)
    owner = pc.list_parent_indices(sources)
    width, groups = prefix_width(reading.groups), mine.groups[some]
    into = scopes(reading.form, groups, keys, targets, width).to_pylist()
    merged = scopes(reading.form, groups[owner.to_numpy()], keys.take(owner), sources.flatten(), width)
    found = {place: (target, list[bytes]()) for place, target in zip(places.tolist(), into, strict=True)}
    for place, scope in zip(places[owner.to_numpy()].tolist(), merged.to_pylist(), strict=True):
        found[place][1].append(scope)
    return found


def _keys_of(reading: KeyedReading, stored: Cells, kinds: Sequence[FlinkType]) -> pa.BinaryArray:
    length = [LengthOf()] if reading.form.ambiguous else []
    parts = [Prefix(prefix_width(reading.groups)), SpanOf(kinds[1]), *length, SpanOf(kinds[0]), *length]
    wanted = [number == 1 for number in range(len(parts))]
    return decode_cells(parts, stored, wanted, reading.origin)[1]


def _among(found_scopes: Cells, met: set[bytes]) -> Bools:
    among = pc.is_in(found_scopes.copied(), value_set=pa.array(list(met), pa.binary()))
    found: Bools = among.to_numpy(zero_copy_only=False)
    return found


@dataclass
class _Lists:
    """Lists by scope, as the stored bytes of their parts."""

    parts: dict[bytes, list[bytes]] = field(default_factory=dict)

    def merge(self, target: bytes, sources: Sequence[bytes]) -> None:
        merged = [part for source in sources for part in self.parts.pop(source, ())]
        if merged:
            self.parts.setdefault(target, []).extend(merged)


def _replayed_one_by_one(
    reading: KeyedReading,
    changes: LoggedChanges,
    value: FlinkType,
    places: Sequence[int],
    merges: dict[int, tuple[bytes, list[bytes]]],
    before: dict[bytes, bytes],
) -> dict[bytes, bytes]:
    mask = np.zeros(len(changes), bool)
    mask[list(places)] = True
    mask &= ~changes.are(MERGE)
    elements: dict[int, list[bytes]] = {}
    if reading.form.kind == "list":
        own, found = elements_of(changes.select(mask), value, reading.origin)
        originals = np.flatnonzero(mask)[own]
        for number, place in enumerate(originals.tolist()):
            elements.setdefault(place, []).append(found.cell(number))
    is_list = reading.form.kind == "list"
    lists = _Lists({scope: [stored] for scope, stored in before.items()})
    unknown: set[bytes] = set()
    for place in places:
        operation, scope = int(changes.operations[place]), changes.scopes.cell(place)
        if operation == MERGE:
            target, sources = merges[place]
            unknown_sources = unknown.intersection(sources)
            present = sum(each in lists.parts for each in dict.fromkeys((target, *sources)))
            lists.merge(target, sources)
            unknown -= unknown_sources
            if not is_list and (present > 1 or unknown_sources):
                unknown.add(target)
                lists.parts[target] = lists.parts.get(target, [])[:1]
            continue
        if operation in (CLEAR, SET, SET_INTERNAL):
            lists.parts.pop(scope, None)
            unknown.discard(scope)
        if is_list and place in elements:
            lists.parts.setdefault(scope, []).extend(elements[place])
        elif not is_list and operation != CLEAR:
            lists.parts[scope] = [changes.payloads.cell(place)]
    if unknown:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{reading.origin}: found a value that a function of the job merged from several windows, which the "
            "changelog does not have; take a canonical savepoint of the job, or read a checkpoint from after it has "
            "materialized its state",
        )
    return {scope: DELIMITER.join(parts) for scope, parts in lists.parts.items()}
