"""Names in SQL text. They are quoted only here, so that any name of a store is read back unchanged."""

from __future__ import annotations


def quoted(identifier: str) -> str:
    """The identifier quoted for DuckDB, whatever characters it holds."""
    return '"' + identifier.replace('"', '""') + '"'


def spark_quoted(identifier: str) -> str:
    """The identifier quoted for Spark."""
    return "`" + identifier.replace("`", "``") + "`"
