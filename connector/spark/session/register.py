"""`register(spark)`: the name "statestore" in the readers and writers of Spark sessions, classic and Connect.

Spark's own state source owns that name in the JVM. This package's data source is ``arrow_statestore``, and the name is
routed to it in ``format`` of the readers and writers in Python, and in ``USING statestore`` of temporary views. The
built-in source remains available by ``option("provider", "builtin")`` and by its class name.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException

from statestore.connector.options import SESSION_TIME_ZONE, stream_query_of
from statestore.connector.spark.intervals import with_intervals
from statestore.connector.spark.location import client_path
from statestore.connector.spark.s3a import session_settings
from statestore.connector.spark.session.connect_server import check_workers
from statestore.connector.spark.session.sql_text import route_sql
from statestore.connector.spark.session.table_writers import check_table, route_table_writers
from statestore.connector.spark.session.unplanned_reads import is_classic, source_named, why_unplanned
from statestore.connector.spark.session.write_modes import check_write_mode
from statestore.connector.spark.source import SOURCE_NAME, StateStoreSource
from statestore.connector.spark.stream_writer import update_writer
from statestore.connector.supported_spark import check_is_session, check_session, no_catalog, unknown_release
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "statestore"
BUILTIN = "org.apache.spark.sql.execution.datasources.v2.state.StateDataSource"
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
ZONE_CONF = "spark.sql.session.timeZone"
INTERPRETER = "PYSPARK_PYTHON"

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

_LAYOUT = ("partitionBy", "bucketBy", "sortBy", "clusterBy")  # of a DataFrameWriter

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
    for module, owner in CLASSES:
        _route(module, owner)
    route_sql(_originals)
    route_table_writers(_originals)
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


def _route(module: str, name: str) -> None:
    # A Connect session has imported its modules. Importing them where Connect's packages are missing ends the process.
    if module not in sys.modules and ".connect." in module:
        return
    owner = getattr(importlib.import_module(module), name)
    if owner in _originals:
        return
    methods = {method: getattr(owner, method) for method in _replaced(module, name)}
    _originals[owner] = methods

    def format(self: Any, source: str) -> Any:
        self._statestore_source = source
        if not _is_ours(source):
            return methods["format"](self, source)
        builtin = source.lower() == NAME and getattr(self, "_statestore_builtin", False)
        return methods["format"](self, BUILTIN if builtin else SOURCE_NAME)

    def option(self: Any, key: str, value: Any) -> Any:
        vars(self).setdefault("_statestore_options", {})[key.lower()] = str(value)
        if key.lower() == "provider" and str(value).lower() == "builtin":
            self._statestore_builtin = True
            return format(self, self._statestore_source) if hasattr(self, "_statestore_source") else self
        return methods["option"](self, key, value)

    def options_(self: Any, **values: Any) -> Any:
        for key, value in values.items():
            option(self, key, value)
        return self

    def located(self: Any, path: Any, given: dict[str, Any]) -> Any:
        """Make a relative path absolute in this process: the argument, which is returned, or the option."""
        session, asked = _session(self), {**getattr(self, "_statestore_options", {}), **given}
        if isinstance(path, str):
            return client_path(path, session)
        if path is None and isinstance(asked.get("path"), str):
            given.pop("path", None)
            option(self, "path", client_path(asked["path"], session))
        return path

    def set_session_settings(self: Any, path: Any, given: dict[str, Any]) -> None:
        """Set the session's settings of a path in S3 as options, unless they are given."""
        asked = {**getattr(self, "_statestore_options", {}), **given}
        for key, value in session_settings(_session(self), path or asked.get("path")).items():
            if key not in asked:
                methods["option"](self, key, value)

    def ours(self: Any, format: str | None) -> bool:
        source = format or getattr(self, "_statestore_source", None)
        return _is_ours(source) and not getattr(self, "_statestore_builtin", False)

    def load(self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:
        source = format or getattr(self, "_statestore_source", None)
        if _is_ours(source) and name == "DataFrameReader":
            self._statestore_source = source
            options_(self, **options)
            options = {}
        if ours(self, format):
            path = located(self, path, options)
            # The source plans in another process, which has no session.
            methods["option"](self, SESSION_TIME_ZONE, _session_zone(self))
            set_session_settings(self, path, options)
            if name == "DataStreamReader":  # otherwise Spark would report errors only after the query has begun
                asked = {**getattr(self, "_statestore_options", {}), **{name: str(v) for name, v in options.items()}}
                stream_query_of({**asked, SESSION_TIME_ZONE: "UTC"})
            if name == "DataFrameReader" and (path is None or isinstance(path, str)):
                reason = why_unplanned(_session(self), schema is not None or hasattr(self, "_statestore_schema"))
                if reason is None:
                    from statestore.connector.spark.planner.planned_frame import planned_frame

                    asked = getattr(self, "_statestore_options", {})
                    return with_intervals(planned_frame(self._spark, path or asked.get("path"), asked))
                methods["format"](self, _source_named(_session(self), reason))
                return with_intervals(methods["load"](self, path, None, schema, **options))
            return with_intervals(methods["load"](self, path, format, schema, **options))
        return methods["load"](self, path, format, schema, **options)

    def schema_(self: Any, schema: Any) -> Any:
        self._statestore_schema = True
        return methods["schema"](self, schema)

    def write_mode(self: Any, saveMode: str | None) -> Any:
        if saveMode is not None:
            self._statestore_write_mode = saveMode
        return methods["mode"](self, saveMode)

    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **given: Any,
    ) -> None:
        if ours(self, format):
            asked = mode or getattr(self, "_statestore_write_mode", None)
            check_write_mode(asked)
            path = located(self, path, given)
            if _is_written_whole(self, asked, partitionBy):
                from statestore.connector.spark.frame_writer import save_frame

                options_(self, **given, **({} if path is None else {"path": path}))
                save_frame(self._df, self._statestore_options, str(asked))
                return
            set_session_settings(self, path, given)
        methods["save"](self, path, format, mode, partitionBy, **given)

    def layout(method: str) -> Callable[..., Any]:
        def laid_out(self: Any, *given: Any, **named: Any) -> Any:
            self._statestore_layout = True
            return methods[method](self, *given, **named)

        return laid_out

    def save_as_table(self: Any, name: str, format: str | None = None, *given: Any, **named: Any) -> None:
        if ours(self, format) and isinstance(name, str):
            check_table(_session(self), name)
        methods["saveAsTable"](self, name, format, *given, **named)

    def output_mode(self: Any, outputMode: str) -> Any:
        self._statestore_mode = outputMode
        return methods["outputMode"](self, outputMode)

    def start(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,
        queryName: str | None = None,
        **given: Any,
    ) -> Any:
        mode = outputMode or _mode(self)
        if ours(self, format):
            path = located(self, path, given)
            set_session_settings(self, path, given)
        if not (ours(self, format) and isinstance(mode, str) and mode.lower() == "update"):
            return methods["start"](self, path, format, outputMode, partitionBy, queryName, **given)
        if ".connect." in module:
            raise UnsupportedError(
                ErrorCode.NO_QUERY_ID,
                "a session of Spark Connect cannot write update mode, because Spark does not report its query there; "
                "write in mode append or complete, or with foreachBatch and the options txnAppId and txnVersion",
            )
        options_(self, **given)
        self.outputMode(mode)
        asked = dict(getattr(self, "_statestore_options", {}))
        asked = {**session_settings(_session(self), path or asked.get("path")), **asked}
        self.foreachBatch(update_writer(path, self._df.schema, asked))
        return methods["start"](self, None, None, None, partitionBy, queryName)

    own = {"format": format, "option": option, "options": options_, "load": load, "schema": schema_, "save": save}
    own |= {"mode": write_mode, "saveAsTable": save_as_table, "outputMode": output_mode, "start": start}
    own |= {method: layout(method) for method in _LAYOUT}
    for name_, replacement in own.items():
        if name_ in methods:
            replacement.__doc__ = methods[name_].__doc__
            setattr(owner, name_, replacement)


def _source_named(session: Any, reason: str) -> str:
    """The source under a name that states why a read is not planned; under its own in a session without `register`."""
    if session not in _undo:
        return SOURCE_NAME
    with _active(session):
        return source_named(session, reason)


def _is_written_whole(writer: Any, mode: Any, partition_by: Any) -> bool:
    """Return whether the driver can write the DataFrame, which it cannot in Spark Connect. Wrong modes and layouts are
    left to Spark, which reports them."""
    spark = getattr(writer, "_spark", None)
    known = isinstance(mode, str) and mode.lower() in ("append", "overwrite")
    plain = partition_by is None and not hasattr(writer, "_statestore_layout")
    return known and plain and is_classic(spark) and unknown_release(spark) is None


def _mode(writer: Any) -> Any:
    return getattr(writer, "_statestore_mode", None)


def _replaced(module: str, name: str) -> tuple[str, ...]:
    if name.endswith("Reader"):
        return ("format", "option", "options", "load", "schema")
    if name == "DataStreamWriter":
        return ("format", "option", "options", "outputMode", "start")
    return ("format", "option", "options", "mode", "save", "saveAsTable", *_LAYOUT)


def _is_ours(source: Any) -> bool:
    return isinstance(source, str) and source.lower() in (NAME, SOURCE_NAME)


def _session(owner: Any) -> Any:
    """The session of a reader or writer, which is under another name in each class of Spark Connect."""
    named = (getattr(owner, name, None) for name in ("_spark", "_client", "_session"))
    return next((session for session in named if session is not None), None)


def _session_zone(reader: Any) -> str | None:
    """The time zone of a reader's session; None (no option) where it is unknown."""
    session = _session(reader)
    return None if session is None else str(session.conf.get(ZONE_CONF))
