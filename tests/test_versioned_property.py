"""Random histories against the plain-Python model: every answer at every state time and every version, together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from versioned_checks import HORIZON, as_table, check_everything, check_points, create
from versioned_model import Model

import statestore
from statestore.catalog.commits import new_files
from statestore.catalog.upkeep import compaction, maintenance

DEEP = "STATESTORE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "40"))
STEP = 1 if DEEP else 3  # of the state times that every answer is asked for

keys = st.sampled_from(["a", "b", "c"])
values = st.one_of(st.none(), st.integers(0, 9))
times = st.integers(0, HORIZON - 1)
puts = st.tuples(keys, values, times)
steps = st.one_of(
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("put_all"), st.lists(puts, max_size=6)),
    st.tuples(st.just("write"), st.lists(puts, min_size=1, max_size=6)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("reopen"), st.none()),
)


@pytest.fixture(autouse=True, scope="module")
def small_thresholds() -> Iterator[None]:
    """Thresholds for millions of rows, made small enough that a dozen rows reach every path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SEAL_MIN_ROWS", 3)
        patch.setattr(compaction, "MINOR_DELTAS", 3)
        patch.setattr(compaction, "LATE_MIN_ROWS", 2)
        patch.setattr(compaction, "BELIEF_FILES", 2)
        patch.setattr(maintenance, "SEAL_MIN_ROWS", 3)
        patch.setattr(maintenance, "MINOR_DELTAS", 3)
        patch.setattr(new_files, "INDEX_MIN_ROWS", 4)
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
        """Versions that compactions took hold what the version before them held."""
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


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=1, max_size=40), st.sampled_from([None, None, 5, 0]), st.booleans())
def test_random_history(program: list[tuple[str, Any]], retention: int | None, auto_compact: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, retention, auto_compact)
        for name, argument in program:
            pair.step(name, argument)
        check_points(pair.store, pair.model)
        pair.step("commit", None)
        check_everything(pair.store, pair.model, STEP)
        pair.step("compact", True)
        check_everything(pair.store, pair.model, STEP)
        pair.store.close()
