"""``df.writeTo("t").using("statestore")``: one clear error for a table of Spark's own catalog, as for CREATE TABLE."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from statestore.connector.spark.location import PROVIDERS, no_catalog_table
from statestore.connector.spark.session.sql_text import in_session_catalog

MODULES = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")


def route_table_writers(originals: dict[type, dict[str, Callable[..., Any]]]) -> None:
    """Check the provider of ``DataFrame.writeTo``; ``originals`` gets the methods to restore."""
    for module in MODULES:
        # As for readers: Connect's modules are imported where there is such a session.
        if module in sys.modules or ".connect." not in module:
            _route(importlib.import_module(module).DataFrameWriterV2, originals)


def _route(owner: Any, originals: dict[type, dict[str, Callable[..., Any]]]) -> None:
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
            check_table(*target)
        return using_(self, provider)

    owner.__init__, owner.using = init, using


def check_table(spark: Any, name: str) -> None:
    """Raise UnsupportedError SESSION_CATALOG for a table of this package in Spark's own catalog."""
    if in_session_catalog(spark, name.split(".")):
        raise no_catalog_table(name)
