"""State of every engine is compared with itself, and its rows are found by look-ups, whatever types they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path, index
from support.flink.fixtures import fixture, manifest
from support.kafka.applications import unpacked
from support.parameters import mostly_slow

from statestore.catalog.edits.row_sums import row_hashes
from statestore.catalog.edits.verification import columns_of, verify_target
from statestore.catalog.engines.located_states import states_at
from statestore.formats.edits import CopiedFile, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.errors import StateStoreError
from statestore.formats.places.locations import parse_location

KEYS = 5


def snapshot(run: str, place: str) -> Path:
    return fixture(run) / place


def application(name: str) -> Path:
    return unpacked(name) / "state"


FLINK = ("rocksdb", "hashmap", "windows-rocksdb", "windows-hashmap")
PATHS: dict[str, Callable[[], Path]] = {
    **{name: partial(checkpoint_path, name) for name in index()},
    **{
        f"flink {run} {place['path'][-12:]}": partial(snapshot, run, place["path"])
        for run in FLINK
        for place in manifest(run)["snapshots"][-2:]
    },
    **{f"kafka {name}": partial(application, name) for name in ("orders", "bookings", "ledger")},
}
CHOSEN = [
    "spark4.3.0-agg__hdfs", "spark4.3.0-join__rkj4", "spark4.3.0-twsttl__rkav", "kafka ledger",
    next(name for name in PATHS if name.startswith("flink windows-rocksdb")),
]  # fmt: skip


@dataclass(frozen=True)
class Itself(EditPlan):
    """A plan whose target is the source."""

    number: int
    source: Source

    @property
    def version(self) -> int:
        return self.number

    @property
    def target_version(self) -> int:
        return self.number

    def copied(self) -> Iterator[CopiedFile]:
        return iter(())

    def parts(self) -> Sequence[Any]:
        return ()

    def written_bytes(self) -> int:
        return 0

    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        return {}

    def finish(self, target: Target) -> Mapping[str, int]:
        return {}

    def opened(self, path: str) -> Source:
        return self.source


def opened(name: str) -> Source:
    states = states_at(parse_location(PATHS[name]()))
    assert states is not None
    return states.source


def some_units(source: Source, state: str, version: int) -> StateEdit | None:
    """An edit that removes and adds all rows of a few keys; None for a state without rows or key."""
    info, at, names = source.info(state), source.at(state, version), columns_of(source, state, version).names
    unit = tuple(name for name in info.row_key or info.key if name not in info.placement)
    batches = [batch.select(names) for part in at.parts(()) for batch in at.rows(part, at.schema.names, ())]
    if not unit or not any(batch.num_rows for batch in batches):
        return None
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    units = row_hashes(rows, unit)
    chosen = np.unique(units)[:: -(-len(np.unique(units)) // KEYS)]
    mine = pa.Table.from_batches([rows.take(pa.array(np.flatnonzero(np.isin(units, chosen))))])
    return StateEdit(state, unit, mine, mine)


def verify(source: Source, version: int, edits: Sequence[StateEdit]) -> list[str]:
    return verify_target(Itself(version, source), source, "", edits, "the target", lambda rows: None)


@pytest.mark.parametrize("name", mostly_slow(PATHS, quick=CHOSEN))
def test_state_differs_from_itself_by_nothing(name: str) -> None:
    source, edits = opened(name), list[StateEdit]()
    version = source.newest(source.states()[0])
    for state in source.states():
        found = some_units(source, state, version)
        edits += [] if found is None else [found]
    assert edits and verify(source, version, edits) == []
    edit = edits[0]
    missing = StateEdit(edit.state, edit.unit, edit.removed, edit.added.slice(1))
    with pytest.raises(StateStoreError, match=rf"EDIT_DIFFERS.*state {edit.state} has a row that it must not have"):
        verify(source, version, [missing])
