"""Changelog topics of Kafka Streams that another reader has read, such as Spark's own source ``kafka``.

To read state directories, files of a changelog or a broker, use `statestore.inspect`, `sql` or `attach`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown

if TYPE_CHECKING:
    from statestore.formats.kafka.columns.store_form import StoreForm

__all__ = ["decode"]


def decode(
    records: Any,
    kind: str,
    *,
    key_serde: str = "bytes",
    value_serde: str = "bytes",
    window_size: int | None = None,
) -> Any:
    """Decode records of a store's changelog topic to columns, batch by batch.

    ``records`` is a DataFrame of Spark with the columns of ``spark.readStream.format("kafka")`` or ``read`` (key,
    value, timestamp; partition, offset and headers where they are), or a pyarrow Table, RecordBatch or
    RecordBatchReader with such columns; the result is of the same type, and a RecordBatchReader for any other Arrow
    stream. ``kind`` is the store's, such as
    ``timestamped-key-value`` or ``session``; the serdes are named as in the options ``keySerde`` and ``valueSerde``;
    ``window_size`` is in milliseconds, and without it the ends of windows are null.

    The result has the columns of the store's kind, ``tombstone`` (true: the record deletes), ``partition`` and
    ``offset``. Times are timestamps in microseconds, UTC. A record gives one row, and in an outer join's buffer one for
    each element of its list. Records without a key are left out, as in a restore.

    Raises InvalidInputError KAFKA_STORE_KIND, WRONG_SCHEMA, WRONG_INPUT or INVALID_OPTION, UnsupportedError
    UNSUPPORTED_SERDE, and while rows are read CorruptError KAFKA_BYTES about the first record that does not fit.
    """
    if window_size is not None and (type(window_size) is not int or window_size <= 0):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"window_size is {shown(window_size)}; expected milliseconds, an int above 0"
        )
    from statestore.formats.kafka.columns.store_form import StoreForm
    from statestore.formats.kafka.schemas.schema_files import with_schema_file
    from statestore.formats.kafka.topic_records import check_columns, decoded, decoded_schema

    key, value = with_schema_file(key_serde, "key_serde"), with_schema_file(value_serde, "value_serde")
    form = StoreForm(kind, key, value, window_size)
    schema = decoded_schema(form)
    if isinstance(records, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        check_columns(records.schema, form)
        if isinstance(records, pa.RecordBatch):
            return decoded(records, form)
        batches = records.to_batches() if isinstance(records, pa.Table) else records
        found = pa.RecordBatchReader.from_batches(schema, (decoded(batch, form) for batch in batches))
        return found.read_all() if isinstance(records, pa.Table) else found
    if type(records).__module__.startswith("pyspark.sql."):
        return _in_spark(records, form, schema)
    if hasattr(records, "__arrow_c_stream__"):
        return decode(
            pa.RecordBatchReader.from_stream(records),
            kind,
            key_serde=key_serde,
            value_serde=value_serde,
            window_size=window_size,
        )
    raise InvalidInputError(
        ErrorCode.WRONG_INPUT,
        f"records are {shown(type(records).__name__)}; expected a DataFrame of Spark, or a pyarrow Table, "
        "RecordBatch or RecordBatchReader",
    )


def _in_spark(records: Any, form: StoreForm, schema: pa.Schema) -> Any:
    from statestore.connector.spark.errors import message_only
    from statestore.connector.spark.schema import arrow_schema, spark_schema
    from statestore.formats.kafka.topic_records import READ, check_columns, decoded

    chosen = records.select([name for name in READ if name in records.columns])
    check_columns(arrow_schema(chosen.schema), form)
    result = spark_schema(schema)
    expected = arrow_schema(result)

    def decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with message_only():
            for batch in batches:
                yield decoded(batch, form).cast(expected)

    return chosen.mapInArrow(decode_batches, result)
