"""Replacement of methods by `register` in the classes of readers and writers of Spark, classic and Connect.

The methods that name a source, ``format`` among them, lead the name "statestore" to this package's source. A read that
Spark's planner does not shape goes through Spark's Python source, whose name is all that it shows in a plan. The source
is therefore registered a second time, under a name that states the reason.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from statestore.connector.options import SESSION_TIME_ZONE, stream_query_of
from statestore.connector.spark.intervals import with_intervals
from statestore.connector.spark.location import PROVIDERS, client_path, no_catalog_table, session_settings
from statestore.connector.spark.session.sql_text import in_session_catalog
from statestore.connector.spark.source import BUILTIN, SOURCE_NAME, StateStoreSource
from statestore.connector.spark.writer import update_writer
from statestore.connector.supported_spark import unknown_release
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Methods: TypeAlias = dict[str, Callable[..., Any]]
"""Methods of a class of Spark by name."""

NAME = "statestore"
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

_LAYOUT = ("partitionBy", "bucketBy", "sortBy", "clusterBy")  # of a DataFrameWriter

SourceNamed: TypeAlias = Callable[[Any, str], str]
"""Returns the name of the source, for a session and the reason why a read is not planned."""


def route_readers_and_writers(originals: dict[type, Methods], source_named: SourceNamed) -> None:
    """Replace the methods that name a source; ``originals`` gets the methods to restore."""
    for module, name in CLASSES:
        # A Connect session has imported its modules. Importing them where Connect's packages are missing ends the
        # process.
        if module not in sys.modules and ".connect." in module:
            continue
        owner = getattr(importlib.import_module(module), name)
        if owner in originals:
            continue
        methods = {method: getattr(owner, method) for method in _replaced(module, name)}
        originals[owner] = methods
        own = {**_naming(methods), **_reading(methods, name, source_named), **_writing(methods)}
        own |= _streaming(methods, module)
        for method, replacement in own.items():
            if method in methods:
                replacement.__doc__ = methods[method].__doc__
                setattr(owner, method, replacement)
    for module in TABLE_WRITERS:
        # As for readers: Connect's modules are imported where there is such a session.
        if module in sys.modules or ".connect." not in module:
            _route_table_writer(importlib.import_module(module).DataFrameWriterV2, originals)


def _replaced(module: str, name: str) -> tuple[str, ...]:
    if name.endswith("Reader"):
        return ("format", "option", "options", "load", "schema")
    if name == "DataStreamWriter":
        return ("format", "option", "options", "outputMode", "start")
    return ("format", "option", "options", "mode", "save", "saveAsTable", *_LAYOUT)


def _naming(methods: Methods) -> Methods:
    """Return the methods by which a reader or writer is told its source and options."""

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

    return {"format": format, "option": option, "options": options_}


def _reading(methods: Methods, name: str, source_named: SourceNamed) -> Methods:
    """Return the methods of readers; ``name`` is that of the class."""

    def load(self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:
        source = format or getattr(self, "_statestore_source", None)
        if _is_ours(source) and name == "DataFrameReader":
            self._statestore_source = source
            self.options(**options)
            options = {}
        if _names_ours(self, format):
            path = _located(self, path, options)
            # The source plans in another process, which has no session.
            methods["option"](self, SESSION_TIME_ZONE, _session_zone(self))
            _set_session_settings(self, path, options, methods)
            if name == "DataStreamReader":  # otherwise Spark would report errors only after the query has begun
                asked = {**getattr(self, "_statestore_options", {}), **{name: str(v) for name, v in options.items()}}
                stream_query_of({**asked, SESSION_TIME_ZONE: "UTC"})
            if name == "DataFrameReader" and (path is None or isinstance(path, str)):
                reason = why_unplanned(_session(self), schema is not None or hasattr(self, "_statestore_schema"))
                if reason is None:
                    from statestore.connector.spark.planner.planned_table import planned_frame

                    asked = getattr(self, "_statestore_options", {})
                    return with_intervals(planned_frame(self._spark, path or asked.get("path"), asked))
                methods["format"](self, source_named(_session(self), reason))
                return with_intervals(methods["load"](self, path, None, schema, **options))
            return with_intervals(methods["load"](self, path, format, schema, **options))
        return methods["load"](self, path, format, schema, **options)

    def schema_(self: Any, schema: Any) -> Any:
        self._statestore_schema = True
        return methods["schema"](self, schema)

    return {"load": load, "schema": schema_}


def _writing(methods: Methods) -> Methods:
    """Return the methods of batch writers."""

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
        if _names_ours(self, format):
            asked = mode or getattr(self, "_statestore_write_mode", None)
            _check_write_mode(asked)
            path = _located(self, path, given)
            if _is_written_whole(self, asked, partitionBy):
                from statestore.connector.spark.frame_writer import save_frame

                self.options(**given, **({} if path is None else {"path": path}))
                save_frame(self._df, self._statestore_options, str(asked))
                return
            _set_session_settings(self, path, given, methods)
        methods["save"](self, path, format, mode, partitionBy, **given)

    def layout(method: str) -> Callable[..., Any]:
        def laid_out(self: Any, *given: Any, **named: Any) -> Any:
            self._statestore_layout = True
            return methods[method](self, *given, **named)

        return laid_out

    def save_as_table(self: Any, name: str, format: str | None = None, *given: Any, **named: Any) -> None:
        if _names_ours(self, format) and isinstance(name, str):
            _check_table(_session(self), name)
        methods["saveAsTable"](self, name, format, *given, **named)

    layouts = {method: layout(method) for method in _LAYOUT}
    return {"mode": write_mode, "save": save, "saveAsTable": save_as_table, **layouts}


def _streaming(methods: Methods, module: str) -> Methods:
    """Return the methods of stream writers; ``module`` is that of the class."""

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
        if _names_ours(self, format):
            path = _located(self, path, given)
            _set_session_settings(self, path, given, methods)
        if not (_names_ours(self, format) and isinstance(mode, str) and mode.lower() == "update"):
            return methods["start"](self, path, format, outputMode, partitionBy, queryName, **given)
        if ".connect." in module:
            raise UnsupportedError(
                ErrorCode.NO_QUERY_ID,
                "a session of Spark Connect cannot write update mode, because Spark does not report its query there; "
                "write in mode append or complete, or with foreachBatch and the options txnAppId and txnVersion",
            )
        self.options(**given)
        self.outputMode(mode)
        asked = dict(getattr(self, "_statestore_options", {}))
        asked = {**session_settings(_session(self), path or asked.get("path")), **asked}
        self.foreachBatch(update_writer(path, self._df.schema, asked))
        return methods["start"](self, None, None, None, partitionBy, queryName)

    return {"outputMode": output_mode, "start": start}


def _located(owner: Any, path: Any, given: dict[str, Any]) -> Any:
    """Make a relative path absolute in this process: the argument, which is returned, or the option."""
    session, asked = _session(owner), {**getattr(owner, "_statestore_options", {}), **given}
    if isinstance(path, str):
        return client_path(path, session)
    if path is None and isinstance(asked.get("path"), str):
        given.pop("path", None)
        owner.option("path", client_path(asked["path"], session))
    return path


def _set_session_settings(owner: Any, path: Any, given: dict[str, Any], methods: Methods) -> None:
    """Set the session's settings of a path in S3 as options, unless they are given."""
    asked = {**getattr(owner, "_statestore_options", {}), **given}
    for key, value in session_settings(_session(owner), path or asked.get("path")).items():
        if key not in asked:
            methods["option"](owner, key, value)


def _names_ours(owner: Any, format: str | None) -> bool:
    source = format or getattr(owner, "_statestore_source", None)
    return _is_ours(source) and not getattr(owner, "_statestore_builtin", False)


def _is_written_whole(writer: Any, mode: Any, partition_by: Any) -> bool:
    """Return whether the driver can write the DataFrame, which it cannot in Spark Connect. Wrong modes and layouts are
    left to Spark, which reports them."""
    spark = getattr(writer, "_spark", None)
    known = isinstance(mode, str) and mode.lower() in ("append", "overwrite")
    plain = partition_by is None and not hasattr(writer, "_statestore_layout")
    return known and plain and is_classic(spark) and unknown_release(spark) is None


def _mode(writer: Any) -> Any:
    return getattr(writer, "_statestore_mode", None)


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


_FOR_NEW_TABLES = ("error", "errorifexists", "default", "ignore")


def _check_write_mode(mode: Any) -> None:
    """Raise InvalidInputError INVALID_OPTION for a mode that writes only where there is no table yet, as Spark's
    default does (None). Spark refuses such a mode to sources in Python by the name of the source."""
    if mode is None or (isinstance(mode, str) and mode.lower() in _FOR_NEW_TABLES):
        found = "errorifexists, the default" if mode is None else mode
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'the mode of this write with format "statestore" is {found}; a store exists before it is written: give '
            '.mode("append"), which adds the rows as one version, or .mode("overwrite"), which makes them the whole '
            "current state",
        )


# ``df.writeTo("t").using("statestore")``: one clear error for a table of Spark's own catalog, as for CREATE TABLE.

TABLE_WRITERS = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")


def _route_table_writer(owner: Any, originals: dict[type, Methods]) -> None:
    if owner in originals:
        return
    start, using_ = owner.__init__, owner.using
    originals[owner] = {"__init__": start, "using": using_}

    @functools.wraps(start)
    def init(self: Any, df: Any, table: str) -> None:
        start(self, df, table)
        self._statestore_target = df.sparkSession, table

    @functools.wraps(using_)
    def using(self: Any, provider: str) -> Any:
        target = getattr(self, "_statestore_target", None)
        if target is not None and isinstance(provider, str) and provider.lower() in PROVIDERS:
            _check_table(*target)
        return using_(self, provider)

    owner.__init__, owner.using = init, using


def _check_table(spark: Any, name: str) -> None:
    """Raise UnsupportedError SESSION_CATALOG for a table of this package in Spark's own catalog."""
    if in_session_catalog(spark, name.split(".")):
        raise no_catalog_table(name)


# Reads that Spark's planner does not shape, and how EXPLAIN says why.

_named: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # by session


def is_classic(spark: object) -> bool:
    """Return whether the session has a JVM of its own, and is not one of Spark Connect."""
    return getattr(spark, "_jsparkSession", None) is not None


def why_unplanned(spark: Any, own_schema: bool) -> str | None:
    """The reason why Spark's planner cannot shape a batch read in a session; None if it can."""
    if not is_classic(spark):
        return "Spark Connect"
    return unknown_release(spark) or ("a schema of its own" if own_schema else None)


def source_named(spark: SparkSession, reason: str) -> str:
    """The name of the data source whose EXPLAIN states a reason. The session must be registered and active."""
    name = f"{SOURCE_NAME} (not planned: {reason})"
    known = _named.setdefault(spark, set())
    if name not in known:
        spark.dataSource.register(type("UnplannedSource", (StateStoreSource,), {"name": classmethod(lambda _: name)}))
        known.add(name)
    return name
