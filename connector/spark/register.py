"""`register(spark)`: the name "statestore" in the readers and writers of Spark sessions, classic and Connect.

Spark's own state source owns that name in the JVM, so ours is the data source ``arrow_statestore`` and the name is
routed to it where Python code says it: in ``format`` of the readers and writers. SQL says ``USING arrow_statestore``.
The built-in one stays reachable by ``option("provider", "builtin")`` and by its class name.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from statestore.connector.options import FILTER_PUSHDOWN, SESSION_TIME_ZONE
from statestore.connector.spark.source import SOURCE_NAME, StateStoreSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "statestore"
BUILTIN = "org.apache.spark.sql.execution.datasources.v2.state.StateDataSource"
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
ZONE_CONF = "spark.sql.session.timeZone"

CLASSES = (
    ("pyspark.sql.readwriter", "DataFrameReader"),
    ("pyspark.sql.readwriter", "DataFrameWriter"),
    ("pyspark.sql.streaming.readwriter", "DataStreamReader"),
    ("pyspark.sql.streaming.readwriter", "DataStreamWriter"),
    ("pyspark.sql.connect.readwriter", "DataFrameReader"),
    ("pyspark.sql.connect.readwriter", "DataFrameWriter"),
    ("pyspark.sql.connect.streaming.readwriter", "DataStreamReader"),
    ("pyspark.sql.connect.streaming.readwriter", "DataStreamWriter"),
)

_originals: dict[type, dict[str, Callable[..., Any]]] = {}


def register(spark: SparkSession) -> None:
    """Make ``format("statestore")`` mean our source. Calling it again does nothing more; `unregister` takes it back.

    Also switches on the pushdown of filters to Python sources and has Spark's workers run this interpreter.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    context = getattr(spark, "_sc", None)
    if context is not None:
        context.pythonExec = sys.executable
    if spark.conf.get(PUSHDOWN_CONF, "false") != "true":
        spark.conf.set(PUSHDOWN_CONF, "true")
    spark.dataSource.register(StateStoreSource)
    for module, name in CLASSES:
        _route(module, name)


def unregister(spark: SparkSession) -> None:
    """Give the name back to Spark's own source, in all sessions, and switch filter pushdown off in this one."""
    for owner, methods in _originals.items():
        for name, method in methods.items():
            setattr(owner, name, method)
    _originals.clear()
    spark.conf.unset(PUSHDOWN_CONF)


def _route(module: str, name: str) -> None:
    try:
        owner = getattr(importlib.import_module(module), name)
    except ImportError:  # Spark Connect needs packages that a classic installation has not
        return
    if owner in _originals:
        return
    reads = name.endswith("Reader")
    methods = {method: getattr(owner, method) for method in ("format", "option", "options")}
    _originals[owner] = methods

    def format(self: Any, source: str) -> Any:
        self._statestore_source = source
        if not isinstance(source, str) or source.lower() not in (NAME, SOURCE_NAME):
            return methods["format"](self, source)
        if source.lower() == NAME and getattr(self, "_statestore_builtin", False):
            return methods["format"](self, BUILTIN)
        methods["format"](self, SOURCE_NAME)
        if reads:
            for key, value in _session_options(self).items():
                methods["option"](self, key, value)
        return self

    def option(self: Any, key: str, value: Any) -> Any:
        if key.lower() == "provider" and str(value).lower() == "builtin":
            self._statestore_builtin = True
            return format(self, self._statestore_source) if hasattr(self, "_statestore_source") else self
        return methods["option"](self, key, value)

    def options(self: Any, **given: Any) -> Any:
        for key, value in given.items():
            option(self, key, value)
        return self

    for replacement in (format, option, options):
        replacement.__doc__ = methods[replacement.__name__].__doc__
        setattr(owner, replacement.__name__, replacement)


def _session_options(reader: Any) -> dict[str, str]:
    """What the source must know of the session: its planning runs in another process."""
    from pyspark.sql import SparkSession

    session = getattr(reader, "_spark", None) or SparkSession.getActiveSession()
    if session is None or not hasattr(session, "conf"):
        return {}
    pushdown = str(session.conf.get(PUSHDOWN_CONF, "false"))
    return {SESSION_TIME_ZONE: str(session.conf.get(ZONE_CONF)), FILTER_PUSHDOWN: pushdown}
