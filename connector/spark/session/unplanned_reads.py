"""Reads that Spark's planner does not shape, and how EXPLAIN says why.

Such a read goes through Spark's Python source, whose name is all that it shows in a plan. The source is therefore
registered a second time, under a name that states the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from statestore.connector.spark.source import SOURCE_NAME, StateStoreSource
from statestore.connector.supported_spark import unknown_release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
