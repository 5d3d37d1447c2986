"""Where what is known of a table begins, and whether a stream of its changes can resume after a given version."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from statestore.formats.state_table import StateTable


@runtime_checkable
class KnowsChangeStart(Protocol):
    """A table of which changes are known from another version on than of every one after the oldest."""

    def change_start(self) -> int:
        """The version before the first whose changes are known."""


@runtime_checkable
class KnowsSince(Protocol):
    """A table of which older states may be gone, so that its history begins with rows of unknown age."""

    def known_from(self, version: int) -> int | None:
        """The first state time (epoch microseconds) that the history up to a version knows of; None: all of them."""


@runtime_checkable
class MayForget(Protocol):
    """A table of which versions may be taken away between others."""

    def check_told(self, version: int) -> None:
        """Raises NotFoundError VERSION_NOT_FOUND if changes that were told up to a version can not be gone on with."""


def change_start(table: StateTable) -> int:
    """The version before the first whose changes are known."""
    return table.change_start() if isinstance(table, KnowsChangeStart) else table.kept_versions()[0]


def known_from(table: StateTable, version: int) -> int | None:
    """The first state time (epoch microseconds) of which the state is known, as of a version; None: all of them."""
    return table.known_from(version) if isinstance(table, KnowsSince) else None


def check_told(table: StateTable, version: int) -> None:
    """Raises NotFoundError VERSION_NOT_FOUND if changes that were told up to a version can not be gone on with."""
    if isinstance(table, MayForget):
        table.check_told(version)
