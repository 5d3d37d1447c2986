"""Which columns name rows where somebody asks for a key."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from statestore.formats.state_table import StateTable


@runtime_checkable
class ManyRowsAKey(Protocol):
    """A table in which a key may have several rows, with columns that tell them apart."""

    @property
    def named_keys(self) -> tuple[tuple[str, ...], ...]:
        """What may be named, the fewest columns first."""


def named_keys(table: StateTable) -> tuple[tuple[str, ...], ...]:
    """The sets of columns that may be named to look rows up, the fewest first."""
    return table.named_keys if isinstance(table, ManyRowsAKey) else (table.key_columns,)
