"""`register(spark)`: the name "statestore" in the readers and writers of Spark sessions, classic and Connect.

Spark's own state source owns that name in the JVM. This package's data source is ``arrow_statestore``, and the name is
routed to it in ``format`` of the readers and writers in Python, and in ``USING statestore`` of temporary views. The
built-in source remains available by ``option("provider", "builtin")`` and by its class name.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from statestore.connector.spark.session.readers_and_writers import is_classic, route_readers_and_writers, source_named
from statestore.connector.spark.session.sql_text import route_sql
from statestore.connector.spark.source import SOURCE_NAME, StateStoreSource
from statestore.connector.supported_spark import check_is_session, check_session, no_catalog, unknown_release
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
INTERPRETER = "PYSPARK_PYTHON"

_originals: dict[type, dict[str, Callable[..., Any]]] = {}
_undo: WeakKeyDictionary[Any, list[Callable[[], Any]]] = WeakKeyDictionary()  # by session


def register(
    spark: SparkSession, path: str | os.PathLike[str] | None = None, name: str = "state", **options: Any
) -> None:
    """Make ``format("statestore")`` name this package's data source, and the tables at ``path`` those of a catalog.

    With a ``path`` (a warehouse, a store, or the state of an engine), Spark SQL reads its tables as ``state.prices``,
    also ``TIMESTAMP AS OF`` and ``VERSION AS OF``; ``name`` is the name of the catalog, and several paths may have one
    each. ``options`` are those of engines that select state, such as ``operator_id=1``. The catalog belongs to this
    session: `SparkSession.newSession` starts without it.

    A second call has no effect; `unregister` reverts it. Spark does not offer update mode to sinks written in Python.
    Here it works, because such a stream is written batch by batch. The call also switches on the pushdown of filters to
    Python sources and makes Spark's workers run this interpreter. The interpreter of a Spark Connect server is its own;
    it must have this package.

    In a release of Spark that this package does not know, reads go through Spark's Python source, which EXPLAIN states,
    and a catalog comes with a RuntimeWarning.

    Raises UnsupportedError UNSUPPORTED_SPARK before Spark 4.1, for a path in a session of Spark Connect or of a release
    without the classes that a catalog needs, or if the server lacks this package; InvalidInputError INVALID_NAME, and
    the errors of `inspect` for the path.
    """
    check_session(spark)
    if path is not None and not is_classic(spark):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SPARK,
            "a session of Spark Connect takes no catalog; use statestore.sql(path, query, spark=spark), or "
            "spark.read.format('arrow_statestore')",
        )
    if spark not in _undo:
        check_workers(spark)
        _undo[spark] = [_use_this_interpreter(spark), _push_filters(spark), _show_errors(spark)]
    with _active(spark):
        try:
            spark.dataSource.register(StateStoreSource)
        except PySparkException as error:
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(
                error
            ):  # if it does, Spark has found the installed package by itself
                raise
    route_readers_and_writers(_originals, _source_named)
    route_sql(_originals)
    if path is not None:
        put_catalog = _putting_catalogs(spark)
        _undo[spark].append(put_catalog(spark, path, name, engine_options_of("register", options)))


def unregister(spark: SparkSession) -> None:
    """Give the name back to Spark's own source in all sessions, and restore the settings of this session."""
    check_is_session(spark)
    for undo in reversed(_undo.pop(spark, [])):
        undo()
    for owner, methods in _originals.items():
        for name, method in methods.items():
            setattr(owner, name, method)
    _originals.clear()


@contextlib.contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make the session the thread's active one, because Spark looks there for an existing source of that name,
    whichever session is called."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:  # Spark Connect: the server has the session
        yield
        return
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _use_this_interpreter(spark: SparkSession) -> Callable[[], Any]:
    context: Any = getattr(spark, "_sc", None)
    before, executable = os.environ.get(INTERPRETER), getattr(context, "pythonExec", None)
    os.environ[INTERPRETER] = sys.executable
    if context is not None:  # a Connect client cannot choose the interpreter of its server
        context.pythonExec = sys.executable

    def undo() -> None:
        if before is None:
            os.environ.pop(INTERPRETER, None)
        else:
            os.environ[INTERPRETER] = before
        if context is not None:
            context.pythonExec = executable

    return undo


def _push_filters(spark: SparkSession) -> Callable[[], Any]:
    before = spark.conf.get(PUSHDOWN_CONF, None)
    spark.conf.set(PUSHDOWN_CONF, "true")
    return lambda: spark.conf.unset(PUSHDOWN_CONF) if before is None else spark.conf.set(PUSHDOWN_CONF, before)


def _show_errors(spark: SparkSession) -> Callable[[], Any]:
    """Let PySpark report what Python objects throw in the JVM. A client of Spark Connect has neither JVM nor py4j."""
    if not is_classic(spark) or unknown_release(spark) is not None:
        return lambda: None
    from statestore.connector.spark.jvm import show_undeclared

    return show_undeclared()


def _putting_catalogs(spark: SparkSession) -> Callable[..., Callable[[], None]]:
    """The function that puts a catalog into a session. It imports private modules of PySpark.

    Raises UnsupportedError UNSUPPORTED_SPARK for an unknown release that does not have them.
    """
    try:
        from statestore.connector.spark.session.session_catalogs import put_catalog
    except ImportError as error:
        reason = unknown_release(spark)
        if reason is None:
            raise
        raise no_catalog(reason, [str(error)]) from error
    return put_catalog


def _source_named(session: Any, reason: str) -> str:
    """The source under a name that states why a read is not planned; under its own in a session without `register`."""
    if session not in _undo:
        return SOURCE_NAME
    with _active(session):
        return source_named(session, reason)


# Spark Connect: whether the server's Python workers can run this package.
#
# A client cannot choose their interpreter: it is ``PYSPARK_PYTHON`` of the server's environment when the server starts,
# or ``python3`` on its path. A server without this package would report an error of a pickle, or a worker that died.

_SHOWN = 300  # characters of an error of Spark


class _WorkerCheck(DataSource):
    """A source whose schema the server's workers can say if they can import this module."""

    @classmethod
    def name(cls) -> str:
        return "statestore_worker_check"

    def schema(self) -> str:
        return "works boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError


def check_workers(spark: SparkSession) -> None:
    """Raise UnsupportedError UNSUPPORTED_SPARK if the workers of a Connect server cannot import this package."""
    if hasattr(spark, "_jsparkSession"):  # a classic session, whose workers `register` chooses
        return
    spark.dataSource.register(_WorkerCheck)
    try:
        _ = spark.read.format(_WorkerCheck.name()).load().schema
    except PySparkException as error:
        lines = [line.strip() for line in str(error).partition("\nJVM stacktrace")[0].splitlines()]
        said = [line for line in lines if line and not line.startswith("SQLSTATE")]
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SPARK,
            "the Python workers of this Spark Connect server cannot load statestore "
            f"({said[-1][:_SHOWN] if said else 'no reason is given'}); install it for their interpreter, or set "
            f"PYSPARK_PYTHON before the server starts, here to {sys.executable}",
        ) from error
