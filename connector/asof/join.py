"""`asof_join`: each left row with the value its key had at the row's own time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from statestore.connector.asof import join_on_arrow as arrow_engine
from statestore.connector.asof.join_request import AsofRequest, On, make_request
from statestore.connector.collated_keys import check_not_collated
from statestore.connector.supported_spark import check_spark
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown

PIECE_ROWS = 1 << 22
ENGINES = ("arrow", "duckdb", "spark")


def asof_join(
    left: Any,
    store: Any,
    *,
    on: On,
    left_time: str,
    how: str = "inner",
    columns: Iterable[str] | None = None,
    prefix: str = "",
    version: int | None = None,
    grace: int | timedelta | str | None = None,
    engine: str | None = None,
) -> Any:
    """Join each row of ``left`` with the version of its key that was valid at the row's own time.

    It is the stream-table join of Kafka Streams with a versioned table (KIP-914).

    ``left`` is a pyarrow Table or RecordBatchReader, a pandas or Polars DataFrame, a DuckDB relation or a Spark
    DataFrame, batch or streaming. The result is of the same kind; that of any other Arrow stream, such as a scan, is a
    RecordBatchReader. It has the columns of the left side, followed by the value columns of
    the store or by ``columns``, which may also name ``valid_from``, ``valid_to`` and ``_commit_version``. ``prefix`` is
    put before the names of the added columns. Arrow, pandas and DuckDB keep the order of the rows. ``store`` is an open
    store (only committed rows are read), a table of ``inspect(…)`` or a path. ``on`` names the key columns and every
    further column of the row key (the ``user_key`` of a map, the start of a window), or maps left columns to them.
    State in which equal rows may repeat cannot be joined. ``left_time`` is a timestamp with zone (in Spark a
    TIMESTAMP), an integer of epoch milliseconds or, except in Spark, a text like 2024-05-01T09:30Z.

    ``how="inner"`` leaves out rows whose key had no value at that time; ``"left"`` keeps them with nulls. Rows whose
    key or time is null are treated alike; a pandas column has null for NaN. Keys are equal if their bits are, unless
    the engine stores one zero and one NaN: to Flink and Kafka Streams 0.0 and -0.0 are two keys. The state time of a
    key-value store is the time of its commits. ``version`` joins with the state that this commit recorded (default: the
    newest; a streaming query reads the newest at each micro-batch). A time that is expired, or older than the history
    retention counted from the store's stream time, meets a version only if it is still the newest of its key, as in
    ``get(key, as_of=)`` (KIP-889).

    ``grace`` (Spark streams only, KIP-923): a row waits until the stream of its partition has passed the row's time by
    this duration, and is then joined with the store as it is at that moment. A row that is later than the grace when it
    arrives is joined at once. The store must keep at least as much history.

    ``engine``: "arrow" (the default except for Spark), "duckdb" (its ASOF JOIN over the history) or "spark". Raises
    InvalidInputError (COLUMN_NOT_FOUND, WRONG_KEY, NAME_CLASH, NAIVE_DATETIME, GRACE_TOO_LONG, …), UnsupportedError
    JOIN_KIND where a key has several rows at a time, and NotFoundError VERSION_NOT_FOUND, or TIME_NOT_KEPT for left
    rows that are older than the kept state of a checkpoint or a keyed store.
    """
    kind = _kind_of(left)
    if kind == "spark":
        check_spark()
    _check_engine(engine, kind, grace)
    if kind == "stream":
        left = pa.RecordBatchReader.from_stream(left)
        kind = "reader"
    names = list(left.columns) if kind in ("pandas", "polars", "spark", "duckdb") else left.schema.names
    if kind == "spark" and isinstance(store, str):
        from statestore.connector.spark.location import session_settings, with_settings

        store = with_settings(store, session_settings(left.sparkSession, store))
    request = make_request(names, store, on, left_time, how, columns, prefix, version)
    if kind == "spark":
        from statestore.connector.asof.join_on_spark import join_frame
        from statestore.connector.spark.intervals import with_intervals
        from statestore.connector.spark.schema import check_frame_keys

        check_frame_keys(left.schema, request.left_keys)

        return with_intervals(join_frame(left, request, grace, pinned=version is not None))
    if kind in ("arrow", "reader"):
        check_not_collated(left.schema, request.left_keys)
    if kind == "reader":
        return _joined_reader(left, request, engine)
    if kind == "polars":
        import polars

        return polars.DataFrame(_joined(left.to_arrow(), request, engine))
    if kind == "pandas":
        return _joined(pa.Table.from_pandas(left, preserve_index=False), request, engine).to_pandas()
    if kind == "duckdb":
        joined = _joined(left.to_arrow_table(), request, engine)  # noqa: F841  DuckDB finds it by name
        return left.query("left_side", "SELECT * FROM joined")
    return _joined(left, request, engine)


def _joined(left: pa.Table, request: AsofRequest, engine: str | None) -> pa.Table:
    if engine == "duckdb":
        from statestore.connector.asof import join_on_duckdb as duckdb_engine

        return duckdb_engine.join_table(left, request)
    return arrow_engine.join_table(left, request)


def _joined_reader(left: pa.RecordBatchReader, request: AsofRequest, engine: str | None) -> pa.RecordBatchReader:
    """Join in pieces, so that a long left side need not be in memory at once."""
    schema = arrow_engine.result_schema(left.schema, request)
    pieces = (batch for piece in _pieces(left) for batch in _joined(piece, request, engine).to_batches())
    return pa.RecordBatchReader.from_batches(schema, pieces)


def _pieces(left: pa.RecordBatchReader) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in left:
        held.append(batch)
        if sum(b.num_rows for b in held) >= PIECE_ROWS:
            yield pa.Table.from_batches(held, schema=left.schema)
            held = []
    if held:
        yield pa.Table.from_batches(held, schema=left.schema)


def _kind_of(left: Any) -> str:
    if isinstance(left, pa.RecordBatchReader):
        return "reader"
    if isinstance(left, pa.Table):
        return "arrow"
    package = type(left).__module__.partition(".")[0]
    if package == "pandas":
        return "pandas"
    if package == "pyspark":
        return "spark"
    if package in ("duckdb", "_duckdb"):
        return "duckdb"
    if package == "polars" and hasattr(left, "to_arrow"):
        return "polars"
    if hasattr(left, "__arrow_c_stream__"):
        return "stream"
    raise InvalidInputError(
        ErrorCode.WRONG_INPUT,
        f"left is {type(left).__name__}; expected a pyarrow Table or RecordBatchReader, a pandas, Polars or Spark "
        "DataFrame, a DuckDB relation, or another object with an Arrow stream",
    )


def _check_engine(engine: str | None, kind: str, grace: Any) -> None:
    if engine is not None and (not isinstance(engine, str) or engine not in ENGINES):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"engine is {shown(engine)}; expected one of {', '.join(ENGINES)}"
        )
    if engine is not None and (engine == "spark") != (kind == "spark"):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_ENGINE, f"engine {engine!r} cannot join a left side of kind {kind}; leave engine out"
        )
    if grace is not None and kind != "spark":
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            "grace lets rows of a stream wait; a table is complete: leave it out, or use StreamTableJoin",
        )
