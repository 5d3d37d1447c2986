"""A versioned store and its model, driven together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import statestore
from statestore.catalog.commits import new_files
from statestore.catalog.reads.lookup import segment_filter
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.background_compaction import background_of
from statestore.catalog.upkeep.compaction_rules import Rules
from support.stores.versioned_checks import HORIZON, as_table, create
from support.stores.versioned_model import Model

TINY = Rules(
    small_store=3, small_fan_in=3, fan_in=2, tier_rows=4, mixed_rows=2, block_rows=2, block_share=0.1, memory=96 * 40
)
"""Rules under which a dozen rows reach every path."""


@pytest.fixture(autouse=True, scope="module")
def small_thresholds() -> Iterator[None]:
    """Thresholds for millions of rows, made small enough that a dozen rows reach every path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_rules, "DEFAULT", TINY)
        patch.setattr(new_files, "INDEX_MIN_ROWS", 4)
        patch.setattr(segment_filter, "SUMS", 2)
        yield


class Pair:
    """The store and the model, driven together."""

    def __init__(self, folder: str, retention: int | None, auto_compact: bool) -> None:
        self.catalog = statestore.connect(folder)
        create(self.catalog, retention=retention).close()
        self.auto_compact = auto_compact
        self.model = Model(retention)
        self.store = self.catalog.open_store("s", auto_compact=auto_compact)

    def step(self, name: str, argument: Any) -> None:
        getattr(self, name)(argument)
        self.follow()

    def follow(self) -> None:
        """Add to the model the versions that compactions took, which hold the rows of the version before them.

        The compaction in the background ends first, so that none takes a version between two operations.
        """
        background_of(self.store._files).finish()
        self.store.refresh()
        while len(self.model.states) <= self.store.version:
            self.model.same_again()
        assert len(self.model.states) == self.store.version + 1

    def put(self, argument: tuple[str, int | None, int]) -> None:
        assert tuple(self.store.put(argument[0], argument[1], timestamp=argument[2])) == self.model.put(*argument)

    def put_all(self, rows: list[tuple[str, int | None, int]]) -> None:
        accepted = sum(self.model.put(*row)[0] for row in rows)
        assert self.store.put_all(as_table(rows)) == (accepted, len(rows) - accepted)

    def write(self, rows: list[tuple[str, int | None, int]]) -> None:
        self.commit(None)
        self.follow()
        for row in rows:
            self.model.put(*row)
        self.store.write(as_table(rows))
        self.model.commit()

    def commit(self, _: None) -> None:
        if self.model.pending or self.store._dropped:
            self.model.commit()
        self.store.commit()

    def compact(self, full: bool) -> None:
        self.store.compact(full=full)

    def reopen(self, _: None) -> None:
        dropped = self.store._dropped
        self.store.close()
        self.store = self.catalog.open_store("s", auto_compact=self.auto_compact)
        self.model.dropped -= dropped  # refusals are recorded by the next commit of the handle that counted them


def random_puts(random: np.random.Generator, keys: Sequence[str]) -> list[tuple[str, int | None, int]]:
    """Return up to eight puts of values and, for every fourth, of deletes, at any times."""
    return [
        (
            keys[int(random.integers(len(keys)))],
            None if random.random() < 0.25 else int(random.integers(10)),
            int(random.integers(HORIZON)),
        )
        for _ in range(int(random.integers(1, 9)))
    ]
