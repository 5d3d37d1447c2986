"""The names that a statement may use: tables with their columns, functions and words of DuckDB."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.sql.engine import sandbox
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import Query
from statestore.formats.values.types import shown_field

_PLAIN = re.compile("[a-z][a-z0-9_]*")
_OUTSIDE = re.compile(
    "read_.*|.*_scan|parquet_.*|sniff_csv|glob|pg_.*|duckdb_.*|pragma_.*|.*checkpoint|enable_.*|disable_.*|which_.*"
    "|write_log|parse_duckdb.*|test_.*|has_.*_privilege|storage_info|query|query_table|set_config|setseed|nextval"
    "|currval|sql_auto_complete|json_execute.*|in_search_path|txid_current|icu_.*|getvariable"
)
"""Functions that need files, or tell about the engine and not about data."""
_FUNCTIONS = """
    SELECT function_name, any_value(function_type), any_value(description),
        arg_min(function_name || '(' || array_to_string(parameters, ', ') || ')', len(parameters))
    FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'table', 'macro', 'table_macro')
    GROUP BY function_name ORDER BY function_name
"""


def names_of(warehouse: Warehouse) -> dict[str, Any]:
    """Return the tables of a place, also those of metadata, and what DuckDB has; all of them in the order to show."""
    return {
        "tables": [
            *({**_table(warehouse, name), "metadata": False} for name in warehouse.tables()),
            *({**_table(warehouse, name), "metadata": True} for name in warehouse.metadata_tables()),
        ],
        **_of_duckdb(),
    }


def _table(warehouse: Warehouse, name: str) -> dict[str, Any]:
    try:
        schema = warehouse.open(name).schema(Query())
    except (StateStoreError, OSError):  # a damaged table has a name all the same
        schema = ()
    return {"name": name, "columns": [{"name": field.name, "type": shown_field(field)} for field in schema]}


@cache
def _of_duckdb() -> dict[str, Any]:
    with sandbox() as connection:
        functions = connection.execute(_FUNCTIONS).fetchall()
        words = connection.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall()
        types = connection.execute("SELECT DISTINCT lower(type_name) FROM duckdb_types()").fetchall()
    return {
        "functions": [
            {"name": name, "kind": kind, "signature": signature or f"{name}()", "description": description or ""}
            for name, kind, description, signature in functions
            if _PLAIN.fullmatch(name) and not _OUTSIDE.fullmatch(name)
        ],
        "words": sorted(word for word, _ in words),
        "reserved": sorted(word for word, category in words if category == "reserved"),
        "types": sorted(name for (name,) in types if _PLAIN.fullmatch(name)),
    }
