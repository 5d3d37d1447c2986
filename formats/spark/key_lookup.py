"""The stored keys that a state view's filters allow: ranges of bytes, and the partition where Spark would put a whole
key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from statestore.formats.errors import StateStoreError
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.schema_files import FamilySchema, KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import SparkType, StructOf
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.rows.key_encoding import RowStart, is_whole, pinned, ranges_of, row_starts
from statestore.formats.spark.rows.key_placement import hash_of, partition_of
from statestore.formats.spark.rows.row_encoding import VERSION
from statestore.formats.spark.rows.value_encoding import REPLACEMENT_CHARACTER
from statestore.formats.values.filters import Filter

Choice = dict[tuple[str, ...], Any]
"""Values of a key's parts, by path in its schema."""
MAX_KEYS = 1000
JOIN_COLUMNS = ("index", "__event_time")
SESSION_START = "sessionStartTime"
_MAX_RANGES = 4096


@dataclass(frozen=True)
class KeyLookup:
    """The result of a lookup's planning: ``ranges`` of stored keys that hold all rows that pass the filters.

    The ranges are without the id of a column family. ``hash`` is that of a key that the filters name in whole, so that
    no other key can pass; None otherwise. The partition of such a key should be the remainder of the hash, but callers
    must not rely on it. ``keys`` is the most keys of one partition that can pass; None where filters name parts of
    keys. ``placed`` are the ranges of each key with the hash of its place; None where places are not certain.
    """

    ranges: tuple[KeyRange, ...]
    hash: int | None
    keys: int | None = None
    placed: tuple[tuple[int, tuple[KeyRange, ...]], ...] | None = None

    def ranges_in(self, partitions: Sequence[int], count: int) -> list[tuple[KeyRange, ...]]:
        """The ranges of the keys that can be in each of some partitions, of ``count`` in all."""
        if self.placed is None or not count:
            return [self.ranges] * len(partitions)
        found: dict[int, list[KeyRange]] = {each: [] for each in partitions}
        for place, ranges in self.placed:
            found.get(partition_of(place, count), []).extend(ranges)
        return [_joined(each) for each in found.values()]

    @property
    def bounds(self) -> tuple[KeyBounds, ...]:
        """The ranges by their first and last key alone."""
        return tuple((within.first, within.stop) for within in self.ranges)


def key_lookup(checkpoint: Checkpoint, state_view: StateView, filters: Sequence[Filter]) -> KeyLookup | None:
    """The lookup for filters; None where they do not name the first key columns, or the encoding of keys is unknown."""
    if checkpoint.batch.setting("stateStore.encodingFormat", "unsaferow").lower() != "unsaferow":
        return None
    schema = state_view.family.key
    if "key" in state_view.family.opaque:
        return None
    choices = _choices(state_view, filters)
    if not choices:
        return None
    ranges: list[KeyRange] = []
    keys = []
    placed: list[tuple[int | None, tuple[KeyRange, ...]]] = []
    columns = placed_columns(checkpoint, state_view)
    try:
        for chosen in choices:
            values = pinned(schema, _nested(chosen))
            more = _ranges(checkpoint, state_view, schema, values)
            if more is None or len(ranges) + len(more) > _MAX_RANGES:
                return None
            ranges += more
            keys.append(values)
            placed.append((_place_of(schema, values, columns), tuple(more)))
    except StateStoreError:
        return None  # the error is raised when the filter is applied to rows
    whole = len(keys) == 1 and is_whole(keys[0])
    single = all(each.first is not None and each.stop == each.first + b"\0" for each in ranges)
    known = tuple((place, of_key) for place, of_key in placed if place is not None)
    return KeyLookup(
        _joined(ranges),
        hash_of(schema, keys[0]) if whole else None,
        len(ranges) if single else None,
        known if len(known) == len(placed) else None,
    )


def _place_of(schema: StructOf, key: list[Any], columns: int) -> int | None:
    """The hash of a key's first columns, which is the place of its rows; None where it is not certain."""
    if not columns or not is_whole(key[:columns]):
        return None
    return hash_of(StructOf(schema.fields[:columns]), key[:columns])


def placement_hashes(checkpoint: Checkpoint, state_view: StateView, filters: Sequence[Filter]) -> set[int] | None:
    """The hashes of all keys that can pass the filters; None where these, or the places of rows, are not certain.

    A row is in the partition that is the remainder of its hash, divided by the number of partitions.
    """
    schema, columns = state_view.family.key, placed_columns(checkpoint, state_view)
    if not columns:
        return None
    try:
        choices = _choices(state_view, filters)
        hashes = [_place_of(schema, pinned(schema, _nested(chosen)), columns) for chosen in choices]
    except StateStoreError:
        return None
    return None if not hashes or None in hashes else {each for each in hashes if each is not None}


def placed_columns(checkpoint: Checkpoint, state_view: StateView) -> int:
    """The number of first columns of stored keys whose hash is the place of a row; 0 where places are not certain.

    Queries that Spark 3.3 or later began place rows by their hash, and say so; before, rows could lie where a user's
    own repartition had put them. Nor is it certain where the number of partitions has changed
    (`Store.had_other_count`).
    """
    store = state_view.store
    is_strict = checkpoint.batch.setting("statefulOperator.useStrictDistribution", "false") == "true"
    if not is_strict or "key" in state_view.family.opaque or store.written.single or store.had_other_count:
        return 0
    return _hashed_columns(state_view)


def _hashed_columns(state_view: StateView) -> int:
    """The number of first columns of stored keys whose hash is the place of a row; 0 where that is not known."""
    store, names = state_view.store, state_view.family.key.names
    if not state_view.user:
        return 0
    if state_view.shape in ("map", "timers"):
        return 1
    if state_view.shape == "join-side":
        return len([name for name in names if name not in JOIN_COLUMNS])
    if store.has_families:
        return len(names)
    if store.prefix_columns is None and SESSION_START in names:  # without the metadata of Spark 4
        return len(names) - 1 if is_session(store, state_view.family) else 0
    return store.prefix_columns or len(names)


def is_session(store: Store, family: FamilySchema) -> bool:
    """Return whether rows are those of session windows, which Spark 3.5 tells by their columns alone.

    Such a value is the row itself: the window, and all columns of the key but the start. Other operators of that
    release keep no columns of keys in values, or all of them.
    """
    names = family.value.names
    if store.prefix_columns is not None or family.key.names[-1:] != (SESSION_START,) or SESSION_START in names:
        return False
    windows = [field.type for field in family.value.fields if isinstance(field.type, StructOf)]
    return {*family.key.names[:-1]} <= {*names} and any(kind.names == ("start", "end") for kind in windows)


def _choices(state_view: StateView, filters: Sequence[Filter]) -> list[Choice]:
    """The keys that filters allow, each as values by path in the key's schema; none where they are not limited so."""
    limits = [found for item in filters if (found := _allowed(state_view, item))]
    choices: list[Choice] = [{}]
    for limit in sorted(limits, key=len):  # the ones that allow the fewest keys
        if all(path in choices[0] for path in limit[0]):
            continue
        if len(choices) * len(limit) > MAX_KEYS:
            return []
        choices = [{**allowed, **chosen} for chosen in choices for allowed in limit]
    return [chosen for chosen in choices if chosen]


def _allowed(state_view: StateView, item: Filter) -> list[Choice]:
    """The values that a filter allows, by path; [] where it limits no part of the key."""
    path = _path(state_view, item)
    kind = None if path is None else _kind_at(state_view.family.key, path)
    if path is None or kind is None or item.op not in ("=", "<=>", "in"):
        return []
    values = item.value if item.op == "in" else [item.value]
    if any(map(_is_ambiguous, values)):
        return []
    found = [_leaves(kind, path, value) for value in values if value is not None]
    # Values that name other parts of the key could not be told from those that name no part.
    return found if all(each and each.keys() == found[0].keys() for each in found) else []


def _is_ambiguous(value: object) -> bool:
    """Return whether a value stands for several stored ones: each sequence of bytes that is no UTF-8 is shown as
    U+FFFD."""
    if isinstance(value, Mapping):
        return any(map(_is_ambiguous, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_ambiguous, value))
    return isinstance(value, str) and REPLACEMENT_CHARACTER in value


def _kind_at(kind: SparkType, path: tuple[str, ...]) -> SparkType | None:
    for name in path:
        if not isinstance(kind, StructOf) or kind.names.count(name) != 1:
            return None
        kind = kind.fields[kind.names.index(name)].type
    return kind


def _leaves(kind: SparkType, path: tuple[str, ...], value: Any) -> Choice:
    """The values of a value's fields by path, if it is a struct: a mapping, a row, or a tuple of the fields in order.

    {} for a struct in another form, which the filter refuses or compares.
    """
    if not isinstance(kind, StructOf) or (value is None and path):
        return {path: value} if path else {}
    if len(set(kind.names)) < len(kind.names):
        return {}
    named = getattr(value, "__fields__", kind.names)
    if isinstance(value, tuple) and len(value) == len(named):
        value = dict(zip(named, value, strict=True))
    if not isinstance(value, Mapping) or not value or not set(value) <= set(kind.names):
        return {}
    found: Choice = {}
    for field in kind.fields:
        if field.name in value:
            found |= _leaves(field.type, (*path, field.name), value[field.name])
    return found


def _path(state_view: StateView, item: Filter) -> tuple[str, ...] | None:
    """The path of a filter's column in the schema of stored keys."""
    names = state_view.family.key.names
    if len({name.lower() for name in names}) < len(names):
        return None  # two columns have this name, and only their position distinguishes them
    if state_view.shape in ("map", "timers"):
        of_column = {"key": names[0], "user_map_key": names[1] if state_view.shape == "map" else None}
        first = of_column.get(item.column)
        return None if first is None else (first, *item.path)
    if item.column != "key":
        return None
    return item.path if item.path else ()


def _nested(values: Choice) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        level = nested
        for name in path[:-1]:
            level = level.setdefault(name, {})
        level[path[-1]] = value
    return nested


def _ranges(
    checkpoint: Checkpoint, state_view: StateView, schema: StructOf, values: list[Any]
) -> list[KeyRange] | None:
    if checkpoint.provider == "hdfs":
        return _plain(schema, values, b"")
    if not state_view.store.has_families:
        columns = state_view.store.prefix_columns
        if columns is None:  # Spark 3.5 does not record it, and only its session windows have a prefix
            parts = _plain(schema, values, _VERSION), _prefixed(schema, values, len(schema.fields) - 1)
            return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
        encoder = KeyEncoder("prefix", columns) if columns > 0 else state_view.family.encoder
    else:
        encoder = state_view.family.encoder
    if encoder.ordering == "none":
        return _plain(schema, values, _VERSION)
    if encoder.ordering == "prefix":
        return _prefixed(schema, values, encoder.prefix_columns)
    if encoder.ordering == "timestamp-postfix":
        return _timed(schema, values)
    return None


_VERSION = bytes([VERSION])


def _plain(schema: StructOf, values: list[Any], front: bytes) -> list[KeyRange] | None:
    rows = row_starts(schema, values)
    return None if rows is None else ranges_of(front, rows, whole=is_whole(values))


def _prefixed(schema: StructOf, values: list[Any], columns: int) -> list[KeyRange] | None:
    """size:int32 | 00 | row of the first columns | 00 | row of the others."""
    first, second = StructOf(schema.fields[:columns]), StructOf(schema.fields[columns:])
    if columns <= 0 or not is_whole(values[:columns]):
        return None
    heads = row_starts(first, values[:columns])
    if heads is None:
        return None
    fronts = [(1 + len(row.head)).to_bytes(4, "little") + _VERSION + row.head for row in heads]
    rest = row_starts(second, values[columns:]) if second.fields else [RowStart(b"")]
    whole = rest is not None and is_whole(values)
    front = _VERSION if second.fields and rest is not None else b""
    return [each for one in fronts for each in ranges_of(one + front, rest or [RowStart(b"")], whole=whole)]


def _timed(schema: StructOf, values: list[Any]) -> list[KeyRange] | None:
    """00 | row without the last column | time."""
    bare = StructOf(schema.fields[:-1])
    rows = row_starts(bare, values[:-1])
    return None if rows is None else ranges_of(_VERSION, rows, whole=False)


def _joined(ranges: list[KeyRange]) -> tuple[KeyRange, ...]:
    """The keys as ascending ranges that do not overlap."""
    joined: list[KeyRange] = []
    for each in sorted(set(ranges), key=lambda within: (within.first or b"", within.rest)):
        last = joined[-1] if joined else None
        if last is None or (last.stop is not None and (each.first or b"") >= last.stop):
            joined.append(each)
        else:
            stop = None if last.stop is None or each.stop is None else max(last.stop, each.stop)
            joined[-1] = KeyRange(last.first, stop)
    return tuple(joined)
