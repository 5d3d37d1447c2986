"""The readers of engines that confirm targets of edits, by the names that engines give them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from statestore.catalog.edits.engine_confirmation import EngineReader, reader_missing
from statestore.formats.engine import Source

_SPARK = "spark"


def engine_reader(source: Source, *, wanted: bool) -> AbstractContextManager[EngineReader | None]:
    """Return the reader of a source's engine, which may be a session that lasts as long as the context; None where
    it is not ``wanted``.

    Raises UnsupportedError EDIT_UNSUPPORTED for engines without a reader that Python reaches, and UNSUPPORTED_SPARK
    where PySpark is absent or too old.
    """
    if not wanted:
        return nullcontext()
    reads = source.engine_reads()
    if reads is None or reads.reader != _SPARK:
        raise reader_missing(source)
    from statestore.connector.supported_spark import check_spark

    check_spark()
    from statestore.connector.spark.own_rows import spark_reader

    return spark_reader()
