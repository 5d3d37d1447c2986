"""From where on the changes of a table are known, and whether what was told of them can be gone on with."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from statestore.formats.state_table import StateTable


@runtime_checkable
class KnowsChangeStart(Protocol):
    """A table of which changes are known from another version on than of every one after the oldest."""

    def change_start(self) -> int:
        """The version before the first whose changes are known."""


@runtime_checkable
class MayForget(Protocol):
    """A table of which versions may be taken away between others."""

    def check_told(self, version: int) -> None:
        """Raises NotFoundError VERSION_NOT_FOUND if changes that were told up to a version can not be gone on with."""


def change_start(table: StateTable) -> int:
    """The version before the first whose changes are known."""
    return table.change_start() if isinstance(table, KnowsChangeStart) else table.kept_versions()[0]


def check_told(table: StateTable, version: int) -> None:
    """Raises NotFoundError VERSION_NOT_FOUND if changes that were told up to a version can not be gone on with."""
    if isinstance(table, MayForget):
        table.check_told(version)
