"""Stores and tables by name: `catalog["prices"]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statestore.catalog.reads.results.shown_object import ShowsItself


class NamedItems(ShowsItself):
    """Something that has stores or tables by name, and returns them as a dict would."""

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _item(self, name: str) -> Any:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        return self._item(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __len__(self) -> int:
        return len(self._names())

    def __bool__(self) -> bool:
        """Return True: a warehouse without stores is a warehouse, and to ask for one must not list it."""
        return True

    def _ipython_key_completions_(self) -> list[str]:
        try:
            return self._names()
        except Exception:  # a completion that cannot be made is no completion
            return []
