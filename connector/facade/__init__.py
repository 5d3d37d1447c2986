"""Time-travel tables for stream-processor state.

This module holds the public names only. Spark, DuckDB and other libraries are loaded when a call needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from statestore.catalog.catalog import Catalog, connect
    from statestore.catalog.checks.verification import verify
    from statestore.catalog.joins.stream_table import StreamTableJoin
    from statestore.catalog.joins.table_aggregation import TableAggregation, count_by
    from statestore.catalog.joins.table_side import Emitted
    from statestore.catalog.joins.table_table import TableTableJoin
    from statestore.catalog.keyed.backend import KeyedBackend
    from statestore.catalog.keyed.keyed_store import KeyedStore
    from statestore.catalog.stores.live.join_window import JoinWindowStore
    from statestore.catalog.stores.live.key_value import KeyValueStore
    from statestore.catalog.stores.live.session import SessionStore
    from statestore.catalog.stores.live.window import WindowStore
    from statestore.catalog.stores.versioned.records import PutResult, Record
    from statestore.catalog.stores.versioned.versioned_store import VersionedStore
    from statestore.catalog.warehouse import inspect
    from statestore.connector.asof.join import asof_join
    from statestore.connector.duckdb.attach import attach
    from statestore.connector.keyed.run import run_keyed
    from statestore.connector.keyed.stream import run_keyed_stream
    from statestore.connector.report.write import write_report
    from statestore.connector.spark.register import register, unregister
    from statestore.connector.sql.query import sql
    from statestore.connector.tracked.spec import StateSpec
    from statestore.connector.tracked.state import State
    from statestore.connector.tracked.track import track_state_by_key

_WHERE = {
    "Catalog": ("statestore.catalog.catalog", "Catalog"),
    "Emitted": ("statestore.catalog.joins.table_side", "Emitted"),
    "JoinWindowStore": ("statestore.catalog.stores.live.join_window", "JoinWindowStore"),
    "KeyedBackend": ("statestore.catalog.keyed.backend", "KeyedBackend"),
    "KeyedStore": ("statestore.catalog.keyed.keyed_store", "KeyedStore"),
    "KeyValueStore": ("statestore.catalog.stores.live.key_value", "KeyValueStore"),
    "PutResult": ("statestore.catalog.stores.versioned.records", "PutResult"),
    "Record": ("statestore.catalog.stores.versioned.records", "Record"),
    "SessionStore": ("statestore.catalog.stores.live.session", "SessionStore"),
    "State": ("statestore.connector.tracked.state", "State"),
    "StateSpec": ("statestore.connector.tracked.spec", "StateSpec"),
    "StreamTableJoin": ("statestore.catalog.joins.stream_table", "StreamTableJoin"),
    "TableAggregation": ("statestore.catalog.joins.table_aggregation", "TableAggregation"),
    "TableTableJoin": ("statestore.catalog.joins.table_table", "TableTableJoin"),
    "VersionedStore": ("statestore.catalog.stores.versioned.versioned_store", "VersionedStore"),
    "WindowStore": ("statestore.catalog.stores.live.window", "WindowStore"),
    "asof_join": ("statestore.connector.asof.join", "asof_join"),
    "attach": ("statestore.connector.duckdb.attach", "attach"),
    "connect": ("statestore.catalog.catalog", "connect"),
    "count_by": ("statestore.catalog.joins.table_aggregation", "count_by"),
    "inspect": ("statestore.catalog.warehouse", "inspect"),
    "register": ("statestore.connector.spark.register", "register"),
    "run_keyed": ("statestore.connector.keyed.run", "run_keyed"),
    "run_keyed_stream": ("statestore.connector.keyed.stream", "run_keyed_stream"),
    "sql": ("statestore.connector.sql.query", "sql"),
    "track_state_by_key": ("statestore.connector.tracked.track", "track_state_by_key"),
    "unregister": ("statestore.connector.spark.register", "unregister"),
    "write_report": ("statestore.connector.report.write", "write_report"),
    "verify": ("statestore.catalog.checks.verification", "verify"),
}

# Names whose modules import PySpark.
_NEED_SPARK = ("register", "run_keyed", "run_keyed_stream", "track_state_by_key", "unregister")

__all__ = [
    "Catalog",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "Emitted",
    "InvalidInputError",
    "JoinWindowStore",
    "KeyValueStore",
    "KeyedBackend",
    "KeyedStore",
    "NotFoundError",
    "PutResult",
    "ReadOnlyError",
    "Record",
    "SessionStore",
    "State",
    "StateSpec",
    "StateStoreError",
    "StorageError",
    "StreamTableJoin",
    "TableAggregation",
    "TableTableJoin",
    "UnsupportedError",
    "VersionedStore",
    "WindowStore",
    "asof_join",
    "attach",
    "connect",
    "count_by",
    "inspect",
    "register",
    "run_keyed",
    "run_keyed_stream",
    "sql",
    "track_state_by_key",
    "unregister",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module 'statestore' has no attribute {name!r}") from None
    if name in _NEED_SPARK:
        from statestore.connector.supported_spark import stand_in

        refusing = stand_in()
        if refusing is not None:
            return refusing
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
