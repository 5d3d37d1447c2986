"""Records of a changelog topic that another reader has read, in the columns of Spark's Kafka source, decoded.

key, value          binary; a null value deletes
timestamp           a timestamp, or epoch milliseconds
partition, offset   integers, where they are known
headers             lists of structs of a name (or key) and a value
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.header_columns import HEADER, HEADERS, empty_headers
from statestore.formats.kafka.columns.store_form import StoreForm
from statestore.formats.kafka.columns.store_kinds import kind_of, logged_rows, logged_schema

READ = ("key", "value", "timestamp", "partition", "offset", "headers")
_PLACE = {"partition": pa.int32(), "offset": pa.int64()}


def decoded_schema(form: StoreForm) -> pa.Schema:
    """The columns of `decoded`. Raises InvalidInputError KAFKA_STORE_KIND, UnsupportedError UNSUPPORTED_SERDE."""
    own = [each for each in logged_schema(form) if each.name != "record"]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in _PLACE.items())])


def check_columns(schema: pa.Schema, form: StoreForm) -> None:
    """Raise InvalidInputError WRONG_SCHEMA where records have not the columns that the kind needs."""
    kind = kind_of(form)
    for name in ("key", "value", "timestamp"):
        if name not in schema.names:
            raise _wrong(f"no column {name}; found {', '.join(schema.names)}, expected key, value and timestamp")
    for name in ("key", "value"):
        found = schema.field(name).type
        if not (pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_null(found)):
            raise _wrong(f"column {name} of type {found}; expected the binary column of the topic, without a cast")
    time = schema.field("timestamp").type
    if not (pa.types.is_timestamp(time) or pa.types.is_int64(time)):
        raise _wrong(f"column timestamp of type {time}; expected a timestamp, or an int64 of milliseconds")
    if "headers" in schema.names:
        headers = schema.field("headers").type
        if not (pa.types.is_list(headers) or pa.types.is_large_list(headers)) or headers.value_type.num_fields != 2:
            raise _wrong(f"column headers of type {headers}; expected a list of structs of a name and a value")
    elif kind.headers or kind.rows == "suppression":
        raise _wrong(
            f"no column headers, which hold a part of the rows of kind {kind.name}; in Spark, read the topic with "
            'option("includeHeaders", "true")'
        )


def decoded(batch: pa.RecordBatch, form: StoreForm) -> pa.RecordBatch:
    """Decode records, which `check_columns` has passed, to the columns of `decoded_schema`.

    Records without a key are left out, as in a restore. A place that is not there is null. Raises CorruptError
    KAFKA_BYTES about the first record that has not the form, with its hex.
    """
    batch = batch.filter(batch.column("key").is_valid())
    keys, values = (batch.column(name).cast(pa.binary()) for name in ("key", "value"))
    rows = logged_rows(form, keys, values, _milliseconds(batch.column("timestamp")), _headers(batch))
    record = rows.column("record")
    columns = {name: rows.column(name) for name in rows.schema.names}
    for name, kind in _PLACE.items():
        found = batch.column(name).cast(kind) if name in batch.schema.names else pa.nulls(len(batch), kind)
        columns[name] = found.take(record)
    schema = decoded_schema(form)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _milliseconds(times: pa.Array) -> pa.Int64Array:
    if times.null_count:
        raise _wrong("a null in column timestamp; expected the time of each record")
    if pa.types.is_int64(times.type):
        return times
    return times.cast(pa.timestamp("ms", tz=times.type.tz), safe=False).cast(pa.int64())


def _headers(batch: pa.RecordBatch) -> pa.ListArray:
    if "headers" not in batch.schema.names:
        return empty_headers(len(batch))
    found = batch.column("headers")
    counts = pc.fill_null(pc.list_value_length(found), 0).cast(pa.int64())
    flat = found.flatten()
    names, values = (flat.field(at).cast(kind.type) for at, kind in enumerate(HEADER))
    entries = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
    return pa.ListArray.from_arrays(ends.cast(pa.int32()), entries, type=HEADERS)


def _wrong(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_SCHEMA, f"records of a changelog topic: {found}")
