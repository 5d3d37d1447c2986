"""Catalogs put into a session that runs already: Spark keeps loaded catalogs in a map, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from statestore.catalog.warehouse import open_warehouse
from statestore.connector.spark.catalog.place import Place
from statestore.connector.spark.catalog.state_catalog import StateCatalog
from statestore.connector.spark.jvm import Jvm, listen, show_undeclared
from statestore.connector.spark.location import session_settings, with_settings
from statestore.connector.spark.session.private_classes import check_private_classes
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
