"""Changes of states whose namespaces are merged, as those of session windows.

A namespace has a chain of pieces: the elements of a list, or one value. A merge moves chains behind one another. The
elements of merged lists are known. Merged values are what a function of the job made of them; a job that merges a
window sets its value right after that, and then only the value that was set counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of, joined_cells
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
from statestore.formats.flink.changelog.numbered_keys import numbered, without_writing
from statestore.formats.flink.changelog.replay import (
    Entries,
    Materialized,
    chosen,
    elements_of,
    groups_of,
)
from statestore.formats.flink.changelog.stored_entries import scopes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import FlinkType, LengthOf, Prefix, SpanOf
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.kernels import chain_steps, compiled_use
from statestore.formats.kernels.arrays import Ints


def replayed_with_merges(
    reading: KeyedReading, changes: LoggedChanges, kinds: Sequence[FlinkType], materialized: Materialized
) -> Entries:
    """Yield the entries of a list, reducing or aggregating state.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE, and FLINK_UNSUPPORTED for a merged value.
    """
    merges, count, is_list = _merges(reading, changes, kinds), len(changes), reading.form.kind == "list"
    every = joined_cells([changes.scopes, merges.into, merges.sources])
    names = numbered(every, np.concatenate([changes.groups, changes.groups[merges.place], merges.source_groups]))
    chain, into, source = np.split(names.number, [count, count + len(merges.place)])
    chain = chain.copy()
    chain[merges.place] = into
    if is_list:
        place, pieces = elements_of(changes, kinds[2], reading.origin)
    else:
        place = np.flatnonzero(changes.are(SET, SET_INTERNAL))
        pieces = changes.payloads.select(place)
    head, tail = np.full(len(names), -1), np.full(len(names), -1)
    before: list[Cells] = []
    held = len(pieces)
    for keys, values in materialized():
        mine = names.find(keys, groups_of(keys, prefix_width(reading.groups)))
        others = np.flatnonzero(mine < 0)
        if len(others):
            yield keys.select(others), values.select(others)
        met = np.flatnonzero(mine >= 0)
        head[mine[met]] = tail[mine[met]] = held + np.arange(len(met))
        held += len(met)
        before.append(cells_of(values.select(met).copied()))
    following, is_unknown = np.full(held, -1), np.zeros(len(names), bool)
    loops = _loops()
    loops.replay_chains(
        chain,
        changes.are(CLEAR, SET, SET_INTERNAL),
        ends_of(np.bincount(place, minlength=count)),
        ends_of(merges.counts),
        source,
        is_list,
        head,
        tail,
        following,
        is_unknown,
    )
    if is_unknown.any():
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{reading.origin}: found a value that a function of the job merged from several windows, which the "
            "changelog does not have; take a canonical savepoint of the job, or read a checkpoint from after it has "
            "materialized its state",
        )
    yield from chosen(names.names, _joined(loops, head, following, pieces, joined_cells(before)), head >= 0)


def _loops() -> ModuleType:
    if not compiled_use.is_loaded():
        return chain_steps
    from statestore.formats.kernels import chain_kernels

    return chain_kernels


def _joined(loops: ModuleType, head: Ints, following: Ints, pieces: Cells, behind: Cells) -> Cells:
    """The stored value of each chain."""
    sizes = np.empty(len(head), np.int64)
    loops.measure_chains(head, following, pieces.size, behind.size, sizes)
    ends = ends_of(sizes)
    target = np.empty(int(ends[-1]), np.uint8)
    loops.copy_chains(
        head,
        following,
        without_writing(pieces.data),
        pieces.start,
        pieces.size,
        without_writing(behind.data),
        behind.start,
        behind.size,
        DELIMITER[0],
        ends[:-1],
        target,
    )
    return Cells(target, ends[:-1], sizes)


@dataclass(frozen=True)
class _Merges:
    """Merges by the ``place`` of their change: the scopes that they are ``into``, and those that are merged.

    Of each change, merge or not, ``counts`` scopes are merged. ``source_groups`` has their key groups.
    """

    place: Ints
    into: Cells
    counts: Ints
    sources: Cells
    source_groups: Ints


def _merges(reading: KeyedReading, changes: LoggedChanges, kinds: Sequence[FlinkType]) -> _Merges:
    """The merges among changes. Those of no window, which Flink logs as an element extends a window, are left out."""
    place = np.flatnonzero(changes.are(MERGE))
    mine = changes.select(changes.are(MERGE))
    targets, sources = merged_namespaces(reading, mine, kinds[0])
    lengths = pc.list_value_length(sources).to_numpy().astype(np.int64)
    some = lengths > 0
    kept = pa.array(some)
    place, sources, targets = place[some], sources.filter(kept), targets.filter(kept)
    keys = _keys_of(reading, mine.scopes.select(some), kinds)
    owner = pc.list_parent_indices(sources)
    width, groups = prefix_width(reading.groups), mine.groups[some]
    source_groups = groups[owner.to_numpy()]
    counts = np.zeros(len(changes), np.int64)
    counts[place] = lengths[some]
    return _Merges(
        place,
        cells_of(scopes(reading.form, groups, keys, targets, width)),
        counts,
        cells_of(scopes(reading.form, source_groups, keys.take(owner), sources.flatten(), width)),
        source_groups,
    )


def _keys_of(reading: KeyedReading, stored: Cells, kinds: Sequence[FlinkType]) -> pa.BinaryArray:
    length = [LengthOf()] if reading.form.ambiguous else []
    parts = [Prefix(prefix_width(reading.groups)), SpanOf(kinds[1]), *length, SpanOf(kinds[0]), *length]
    wanted = [number == 1 for number in range(len(parts))]
    return decode_cells(parts, stored, wanted, reading.origin)[1]
