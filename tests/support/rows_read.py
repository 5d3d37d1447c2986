"""Counting of the rows that reads take from storage, before any filter is applied to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import pytest

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads import split_reading

P = ParamSpec("P")
T = TypeVar("T")


class RowsRead:
    """``rows``: the number that engines decoded, or that were taken from segments, by the read of the last `of`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        for owner, name in ((EngineTable, "_rows"), (split_reading, "_all_rows"), (split_reading, "_looked_up")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def of(self, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return the answer of a read, and count what it takes."""
        self.rows = 0
        return read(*given, **named)

    def _counted(self, read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def counted(*given: Any) -> Iterator[Any]:
            for found in read(*given):
                batch = found[1] if isinstance(found, tuple) else found
                self.rows += batch.num_rows
                yield found

        return counted
