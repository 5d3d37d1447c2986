"""The base of all readers of an engine's files: parts, and the explanation of errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from statestore.formats.errors import CorruptError, StateStoreError


class Part(Protocol):
    """A small picklable piece of the rows of one state."""

    @property
    def rows(self) -> int | None:
        """Upper bound of the rows in it; None: unknown until it is read."""


class Reader:
    """An object that reads files which a running engine may replace: a source, a state at a version, or changes."""

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        """The error to raise in place of ``error``, from a look at the directory as it is now; by default the same.

        ``error`` is of a missing, shorter or unreadable file. VERSION_GONE says that the engine has replaced one of the
        ``versions``, or any of the source's where none are given, by a newer one. The question is then asked again: of
        the source opened anew, or of the same one where it is pinned, which from then on leaves out the lost version.
        """
        return error

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        """The error to raise in place of ``error``, with what can be read in spite of the damage; by default the
        same.
        """
        return error
