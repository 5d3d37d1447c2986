"""Kinds of Kafka Streams' stores, and their stored and logged bytes as Arrow columns.

`stored_rows` decodes rows of a store's column families, `logged_rows` records of its changelog. Both work on whole
columns. All times are timestamps in microseconds, UTC; null is unknown. Global stores and in-memory stores are of kinds
of key-value stores, and lie elsewhere. Sources: KIP-258 (timestamps), KIP-889 (versions), KIP-825 (time-ordered
stores), KIP-1271 (headers), and the classes that the modules of this room name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.columns.row_columns import logged_columns, logged_fields, row_fields, stored_columns
from statestore.formats.kafka.columns.store_form import RowForm, StoreForm, StoreKind, ValueForm

__all__ = ["KINDS", "StoreForm", "StoreKind", "kind_of", "logged_rows", "logged_schema", "row_schema", "stored_rows"]

DEFAULT = "default"
TIMESTAMPED = "keyValueWithTimestamp"
WITH_HEADERS = "keyValueWithTimestampAndHeaders"
SESSION_HEADERS = "sessionKeyValueWithHeaders"
WINDOW_HEADERS = "windowKeyValueWithHeaders"

_FORMS: dict[str, tuple[tuple[str, ...], tuple[ValueForm, ...]]] = {
    "bare": ((DEFAULT,), ("bare",)),
    "timestamped": ((TIMESTAMPED, DEFAULT), ("timestamped", "bare")),
    "headers": ((WITH_HEADERS, TIMESTAMPED, DEFAULT), ("headers", "timestamped", "bare")),
}


def _key_value(name: str, meaning: str, form: str) -> StoreKind:
    families, values = _FORMS[form]
    return StoreKind(
        name,
        meaning,
        "plain",
        families,
        values,
        ("key",),
        ("key",),
        timestamp=form != "bare",
        headers=form == "headers",
    )


def _window(
    name: str,
    meaning: str,
    form: str,
    *,
    duplicates: bool = False,
    files: tuple[tuple[str, ...], tuple[ValueForm, ...]] | None = None,
) -> StoreKind:
    families, values = files or _FORMS[form]
    keys = ("key", "window_start")
    return StoreKind(
        name,
        meaning,
        "time-ordered window" if name.startswith("time-ordered") else "window",
        families,
        values,
        keys,
        (*keys, "sequence") if duplicates else keys,
        segmented=True,
        duplicates=duplicates,
        timestamp=form != "bare",
        headers=form == "headers",
    )


def _session(
    name: str, meaning: str, families: tuple[str, ...], values: tuple[ValueForm, ...], *, headers: bool = False
) -> StoreKind:
    keys = ("key", "session_start", "session_end")
    rows: RowForm = "time-ordered session" if name.startswith("time-ordered") else "session"
    return StoreKind(name, meaning, rows, families, values, keys, keys, segmented=True, headers=headers)


_ALL = (
    _key_value("key-value", "a value for each key", "bare"),
    _key_value("timestamped-key-value", "a value and its timestamp for each key: tables, aggregations", "timestamped"),
    _key_value("headers-key-value", "a value, its timestamp and its record's headers for each key", "headers"),
    _window("window", "a value for each key and window", "bare"),
    _window("window-duplicates", "all values of each key, by time: stream-stream joins", "bare", duplicates=True),
    _window("timestamped-window", "a value and its timestamp for each key and window: aggregations", "timestamped"),
    _window("headers-window", "a value, its timestamp and its record's headers for each key and window", "headers"),
    _window(
        "headers-window-duplicates",
        "all values of each key with timestamps and headers, by time: stream-stream joins",
        "headers",
        duplicates=True,
    ),
    _window("time-ordered-window", "a value for each key and window, stored by time", "bare"),
    _window(
        "time-ordered-timestamped-window",
        "a value and its timestamp for each key and window, stored by time: aggregations that emit when windows close",
        "timestamped",
        files=((DEFAULT,), ("timestamped",)),
    ),
    _window(
        "time-ordered-headers-window",
        "a value, its timestamp and headers for each key and window, stored by time: aggregations that emit when "
        "windows close",
        "headers",
        files=((WINDOW_HEADERS, DEFAULT), ("headers", "timestamped")),
    ),
    _session("session", "an aggregate for each session of a key", (DEFAULT,), ("bare",)),
    _session(
        "headers-session",
        "an aggregate and headers for each session of a key",
        (SESSION_HEADERS, DEFAULT),
        ("session-headers", "bare"),
        headers=True,
    ),
    _session(
        "time-ordered-session",
        "an aggregate for each session of a key, stored by time: aggregations that emit when sessions close",
        (DEFAULT,),
        ("bare",),
    ),
    # Kafka 4.3 writes bare aggregates into the family for headers, so there are no headers to show.
    _session(
        "time-ordered-headers-session",
        "an aggregate for each session of a key, stored by time, in the column family for headers",
        (SESSION_HEADERS, DEFAULT),
        ("bare", "bare"),
    ),
    StoreKind(
        "versioned",
        "the versions of each key's value, with the times from and to which each is valid",
        "versioned",
        (DEFAULT,),
        ("bare",),
        ("key",),
        ("key", "valid_from"),
        has_past=True,
    ),
    StoreKind(
        "outer-join-buffer",
        "records of a left or outer stream-stream join that have found no partner yet",
        "outer-join buffer",
        (DEFAULT,),
        ("bare",),
        ("key", "timestamp", "side"),
        ("timestamp", "side", "key", "position"),
        timestamp=True,
    ),
    StoreKind(
        "foreign-key-subscriptions",
        "which primary keys follow a foreign key in a foreign-key join",
        "subscription",
        (WITH_HEADERS, TIMESTAMPED, DEFAULT),
        ("headers", "timestamped", "bare"),
        ("foreign_key", "primary_key"),
        ("foreign_key", "primary_key"),
        timestamp=True,
    ),
    StoreKind(
        "grace-join-buffer",
        "records of a stream-table join that wait for the end of the grace period",
        "grace buffer",
        (DEFAULT,),
        ("bare",),
        ("key", "buffer_time"),
        ("key", "buffer_time", "sequence"),
        segmented=True,
    ),
    StoreKind(
        "suppression-buffer",
        "updates that a suppression holds back; only the changelog has them",
        "suppression",
        (),
        (),
        ("key",),
        ("key",),
        changelog_only=True,
    ),
)
KINDS: Mapping[str, StoreKind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""Kinds by name."""


def kind_of(form: StoreForm) -> StoreKind:
    """The kind of a form. Raises InvalidInputError KAFKA_STORE_KIND for an unknown name."""
    kind = KINDS.get(form.kind)
    if kind is None:
        raise InvalidInputError(ErrorCode.KAFKA_STORE_KIND, f"kind of store {form.kind!r}; expected {', '.join(KINDS)}")
    return kind


def row_schema(form: StoreForm) -> pa.Schema:
    """The columns of `stored_rows`; each may hold nulls.

    Raises InvalidInputError KAFKA_STORE_KIND, UnsupportedError UNSUPPORTED_SERDE.
    """
    return pa.schema(row_fields(kind_of(form), form))


def stored_rows(
    form: StoreForm,
    family: str,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Decode rows of a column family to the columns of `row_schema`. Those of values are null if none is ``wanted``.

    ``keys`` and ``values`` have no nulls. A row of a family older than the kind's newest is converted as Kafka does on
    reading it: its timestamp is null (unknown), its headers are empty. Index rows of time-ordered stores are left out.
    A row of an outer join's buffer gives a row for each element of its list, a row of a versioned store one for each
    version that lives. ``keys`` of a versioned store must hold all rows, of all segments, of each key in it, because a
    newer row cuts an older one that overlaps it; the result is ordered by the keys' first rows, then newest first.

    Raises CorruptError KAFKA_BYTES (or VERSIONED_ROW) about the first row that has not the form, InvalidInputError
    KAFKA_STORE_KIND for an unknown kind or a family that the kind does not have, UnsupportedError UNSUPPORTED_SERDE.
    """
    kind = kind_of(form)
    if family not in kind.families:
        families = ", ".join(kind.families) or "no column family: only a changelog has its rows"
        raise InvalidInputError(
            ErrorCode.KAFKA_STORE_KIND,
            f"a {kind.name} store with rows in column family {family!r}; expected {families}; choose another kind",
        )
    return _batch(
        row_schema(form),
        len(keys),
        lambda count: stored_columns(kind, form, family, keys.slice(0, count), values.slice(0, count), wanted),
    )


def logged_schema(form: StoreForm) -> pa.Schema:
    """The columns of `logged_rows`: those of `row_schema` without ``valid_to``, then ``tombstone`` and ``record``.

    ``tombstone`` (bool) is true for a record without a value; ``record`` (int64) is the position of the record in its
    batch. Errors as `row_schema`.
    """
    return pa.schema(logged_fields(kind_of(form), form))


def logged_rows(
    form: StoreForm,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    timestamps: pa.Int64Array,
    headers: pa.ListArray,
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Decode records of a store's changelog to the columns of `logged_schema`; ``wanted`` as in `stored_rows`.

    ``timestamps`` are those of the records in epoch milliseconds, ``headers`` of type
    `statestore.formats.kafka.columns.header_columns.HEADERS`. A null value deletes, or is a tombstone of a versioned
    store; it gives one row, without values. A record gives one row, and in an outer join's buffer one for each element
    of its list. The record's timestamp is the value's where the store keeps one, and a version's ``valid_from``; the
    record's headers are the value's where the store keeps them, without those that Kafka adds. Errors as `stored_rows`.
    """
    kind, columns = kind_of(form), (keys, values, timestamps, headers)
    return _batch(
        logged_schema(form),
        len(keys),
        lambda count: logged_columns(kind, form, *(column.slice(0, count) for column in columns), columns=wanted),
    )


def _batch(schema: pa.Schema, count: int, decode: Callable[[int], Mapping[str, pa.Array]]) -> pa.RecordBatch:
    """The columns of ``decode(count)``, which decodes so many rows. An error is about the first row that has one."""
    try:
        columns = decode(count)
    except CorruptError:
        # A column is checked after another, so an error may be about a later row than one that comes after it.
        right, wrong = 0, count
        while wrong - right > 1:
            middle = (right + wrong) // 2
            try:
                decode(middle)
                right = middle
            except CorruptError:
                wrong = middle
        columns = decode(wrong)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
