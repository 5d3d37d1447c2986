"""Lookup of the whole keys that filters name: only these keys and their key groups are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statestore.catalog.keyed.rows.state_rows import group_bytes, prefix_encoder
from statestore.catalog.keyed.rows.state_spec import StateKind
from statestore.catalog.keyed.snapshots.restore_snapshot import stored_range
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.errors import StateStoreError
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.values.filters import Filter, key_lookups
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_groups import key_group_function

LOOKED_UP = 64
"""Beyond this many keys, whole key groups are read from a database instead of single keys.

Were they always, a scan of 30 of 60,000 keys would take 1.4 times as long.
"""


@dataclass(frozen=True)
class KeyLookup:
    """The beginnings of stored keys with their key groups, ascending."""

    keys: tuple[tuple[int, bytes], ...]

    def runs(self, groups: range) -> Iterator[range]:
        """Yield the key groups among these that have a key, as ranges."""
        with_keys = sorted({group for group, _ in self.keys if group in groups})
        for _, run in itertools.groupby(enumerate(with_keys), lambda pair: pair[1] - pair[0]):
            run_groups = [group for _, group in run]
            yield range(run_groups[0], run_groups[-1] + 1)

    def ranges(self, groups: range) -> list[KeyRange]:
        """Return the ranges of the stored keys in a database."""
        return [KeyRange(prefix, successor(prefix)) for group, prefix in self.keys if group in groups]


def key_lookup(store: StoreSpec, filters: Sequence[Filter]) -> KeyLookup | None:
    """Return the keys that the filters allow.

    None if the filters do not name whole keys, or name a value that no key of this type can have.
    """
    pinned = key_lookups(filters, store.key.names)
    if pinned is None:
        return None
    codec, encode = KeyCodec(store.key), prefix_encoder(store.key)
    group_of = key_group_function(store.key, store.key_groups)
    try:
        groups = [group_of(codec.normalize(key)) for key in pinned]
        return KeyLookup(
            tuple(sorted({(g, group_bytes(g) + encode(key)) for g, key in zip(groups, pinned, strict=True)}))
        )
    except StateStoreError:
        return None


def runs_of(lookup: KeyLookup | None, groups: range) -> list[range]:
    """Return the key groups to read among these, as ranges."""
    return [groups] if lookup is None else list(lookup.runs(groups))


def ranges_of(lookup: KeyLookup | None, groups: range, kind: StateKind) -> list[KeyRange]:
    """Return the ranges of stored keys to read in a database for these key groups.

    Whole groups are read for many keys, and for timers, whose stored keys have the time before the key.
    """
    ranges = None if lookup is None or kind == "timer" else lookup.ranges(groups)
    if ranges is not None and len(ranges) <= LOOKED_UP:
        return ranges
    return [stored_range(run) for run in runs_of(lookup, groups)]
