"""Parts of a keyed state by key groups, and the key groups and stored keys to which filters limit an answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from statestore.formats.flink.columns.key_bytes import encode, java_hash
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.handle_fields import MAX_KEY_GROUPS
from statestore.formats.flink.snapshot.handles import ChangelogHandle, KeyGroupHandle, RocksHandle, stream_size
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.state_form import KEY, KEY_GROUP, KeyedForm
from statestore.formats.places.reading_threads import reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.values.filters import Filter, key_lookups, with_both_zeros
from statestore.formats.values.key_groups import murmur_of

PART_BYTES = 16 << 20
"""Bytes of state, for each thread of its read, from which on a part is divided further, down to single key groups.

Each part of a database opens a directory of links, the MANIFEST, and the table files' indexes: about ten milliseconds.
"""
MOST_KEYS = 1000
"""Keys that are looked up; more are found by a scan. To encode 10,000 takes 0.1 s, more than a small state's scan."""
MOST_RANGES = 4096
"""Ranges, thus seeks, of one part; for more, the part is scanned as a whole."""


@dataclass(frozen=True)
class GroupsPart:
    """Rows in key groups ``first`` to ``last`` of a subtask, by its place among those that have the state.

    ``groups``: of these, the only ones that are read; None: all.
    """

    stored: int
    first: int
    last: int
    groups: frozenset[int] | None = None
    rows: int | None = None


def asked_groups(form: KeyedForm, key: FlinkType | None, groups: int, filters: Sequence[Filter]) -> set[int] | None:
    """The key groups to which filters limit an answer; None: all."""
    for item in filters:
        if item.column == KEY_GROUP and item.op in ("=", "in") and not item.path:
            found = _whole_numbers([item.value] if item.op == "=" else item.value)
            if found is not None:
                return found
    keys = _asked_keys(form, key, filters)
    if keys is None or key is None:
        return None
    hashes = [java_hash(key, each) for (each,) in keys]
    if any(each is None for each in hashes):
        return None
    return {murmur_of(each) % groups for each in hashes if each is not None}


def names_keys(form: KeyedForm, key: FlinkType | None, filters: Sequence[Filter]) -> bool:
    """Return whether filters limit an answer to few keys, which a database finds without a read of their groups."""
    return form.kind != "timers" and _asked_keys(form, key, filters) is not None


def _asked_keys(form: KeyedForm, key: FlinkType | None, filters: Sequence[Filter]) -> list[tuple[Any, ...]] | None:
    """The keys to which filters limit an answer; None: all, or more than are looked up."""
    if key is None or key != form.key or form.undivided:
        return None
    keys = with_both_zeros(key_lookups(filters, (KEY,)), [form.schema.field(KEY).type])
    return None if keys is None or len(keys) > MOST_KEYS else keys


def _whole_numbers(values: Sequence[Any]) -> set[int] | None:
    """The key groups among values of any Python type, None where one of them is no number: then the filter raises."""
    found = set()
    for each in values:
        value = each.item() if isinstance(each, np.integer | np.floating) else each
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | None):
            return None
        if value is None or not Decimal(value).is_finite() or not 0 <= value < MAX_KEY_GROUPS:
            continue
        if value == int(value):
            found.add(int(value))
    return found


def asked_ranges(
    form: KeyedForm, key: FlinkType | None, groups: int, part: GroupsPart, filters: Sequence[Filter]
) -> list[KeyRange]:
    """The ranges of RocksDB keys that hold all rows of a part which pass the filters."""
    width = prefix_width(groups)
    first, stop = part.first.to_bytes(width, "big"), successor(part.last.to_bytes(width, "big"))
    keys = None if form.kind == "timers" else _asked_keys(form, key, filters)
    if keys is None or key is None:
        return [KeyRange(first, stop)]
    prefixes: set[bytes] = set()
    for (each,) in keys:
        octets, code = encode(key, each), java_hash(key, each)
        if octets is None:
            return [KeyRange(first, stop)]
        # The class of the key may have a hash of its own. Then the key may be in any group, and is looked for in each.
        places = range(part.first, part.last + 1) if code is None else [murmur_of(code) % groups]
        prefixes |= {place.to_bytes(width, "big") + octets for place in places if part.first <= place <= part.last}
        if len(prefixes) > MOST_RANGES:
            return [KeyRange(first, stop)]
    ranges: list[KeyRange] = []
    for prefix in sorted(prefixes):
        # A key may be the beginning of another one; both are then in the range of the shorter one.
        last = ranges[-1] if ranges else None
        if last is None or last.first is None or not prefix.startswith(last.first):
            ranges.append(KeyRange(prefix, successor(prefix)))
    return ranges


def parts_of(
    handles: Sequence[KeyGroupHandle | RocksHandle | ChangelogHandle],
    asked: set[int] | None,
    *,
    is_local: bool,
    is_lookup: bool = False,
) -> list[GroupsPart]:
    """Parts with all rows of the asked key groups, each with some MiB of state or one key group.

    ``is_lookup``: of these key groups only few keys are read. They are then one part, whose files are opened once.
    """
    return [
        GroupsPart(number, first, last, frozenset(asked) if is_lookup and asked is not None else None)
        for number, handle in enumerate(handles)
        for first, last in _spans(handle, asked, is_lookup=is_lookup, is_local=is_local)
    ]


def _spans(
    handle: KeyGroupHandle | RocksHandle | ChangelogHandle,
    asked: set[int] | None,
    *,
    is_lookup: bool,
    is_local: bool,
) -> Iterator[tuple[int, int]]:
    """Yield the first and the last key group of each part of a handle."""
    end = handle.first_group + handle.groups
    if not handle.groups or (asked is not None and not any(handle.first_group <= each < end for each in asked)):
        return
    is_few = is_lookup and (asked is not None or isinstance(handle, RocksHandle))
    if is_few or isinstance(handle, ChangelogHandle) or (isinstance(handle, RocksHandle) and not is_local):
        # Each part would fetch the whole database or changelog, or open the database for a few keys.
        mine = [each for each in range(handle.first_group, end) if asked is None or each in asked]
        yield mine[0], mine[-1]
        return
    sizes = _even_sizes(handle) if isinstance(handle, RocksHandle) else _block_sizes(handle)
    first: int | None = None
    size, most = 0, PART_BYTES * reading_threads()
    for number, bytes_of_group in enumerate(sizes):
        group = handle.first_group + number
        if asked is not None and group not in asked:
            if first is not None:
                yield first, group - 1
            first, size = None, 0
            continue
        if bytes_of_group == 0 and first is None:
            continue
        if first is not None and size + bytes_of_group > most:
            yield first, group - 1
            first, size = None, 0
        first = group if first is None else first
        size += bytes_of_group
    if first is not None:
        yield first, end - 1


def _even_sizes(handle: RocksHandle) -> list[int]:
    """About the bytes of each key group."""
    tables = sum(stream_size(each) for name, each in handle.shared if name.endswith(".sst"))
    tables += sum(stream_size(each) for name, each in handle.private if name.endswith(".sst"))
    return [max(tables // handle.groups, 1)] * handle.groups


def _block_sizes(handle: KeyGroupHandle) -> list[int]:
    """The bytes of each key group's block, 0 where there is none."""
    size = stream_size(handle.stream)
    least = 0 if handle.form == "heap" else 1
    ends = sorted({*(each for each in handle.offsets if each >= least), size})
    following = {start: max(stop - start, 1) for start, stop in itertools.pairwise(ends)}
    return [following.get(each, 1) if each >= least else 0 for each in handle.offsets]
