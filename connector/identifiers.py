"""Names in SQL text: quoted here and nowhere else, so that any name a store may have comes back as it was."""

from __future__ import annotations


def quoted(identifier: str) -> str:
    """The identifier as DuckDB reads it back, whatever it holds."""
    return '"' + identifier.replace('"', '""') + '"'


def spark_quoted(identifier: str) -> str:
    """The same for Spark."""
    return "`" + identifier.replace("`", "``") + "`"
