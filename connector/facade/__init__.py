"""Time-travel tables for stream-processor state.

This module holds the public names that most programs need; `statestore.joins`, `statestore.kafka`,
`statestore.tracked` and `statestore.engines` hold the others. Spark, DuckDB and other libraries are loaded when a call
needs them.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from statestore.catalog.upkeep.ranges.task_runs import TaskRuns, offer_runs
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
from statestore.formats.notices import StateStoreWarning
from statestore.formats.places.interrupts import held_back

if TYPE_CHECKING:
    from statestore import engines as engines
    from statestore import joins as joins
    from statestore import kafka as kafka
    from statestore import tracked as tracked
    from statestore.catalog.catalog import Catalog, connect
    from statestore.catalog.checks.verification import verify
    from statestore.catalog.checks.verify_report import Verification
    from statestore.catalog.keyed.backend import KeyedBackend
    from statestore.catalog.keyed.keyed_store import KeyedStore
    from statestore.catalog.reads.rows import Rows
    from statestore.catalog.reads.table import Table
    from statestore.catalog.stores.live.join_window import JoinWindowStore
    from statestore.catalog.stores.live.key_value import KeyValueStore
    from statestore.catalog.stores.live.session import SessionStore
    from statestore.catalog.stores.live.window import WindowStore
    from statestore.catalog.stores.versioned.versioned_store import PutResult, Record, VersionedStore
    from statestore.catalog.warehouse import Warehouse, inspect
    from statestore.connector.asof.join import asof_join
    from statestore.connector.capture.capture import CapturedState, Captures, capture
    from statestore.connector.capture.estimate import Estimate
    from statestore.connector.capture.following import CaptureEvent, Following
    from statestore.connector.duckdb.attach import attach
    from statestore.connector.edit.edit import Edit, StateRows, edit
    from statestore.connector.edit.preview import Preview
    from statestore.connector.explorer.server import explore
    from statestore.connector.imports.import_keyed import Imported, ImportedState, import_keyed
    from statestore.connector.keyed.run import run_keyed, run_keyed_stream
    from statestore.connector.report.write import write_report
    from statestore.connector.spark.session.register import register, unregister
    from statestore.connector.sql.query import sql
    from statestore.connector.tracked.track import track_state_by_key

    __version__: str

_WHERE = {
    "CaptureEvent": ("statestore.connector.capture.following", "CaptureEvent"),
    "CapturedState": ("statestore.connector.capture.capture", "CapturedState"),
    "Captures": ("statestore.connector.capture.capture", "Captures"),
    "Catalog": ("statestore.catalog.catalog", "Catalog"),
    "Edit": ("statestore.connector.edit.edit", "Edit"),
    "Estimate": ("statestore.connector.capture.estimate", "Estimate"),
    "Following": ("statestore.connector.capture.following", "Following"),
    "Imported": ("statestore.connector.imports.import_keyed", "Imported"),
    "ImportedState": ("statestore.connector.imports.import_keyed", "ImportedState"),
    "JoinWindowStore": ("statestore.catalog.stores.live.join_window", "JoinWindowStore"),
    "KeyedBackend": ("statestore.catalog.keyed.backend", "KeyedBackend"),
    "KeyedStore": ("statestore.catalog.keyed.keyed_store", "KeyedStore"),
    "KeyValueStore": ("statestore.catalog.stores.live.key_value", "KeyValueStore"),
    "Preview": ("statestore.connector.edit.preview", "Preview"),
    "PutResult": ("statestore.catalog.stores.versioned.versioned_store", "PutResult"),
    "Record": ("statestore.catalog.stores.versioned.versioned_store", "Record"),
    "Rows": ("statestore.catalog.reads.rows", "Rows"),
    "SessionStore": ("statestore.catalog.stores.live.session", "SessionStore"),
    "StateRows": ("statestore.connector.edit.edit", "StateRows"),
    "Table": ("statestore.catalog.reads.table", "Table"),
    "Verification": ("statestore.catalog.checks.verify_report", "Verification"),
    "VersionedStore": ("statestore.catalog.stores.versioned.versioned_store", "VersionedStore"),
    "Warehouse": ("statestore.catalog.warehouse", "Warehouse"),
    "WindowStore": ("statestore.catalog.stores.live.window", "WindowStore"),
    "asof_join": ("statestore.connector.asof.join", "asof_join"),
    "attach": ("statestore.connector.duckdb.attach", "attach"),
    "capture": ("statestore.connector.capture.capture", "capture"),
    "connect": ("statestore.catalog.catalog", "connect"),
    "edit": ("statestore.connector.edit.edit", "edit"),
    "explore": ("statestore.connector.explorer.server", "explore"),
    "import_keyed": ("statestore.connector.imports.import_keyed", "import_keyed"),
    "inspect": ("statestore.catalog.warehouse", "inspect"),
    "register": ("statestore.connector.spark.session.register", "register"),
    "run_keyed": ("statestore.connector.keyed.run", "run_keyed"),
    "run_keyed_stream": ("statestore.connector.keyed.run", "run_keyed_stream"),
    "sql": ("statestore.connector.sql.query", "sql"),
    "track_state_by_key": ("statestore.connector.tracked.track", "track_state_by_key"),
    "unregister": ("statestore.connector.spark.session.register", "unregister"),
    "write_report": ("statestore.connector.report.write", "write_report"),
    "verify": ("statestore.catalog.checks.verification", "verify"),
}

# Parts of the public face that are modules of their own, and the names that once stood here and stand there now.
_MODULES = ("engines", "joins", "kafka", "tracked")
_MOVED = {
    "Emitted": "joins",
    "State": "tracked",
    "StateSpec": "tracked",
    "StreamTableJoin": "joins",
    "TableAggregation": "joins",
    "TableTableJoin": "joins",
    "count_by": "joins",
}

# Names whose modules import PySpark.
_NEED_SPARK = ("register", "run_keyed", "run_keyed_stream", "track_state_by_key", "unregister")

__all__ = [
    "CaptureEvent",
    "CapturedState",
    "Captures",
    "Catalog",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "Edit",
    "Estimate",
    "Following",
    "Imported",
    "ImportedState",
    "InvalidInputError",
    "JoinWindowStore",
    "KeyValueStore",
    "KeyedBackend",
    "KeyedStore",
    "NotFoundError",
    "Preview",
    "PutResult",
    "ReadOnlyError",
    "Record",
    "Rows",
    "SessionStore",
    "StateRows",
    "StateStoreError",
    "StateStoreWarning",
    "StorageError",
    "Table",
    "UnsupportedError",
    "Verification",
    "VersionedStore",
    "Warehouse",
    "WindowStore",
    "asof_join",
    "attach",
    "capture",
    "connect",
    "edit",
    "explore",
    "import_keyed",
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


def _upkeep_tasks(session: Any) -> TaskRuns:
    """Return the tasks that a Spark session runs for upkeep."""
    from statestore.connector.supported_spark import check_session

    check_session(session)
    from statestore.connector.spark.upkeep_tasks import UpkeepTasks

    return UpkeepTasks(session)


offer_runs(_upkeep_tasks)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from statestore.connector.version import VERSION

        return VERSION
    if name in _MODULES:
        return importlib.import_module(f"statestore.{name}")
    if name in _MOVED:
        raise _moved(name)
    try:
        module, attribute = _WHERE[name]
    except KeyError:
        raise AttributeError(f"module 'statestore' has no attribute {name!r}") from None
    if name in _NEED_SPARK:
        from statestore.connector.supported_spark import stand_in

        refusing = stand_in()
        if refusing is not None:
            return refusing
    with held_back():  # libraries in C make errors of their own of a Ctrl-C while they are loaded
        value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def _moved(name: str) -> Exception:
    """Return the error for a name that stands in another module.

    ``from statestore import name`` looks the name up first, in a function of the import system. An AttributeError would
    become an ImportError without its text there, so it is an ImportError at once.
    """
    said = f"statestore.{name} is statestore.{_MOVED[name]}.{name}: from statestore.{_MOVED[name]} import {name}"
    importing = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    return ImportError(said) if importing else AttributeError(said)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
