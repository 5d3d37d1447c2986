"""Which stored keys a view's filters allow: ranges of bytes, and the partition that Spark would put a whole key in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from statestore.formats.errors import StateStoreError
from statestore.formats.filters import Filter
from statestore.formats.spark.checkpoint import Checkpoint
from statestore.formats.spark.key_bounds import KeyBounds
from statestore.formats.spark.key_encoding import bounds_of, is_whole, pinned, row_prefixes
from statestore.formats.spark.key_placement import hash_of
from statestore.formats.spark.row_encoding import VERSION
from statestore.formats.spark.schema_files import KeyEncoder
from statestore.formats.spark.spark_schema import StructOf
from statestore.formats.spark.views import View

MAX_KEYS = 1000
_MAX_RANGES = 4096


@dataclass(frozen=True)
class KeyLookup:
    """``ranges`` of stored keys, without the id of a column family, that hold all rows that pass the filters.

    ``hash`` is of a key that the filters name in whole, so that no other key can pass; None otherwise. The partition of
    such a key should be its remainder, which whoever uses it must not rely on.
    """

    ranges: tuple[KeyBounds, ...]
    hash: int | None


def key_lookup(checkpoint: Checkpoint, view: View, filters: Sequence[Filter]) -> KeyLookup | None:
    """None where the filters do not pin the first key columns, or keys are encoded in a way that does not tell."""
    if checkpoint.batch.setting("stateStore.encodingFormat", "unsaferow").lower() != "unsaferow":
        return None
    schema = view.family.key
    choices = _choices(view, filters)
    if not choices or math.prod(len(values) for values in choices.values()) > MAX_KEYS:
        return None
    ranges: list[KeyBounds] = []
    keys = []
    try:
        for chosen in itertools.product(*choices.values()):
            values = pinned(schema, _nested(dict(zip(choices, chosen, strict=True))))
            found = _ranges(checkpoint, view, schema, values)
            if found is None or len(ranges) + len(found) > _MAX_RANGES:
                return None
            ranges += found
            keys.append(values)
    except StateStoreError:
        return None  # applied to rows, the filter says what is wrong with it
    whole = len(keys) == 1 and is_whole(keys[0])
    return KeyLookup(_joined(ranges), hash_of(schema, keys[0]) if whole else None)


def _choices(view: View, filters: Sequence[Filter]) -> dict[tuple[str, ...], list[Any]]:
    """The values that filters allow by path in the key's schema; those that pin nothing are left out."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for item in filters:
        path = _path(view, item)
        if path is None or item.op not in ("=", "<=>", "in"):
            continue
        values = list(item.value) if item.op == "in" else [item.value]
        for place, value in _leaves(path, values):
            if place and (place not in found or len(value) < len(found[place])):
                found[place] = value
    return found


def _leaves(path: tuple[str, ...], values: list[Any]) -> list[tuple[tuple[str, ...], list[Any]]]:
    """A struct that is given in whole as its fields."""
    if len(values) == 1 and isinstance(values[0], dict):
        return [leaf for name, value in values[0].items() for leaf in _leaves((*path, name), [value])]
    kept = [value for value in values if value is not None]
    return [(path, kept)] if kept and not any(isinstance(value, dict) for value in kept) else []


def _path(view: View, item: Filter) -> tuple[str, ...] | None:
    """Where a filter's column lies in the schema of stored keys."""
    names = view.family.key.names
    if len({name.lower() for name in names}) < len(names):
        return None  # which of two columns of one name is meant is told by position only
    if view.shape in ("map", "timers"):
        of_column = {"key": names[0], "user_map_key": names[1] if view.shape == "map" else None}
        first = of_column.get(item.column)
        return None if first is None else (first, *item.path)
    if item.column != "key":
        return None
    return item.path if item.path else ()


def _nested(values: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in values.items():
        place = found
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return found


def _ranges(checkpoint: Checkpoint, view: View, schema: StructOf, values: list[Any]) -> list[KeyBounds] | None:
    if checkpoint.provider == "hdfs":
        return _plain(schema, values, b"")
    if not view.store.has_families:
        columns = view.store.prefix_columns
        if columns is None:  # Spark 3.5 did not say, and only its session windows have a prefix
            parts = _plain(schema, values, _VERSION), _prefixed(schema, values, len(schema.fields) - 1)
            return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
        encoder = KeyEncoder("prefix", columns) if columns > 0 else view.family.encoder
    else:
        encoder = view.family.encoder
    if encoder.ordering == "none":
        return _plain(schema, values, _VERSION)
    if encoder.ordering == "prefix":
        return _prefixed(schema, values, encoder.prefix_columns)
    if encoder.ordering == "timestamp-postfix":
        return _timed(schema, values)
    return None


_VERSION = bytes([VERSION])


def _plain(schema: StructOf, values: list[Any], front: bytes) -> list[KeyBounds] | None:
    prefixes = row_prefixes(schema, values)
    if prefixes is None:
        return None
    return bounds_of([front + prefix for prefix in prefixes], whole=is_whole(values))


def _prefixed(schema: StructOf, values: list[Any], columns: int) -> list[KeyBounds] | None:
    """size:int32 | 00 | row of the first columns | 00 | row of the others."""
    first, second = StructOf(schema.fields[:columns]), StructOf(schema.fields[columns:])
    if columns <= 0 or not is_whole(values[:columns]):
        return None
    heads = row_prefixes(first, values[:columns])
    if heads is None:
        return None
    fronts = [(1 + len(head)).to_bytes(4, "little") + _VERSION + head for head in heads]
    rest = row_prefixes(second, values[columns:]) if second.fields else [b""]
    if rest is None or not second.fields:
        return bounds_of(fronts, whole=not second.fields)
    return bounds_of([front + _VERSION + row for front in fronts for row in rest], whole=is_whole(values))


def _timed(schema: StructOf, values: list[Any]) -> list[KeyBounds] | None:
    """00 | row without the last column | time."""
    bare = StructOf(schema.fields[:-1])
    prefixes = row_prefixes(bare, values[:-1])
    return None if prefixes is None else bounds_of([_VERSION + prefix for prefix in prefixes], whole=False)


def _joined(ranges: list[KeyBounds]) -> tuple[KeyBounds, ...]:
    """The same keys in ascending ranges that do not overlap."""
    found: list[KeyBounds] = []
    for first, stop in sorted(ranges, key=lambda bounds: bounds[0] or b""):
        if found and (found[-1][1] is None or (first or b"") < found[-1][1]):
            last = found[-1][1]
            found[-1] = (found[-1][0], None if last is None or stop is None else max(last, stop))
        else:
            found.append((first, stop))
    return tuple(found)
