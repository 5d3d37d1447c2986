"""Catalogs put into a session that runs already: Spark keeps loaded catalogs in a map, by name."""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from statestore.catalog.warehouse import open_warehouse
from statestore.connector.spark import catalog, planner
from statestore.connector.spark.catalog.place import Place
from statestore.connector.spark.catalog.state_catalog import StateCatalog
from statestore.connector.spark.jvm import CONNECTOR, REPLACED_WHEN_SENT, JavaObject, Jvm, listen, show_undeclared
from statestore.connector.spark.location import session_settings, with_settings
from statestore.connector.supported_spark import no_catalog, unknown_release
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.places.locations import parse_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD = "catalogs"  # of Spark's CatalogManager
_RESERVED = ("spark_catalog", "system", "global_temp", "session")


def put_catalog(spark: SparkSession, path: Any, name: str, options: Mapping[str, str]) -> Callable[[], None]:
    """Make the tables at ``path`` those of catalog ``name`` in a classic session; return the function that reverts it.

    Raises InvalidInputError INVALID_NAME, UnsupportedError UNSUPPORTED_SPARK for a release that keeps catalogs in
    another way, and the errors of `statestore.inspect` for the path.
    """
    _check_name(name)
    place = Place(_absolute(with_settings(str(path), session_settings(spark, str(path)))), dict(options))
    try:
        open_warehouse(place.path, place.options)
    except NotFoundError as error:
        if error.code != ErrorCode.NOTHING_HERE:
            raise
    jvm = Jvm(spark)
    catalogs = _loaded_catalogs(jvm)
    check_private_classes(jvm)
    listen(jvm)
    hide = show_undeclared() if unknown_release(spark) else None  # known releases have it from `register`
    manager = jvm.session.sessionState().catalogManager()
    catalogs.put(name, StateCatalog(jvm, name, place))

    def remove() -> None:
        if str(manager.currentCatalog().name()) == name:  # Spark could not even leave a catalog that is gone
            manager.setCurrentCatalog(_RESERVED[0])
        catalogs.remove(name)
        if hide is not None:
            hide()

    return remove


def _loaded_catalogs(jvm: Jvm) -> Any:
    """Spark's private map of loaded catalogs. Raises UnsupportedError UNSUPPORTED_SPARK where it is another thing."""
    manager = jvm.session.sessionState().catalogManager()
    try:
        held = manager.getClass().getDeclaredField(_FIELD)
        held.setAccessible(True)
        found = held.get(manager)
        found.put, found.remove  # noqa: B018
    except Exception as error:
        reason = unknown_release(jvm.spark) or f"this Spark {jvm.spark.version} is not Apache's build"
        raise no_catalog(reason, [f"CatalogManager.{_FIELD}"]) from error
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise InvalidInputError(
            ErrorCode.INVALID_NAME,
            f"catalog name {shown(name)}; expected letters, digits and underscores, like state, and none of Spark's "
            f"own names {', '.join(_RESERVED)}",
        )


def _absolute(path: str) -> str:
    from pathlib import Path

    location = parse_location(path)
    return str(Path(location.path).absolute()) if location.is_local else location.uri


# Private classes of Spark that the catalog and the planner need, looked up by reflection.
#
# Known releases of Spark have all of it (`statestore.connector.supported_spark`). In another one,
# `check_private_classes` finds out before a statement does.

_SQL = "org.apache.spark.sql."
_V2 = _SQL + "execution.datasources.v2."
_MAKER = "<init>"
# The class, its method, and the numbers of parameters with which this package calls it.
CALLED = (
    (_V2 + "DataSourceV2Relation", "create", (4, 5)),
    (_V2 + "python.PythonInputPartition", _MAKER, (2,)),
    (_V2 + "python.PythonPartitionReaderFactory", _MAKER, (4, 5)),
    (_V2 + "python.PythonTable", _MAKER, (3,)),
    (_V2 + "python.UserDefinedPythonDataSource", _MAKER, (1,)),
    (_SQL + "api.python.PythonSQLUtils", "readArrowStreamFromFile", (1,)),
    (_SQL + "api.python.PythonSQLUtils", "toDataFrame", (3,)),
    (_SQL + "catalyst.analysis.NoSuchFunctionException", _MAKER, (1,)),
    (_SQL + "catalyst.analysis.NoSuchNamespaceException", _MAKER, (1,)),
    (_SQL + "catalyst.analysis.NoSuchTableException", _MAKER, (1,)),
    (_SQL + "catalyst.analysis.TableAlreadyExistsException", _MAKER, (1,)),
    (_SQL + "catalyst.expressions.GenericInternalRow", _MAKER, (1,)),
    (_SQL + "catalyst.QueryPlanningTracker", "get", (0,)),
    (_SQL + "classic.Dataset", "ofRows", (2,)),
    (_SQL + "classic.Dataset", "toArrowBatchRdd", (0,)),
    (_SQL + "execution.datasources.DataSource", "lookupDataSourceV2", (2,)),
    (_SQL + "AnalysisException", _MAKER, (7,)),
    (CONNECTOR + "expressions.Expressions", "bucket", (2,)),
    (CONNECTOR + "read.partitioning.KeyGroupedPartitioning", _MAKER, (2,)),
    (CONNECTOR + "write.LogicalWriteInfoImpl", _MAKER, (5,)),
)
# Interfaces that only some of the known releases have.
_NEWER = (CONNECTOR + "catalog.Changelog",)
# Spark asks these of scans and writes that say they can do it, or that lack what is asked first.
_UNASKED = frozenset(("toBatch", "toMicroBatchStream", "toContinuousStream", "buildForBatch", "buildForStreaming"))
_STATIC = 8  # java.lang.reflect.Modifier.STATIC


def check_private_classes(jvm: Jvm) -> None:
    """Warn in a release of Spark that is not known. Raises UnsupportedError UNSUPPORTED_SPARK if it lacks something."""
    reason = unknown_release(jvm.spark)
    if reason is None:
        return
    lacking = missing(jvm)
    if lacking:
        raise no_catalog(reason, lacking)
    unanswered = unanswered_methods(jvm)
    also = f"; it has methods that the catalog does not answer: {', '.join(unanswered)}" if unanswered else ""
    warnings.warn(
        f"{reason}, with which the catalog is tested; it is registered and may not work{also}; if a statement fails, "
        f"use statestore.sql(path, query, spark=spark) or spark.read.format('arrow_statestore')",
        RuntimeWarning,
        stacklevel=4,
    )


def missing(jvm: Jvm) -> list[str]:
    """The classes, methods and interfaces that this package uses and the session's Spark does not have."""
    found = [
        f"{_short(name)}.{method}" if method != _MAKER else f"a constructor of {_short(name)}"
        for name, method, counts in CALLED
        if not _counts(_class(jvm, name), method) & set(counts)
    ]
    interfaces = {interface for kind in _proxies() for interface in kind.Java.implements}
    absent = [name for name in sorted(interfaces) if name not in _NEWER and _class(jvm, name) is None]
    return found + [_short(name) for name in absent]


def unanswered_methods(jvm: Jvm) -> list[str]:
    """The methods of Spark's interfaces that the Python objects behind them do not have.

    py4j asks for default methods, too: an object without one fails when Spark calls it.
    """
    found = set()
    for kind in _proxies():
        for interface in kind.Java.implements:
            java = _class(jvm, interface) if interface != REPLACED_WHEN_SENT else None
            methods: list[Any] = [] if java is None else list(java.getMethods())
            for method in methods:
                name = str(method.getName())
                if not method.getModifiers() & _STATIC and not hasattr(kind, name) and name not in _UNASKED:
                    found.add(f"{_short(interface)}.{name}")
    return sorted(found)


def _proxies() -> list[Any]:
    """The Python classes that Spark calls."""
    for package in (catalog, planner):
        _import_all(package)
    return sorted((kind for kind in _subclasses(JavaObject) if hasattr(kind, "Java")), key=lambda kind: kind.__name__)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _class(jvm: Jvm, name: str) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return jvm.kind("java.lang.Class").forName(name)
    except Py4JJavaError:  # no such class
        return None


def _counts(java: Any, method: str) -> set[int]:
    """The numbers of parameters that the overloads of a method take."""
    if java is None:
        return set()
    overloads: list[Any] = list(java.getConstructors() if method == _MAKER else java.getMethods())
    return {len(each.getParameterTypes()) for each in overloads if method in (_MAKER, str(each.getName()))}


def _short(name: str) -> str:
    return name.rpartition(".")[2]
