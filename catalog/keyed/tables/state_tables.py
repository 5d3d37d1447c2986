"""The states of a keyed store as tables, by name."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry
from statestore.catalog.keyed.tables.keyed_source import KeyedSource, keyed_table
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.engine import Opening
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError


def only_state(opening: Opening, storage: Storage, spec: StoreSpec) -> EngineTable:
    """Return the only state of a keyed store.

    Raises NotFoundError NO_SNAPSHOT, or TABLE_NOT_FOUND, which lists the states if there are several.
    """
    states = state_names(opening)
    if len(states) == 1:
        return keyed_table(opening, spec, states[0])
    if not kept_snapshots(opening):
        raise NotFoundError(
            ErrorCode.NO_SNAPSHOT, f"keyed store {spec.name!r} has no snapshot yet; take and commit one"
        )
    addresses = ", ".join(f"{storage}/{state}" for state in states) or "none"
    raise NotFoundError(
        ErrorCode.TABLE_NOT_FOUND,
        f"{storage} is a keyed store with {len(states)} states; name one of them: {addresses}",
    )


def state_at(opening: Opening, storage: Storage, spec: StoreSpec, state: str) -> EngineTable:
    """Return a state by name, including one that only older snapshots have. Raises NotFoundError TABLE_NOT_FOUND."""
    if state not in state_names(opening, every=True):
        addresses = ", ".join(f"{storage}/{other}" for other in state_names(opening)) or "none"
        raise NotFoundError(
            ErrorCode.TABLE_NOT_FOUND,
            f"no state {state!r} in keyed store {storage}; there are {addresses}; name one of them",
        )
    return keyed_table(opening, spec, state)


def kept_snapshots(opening: Opening) -> Mapping[int, SnapshotEntry]:
    """Return the kept snapshots of a keyed store by version."""
    source = opening.open()
    assert isinstance(source, KeyedSource), "opened as a keyed store"
    return source.kept_snapshots


def state_names(opening: Opening, every: bool = False) -> list[str]:
    """Return the states of the newest kept snapshot, or of all kept snapshots."""
    entries = list(kept_snapshots(opening).values())
    return sorted({s.name for entry in entries[0 if every else -1 :] for part in entry.parts for s in part.states})
