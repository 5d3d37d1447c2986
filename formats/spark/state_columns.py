"""Decoding of stored bytes to the columns of a state view."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, ends_of, gather
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.given_types import names_of
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import arrow_type, unique_fields
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, without_advice
from statestore.formats.spark.checkpoint.state_views import NUMBER, StateView, state_fields
from statestore.formats.spark.providers.partition_load import FAMILY_BYTES
from statestore.formats.spark.rows.row_encoding import (
    CHECKSUM_BYTES,
    SIZE_BYTES,
    RowForm,
    decode_keys,
    decode_values,
    looks_prefixed,
    split_values,
    verify_checksums,
    without_version,
)
from statestore.formats.spark.rows.unsafe_row import WORD, decode_fields, unsafe_cells
from statestore.formats.spark.rows.value_columns import spread

INDEX = "index"  # the field of a join's key with the number of the row
_ONE_FIELD = 2 * WORD


@dataclass(frozen=True)
class Decoder:
    """The form of a state view's stored rows, and the columns to decode; the others are null.

    The columns in ``unsafe`` are returned as they are stored, too. With ``numbered``, so are the numbers of rows within
    their key.
    """

    state_view: StateView
    form: RowForm
    bare: bool
    checksums: bool
    delimiter: bytes
    columns: frozenset[str]
    unsafe: frozenset[str] = frozenset()
    place: str = ""
    numbered: bool = False

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """Say of rows that do not follow the types that a user gave where they are."""
        try:
            yield
        except CorruptError as error:
            if self.state_view.family.recorded or error.code != ErrorCode.SPARK_STATE_ROW:
                raise
            view = self.state_view
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{self.place}: {without_advice(error)}; the rows do not fit keyType and valueType of "
                f"{names_of(view.operator_id, view.store.name)[-1]}: give the columns that the query stored, or leave "
                "both out, which shows the stored bytes",
            ) from error


def decoder_of(
    checkpoint: Checkpoint,
    state_view: StateView,
    form: RowForm,
    columns: Collection[str] | None = None,
    fields: Mapping[str, Collection[str]] | None = None,
    unsafe: Collection[str] = (),
    partition: int | None = None,
) -> Decoder:
    """The decoder of a state view. ``form`` is how the checkpoint encodes rows; ``columns`` are all by default.

    Of the structs in ``fields`` only the fields named there are sure to be decoded. Where users gave the types, every
    row is checked in whole, so all columns are decoded. ``partition`` is the one of the rows, for errors.
    """
    every = columns is None or not state_view.family.recorded
    wanted = frozenset(each.name for each in state_fields(state_view)) if every else frozenset(columns or ())
    bare = checkpoint.provider == "hdfs"
    form = form if not fields else _limited(form, state_view, fields)
    folder = checkpoint.root.at("state", state_view.operator_id) if partition is None else None
    folder = folder or checkpoint.folder(state_view.store, int(partition or 0))
    place = f"{folder.path} as of batch {checkpoint.batch.batch_id}"
    return Decoder(
        state_view,
        form,
        bare,
        checkpoint.has_checksums,
        checkpoint.delimiter,
        wanted,
        frozenset(unsafe),
        place,
        numbered=columns is not None and NUMBER.name in columns,
    )


def _limited(form: RowForm, state_view: StateView, fields: Mapping[str, Collection[str]]) -> RowForm:
    """The form that decodes only these fields, by the names that users see."""
    shown = unique_fields(pa.schema(state_fields(state_view)))
    of_value = shown.names[-1]
    if of_value in fields and form.value is decode_fields and state_view.shape != "timers":
        form = replace(form, value=partial(decode_fields, only=_numbers(shown.field(of_value).type, fields[of_value])))
    if "key" in fields and form.whole is decode_fields and holds_whole_keys(state_view, form):
        form = replace(form, whole=partial(decode_fields, only=_numbers(shown.field("key").type, fields["key"])))
    return form


def _numbers(kind: pa.DataType, names: Collection[str]) -> frozenset[int]:
    return frozenset(number for number, field in enumerate(kind) if field.name in names)


def holds_whole_keys(state_view: StateView, form: RowForm) -> bool:
    """Return whether a stored key is one row with the fields of the column ``key``."""
    plain = form.bare or (state_view.family.encoder.ordering == "none" and not _is_prefixed(state_view))
    return plain and state_view.shape in ("rows", "list")


def _is_prefixed(state_view: StateView) -> bool:
    store = state_view.store
    return not store.has_families and store.prefix_columns != 0


@dataclass(frozen=True)
class Decoded:
    """The columns of a state view, without the partition; ``rows`` is the stored row of each, None if they are the
    same.

    ``unsafe`` are the stored rows of columns, for those that the decoder names. ``numbers`` are those of rows within
    their key, if the decoder is to return them and the state view has them.
    """

    columns: list[pa.Array]
    rows: Ints | None
    unsafe: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    numbers: Ints | None = None


def decode_columns(decoder: Decoder, keys: Cells, values: Cells, missing: Bools | None = None) -> Decoded:
    """Decode stored rows to columns; values are null where ``missing``, in the rows of deletions."""
    with decoder.fitting():
        return _decode_columns(decoder, keys, values, missing)


def _decode_columns(decoder: Decoder, keys: Cells, values: Cells, missing: Bools | None) -> Decoded:
    has = np.ones(len(keys), np.bool_) if missing is None else ~missing
    counts, entries = split_entries(
        decoder, *((keys, values) if missing is None else (keys.select(has), values.select(has)))
    )
    value, key = _value(decoder, entries), _key(decoder, keys)
    if counts is None:
        whole = {} if not decoder.unsafe else _unsafe(decoder, keys, entries)
        numbers = _indexes(key, decoder.state_view) if decoder.numbered else None
        return Decoded(_shown(decoder.state_view, key, spread(value, missing)), None, whole, numbers)
    if not decoder.state_view.flat:
        return Decoded([key, spread(_lists(decoder.state_view, value, counts), missing)], None)
    each = np.ones(len(key), np.int64)  # a deletion is one row
    each[has] = counts
    rows = np.repeat(np.arange(len(key)), each)
    value = spread(value, None if missing is None else missing[rows])
    numbers = np.arange(len(rows)) - np.repeat(ends_of(each)[:-1], each) if decoder.numbered else None
    return Decoded(_shown(decoder.state_view, key.take(pa.array(rows)), value), rows, numbers=numbers)


def _indexes(key: pa.Array, state_view: StateView) -> Ints | None:
    """The number that a join's side stores in the key of each row."""
    names = state_view.family.key.names
    if state_view.shape != "join-side" or INDEX not in names:
        return None
    found = key.field(names.index(INDEX))
    if found.null_count:
        raise corrupt_row("found a row of a join without its number")
    numbers: Ints = found.to_numpy().astype(np.int64)
    return numbers


def _unsafe(decoder: Decoder, keys: Cells, entries: Cells) -> dict[str, pa.BinaryArray]:
    family, bare = decoder.state_view.family, decoder.form.bare
    found = {}
    for name in decoder.unsafe:
        rows, schema = (keys, family.key) if name == "key" else (entries, family.value)
        if name == "key" and decoder.state_view.store.has_families:
            rows = rows.behind(FAMILY_BYTES, "a key", corrupt_row)
        found[name] = unsafe_cells(rows if bare else without_version(rows), schema)
    return found


def decode_entries(decoder: Decoder, keys: Cells, entries: Cells) -> list[pa.Array]:
    """Decode the columns of rows whose values `split_entries` has split; state views that are not flat have no such
    rows."""
    with decoder.fitting():
        return _shown(decoder.state_view, _key(decoder, keys), _value(decoder, entries))


def _value(decoder: Decoder, entries: Cells) -> pa.Array:
    schema = decoder.state_view.family.value
    if "value" in decoder.state_view.family.opaque:
        return entries.copied(corrupt_row)
    if decoder.state_view.shape == "timers" or state_fields(decoder.state_view)[-1].name not in decoder.columns:
        return pa.nulls(len(entries), arrow_type(schema))
    if may_lack_values(decoder.state_view):
        nothing = _are_one_null(entries, 0 if decoder.form.bare else 1)
        if nothing.any():
            return spread(decode_values(entries.select(~nothing), schema, decoder.form), nothing)
    return decode_values(entries, schema, decoder.form)


def may_lack_values(state_view: StateView) -> bool:
    """Return whether stored values may be one null each, whatever the schema of values says.

    Spark up to 3.3.0 declared the input's whole row as the value of a deduplication, and stored one null (SPARK-39650).
    Later releases keep the schema file of a query that such a release began.
    """
    family = state_view.family
    if not family.recorded or state_view.store.has_families or state_view.shape != "rows":
        return False
    if len(family.value.fields) < 2:
        return False
    declared = {field.name: field.type for field in family.value.fields}
    return all(declared.get(field.name) == field.type for field in family.key.fields)


def _are_one_null(entries: Cells, front: int) -> Bools:
    """Return which encoded rows have one field, a null: no row of several fields is so short."""
    found: Bools = entries.size == front + _ONE_FIELD
    short = entries.select(found)
    bits = gather(short.data, short.start + front, "<u8")
    slots = gather(short.data, short.start + front + WORD, "<u8")
    found[found] = (bits == 1) & (slots == 0)
    return found


def _key(decoder: Decoder, keys: Cells) -> pa.Array:
    state_view = decoder.state_view
    if "key" in state_view.family.opaque:
        return keys.copied(corrupt_row)
    of_key = state_fields(state_view) if state_view.shape == "timers" else state_fields(state_view)[:-1]
    if not decoder.numbered and not any(field.name in decoder.columns for field in of_key):
        return pa.nulls(len(keys), arrow_type(state_view.family.key))
    if state_view.store.has_families:
        keys = keys.behind(FAMILY_BYTES, "a key", corrupt_row)
    return decode_keys(keys, state_view.family.key, _encoder(decoder, keys), decoder.form)


def _encoder(decoder: Decoder, keys: Cells) -> KeyEncoder:
    """The encoder in the schema file or the operator metadata; where Spark wrote neither, a guess from the keys."""
    known = recorded_encoder(decoder.state_view, decoder.bare)
    if known is not None:
        return known
    # Only session windows had such keys in that release: all columns but the start of the session.
    columns = len(decoder.state_view.family.key.fields) - 1 if looks_prefixed(keys) else 0
    return KeyEncoder("prefix", columns) if columns > 0 else decoder.state_view.family.encoder


def recorded_encoder(state_view: StateView, bare: bool) -> KeyEncoder | None:
    """The encoder in the schema file or the operator metadata; None where Spark wrote neither."""
    if state_view.store.has_families or bare:
        return state_view.family.encoder
    columns = state_view.store.prefix_columns
    if columns is None:
        return None
    return KeyEncoder("prefix", columns) if columns > 0 else state_view.family.encoder


def split_entries(decoder: Decoder, keys: Cells, values: Cells) -> tuple[Ints | None, Cells]:
    """(number of entries of each value of a list, encoded rows), with checksums verified and removed."""
    if not decoder.checksums:
        return split_values(values, decoder.delimiter) if decoder.state_view.listed else (None, values)
    if decoder.bare:
        rows = values.behind(CHECKSUM_BYTES, "a value with its checksum", corrupt_row)
        verify_checksums(gather(values.data, values.start, "<u4"), keys, rows)
        return None, rows
    counts, rows = split_values(values, decoder.delimiter, front=CHECKSUM_BYTES)
    owners = np.repeat(np.arange(len(values)), counts)
    verify_checksums(gather(rows.data, rows.start - (SIZE_BYTES + CHECKSUM_BYTES), "<u4"), keys.select(owners), rows)
    if not decoder.state_view.listed:
        if (counts != 1).any():
            raise corrupt_row("found several values with checksums for one key, expected one")
        return None, rows
    inner, entries = split_values(rows, decoder.delimiter)
    return np.bincount(owners, inner, minlength=len(values)).astype(np.int64), entries


def _lists(state_view: StateView, value: pa.StructArray, counts: Ints) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends_of(counts), pa.int32()), value, type=state_fields(state_view)[1].type)


def _shown(state_view: StateView, key: pa.Array, value: pa.Array) -> list[pa.Array]:
    if state_view.shape == "timers":
        return [key.field(0), key.field(1)]
    if state_view.shape == "map":
        return [key.field(0), key.field(1), value]
    if state_view.shape == "join-side":
        return [
            _of_fields(key, state_fields(state_view)[0].type, state_view.family.key.names),
            _first(value, len(state_view.value.fields)),
        ]
    return [key, value]


def _of_fields(struct: pa.StructArray, kind: pa.StructType, names: tuple[str, ...]) -> pa.StructArray:
    """The key of a join without its ``index``."""
    kept = [struct.field(number) for number, name in enumerate(names) if name != INDEX]
    return pa.StructArray.from_arrays(kept, fields=list(kind))


def _first(struct: pa.Array, count: int) -> pa.Array:
    """The first fields of a struct, null where it is null; stored bytes stay whole."""
    if not pa.types.is_struct(struct.type) or count == struct.type.num_fields:
        return struct
    mask = struct.is_null() if struct.null_count else None
    return pa.StructArray.from_arrays(
        [struct.field(number) for number in range(count)],
        fields=[struct.type.field(n) for n in range(count)],
        mask=mask,
    )
