"""Which columns name rows where somebody asks for a key."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from statestore.formats.state_table import StateTable


@runtime_checkable
class NamesRows(Protocol):
    """A table of which further sets of columns may be named than the key and the row key."""

    @property
    def named_keys(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns that may be named, the fewest columns first."""


def named_keys(table: StateTable) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that may be named to look rows up, the fewest first."""
    if isinstance(table, NamesRows):
        return table.named_keys
    return tuple(dict.fromkeys((table.key_columns, table.row_key or table.key_columns)))
