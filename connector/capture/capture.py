"""`capture`: follows a job's state and keeps each version of it as a version of stores of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, overload

from statestore.catalog.capture.step import newest_captured
from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.reads.shown import Facts, ShowsItself
from statestore.connector.capture.estimate import Estimate, estimate
from statestore.connector.capture.following import CaptureEvent, Following
from statestore.connector.capture.looks import Looks, SourceAt
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import column_names
from statestore.formats.values.times import duration_ms

Duration = int | timedelta | str


@dataclass(frozen=True)
class CapturedState:
    """What one call of `capture` did for a state: how many ``versions``, and the ``newest`` that ``store`` has now."""

    state: str
    store: str
    versions: int = 0
    first: int | None = None
    newest: int | None = None
    rows: int = 0
    tombstones: int = 0
    bytes: int = 0
    missing: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        if not self.versions:
            return "no version yet" if self.newest is None else f"nothing new, version {self.newest} is the newest"
        gaps = "".join(f", {first} to {last} missing" for first, last in self.missing)
        return (
            f"{self.versions:,} versions, {self.first} to {self.newest}{gaps}, in store {self.store}: "
            f"{self.rows:,} rows put, {self.tombstones:,} removed"
        )


@dataclass(frozen=True, repr=False)
class Captures(ShowsItself):
    """The result of `capture`: what it did for each state of ``source``."""

    source: str
    warehouse: str
    states: tuple[CapturedState, ...] = ()

    @property
    def versions(self) -> int:
        """Return the number of commits that were made."""
        return sum(each.versions for each in self.states)

    def _about(self) -> tuple[str, Facts]:
        facts = [(f"state {each.state}", str(each)) for each in self.states]
        return f"capture of {self.source} into {self.warehouse}", facts


@overload
def capture(
    source: str | os.PathLike[str],
    warehouse: str | os.PathLike[str] | Catalog,
    *,
    states: Sequence[str] | str | None = None,
    follow: Literal[False] = False,
    keep: Duration | None = None,
    dry_run: Literal[False] = False,
    **options: Any,
) -> Captures: ...


@overload
def capture(
    source: str | os.PathLike[str],
    warehouse: str | os.PathLike[str] | Catalog,
    *,
    states: Sequence[str] | str | None = None,
    dry_run: Literal[True],
    **options: Any,
) -> Estimate: ...


@overload
def capture(
    source: str | os.PathLike[str],
    warehouse: str | os.PathLike[str] | Catalog,
    *,
    states: Sequence[str] | str | None = None,
    follow: Literal[True],
    every: Duration = "30s",
    keep: Duration | None = None,
    **options: Any,
) -> Following: ...


def capture(
    source: str | os.PathLike[str],
    warehouse: str | os.PathLike[str] | Catalog,
    *,
    states: Sequence[str] | str | None = None,
    follow: bool = False,
    every: Duration = "30s",
    keep: Duration | None = None,
    dry_run: bool = False,
    **options: Any,
) -> Captures | Following | Estimate:
    """Keep the past of a job's state: each version of ``source`` becomes a version of stores in ``warehouse``.

    ``source`` is whatever `inspect` opens that an engine writes: a Spark checkpoint, a job's Flink checkpoints, a
    Kafka Streams directory or its changelogs, local or in an object store. Nothing is written or locked there. Each
    state becomes a versioned store of its own name, made with the first capture, whose ``valid_from`` is the engine's
    time of the version. Every version that can be read and is not captured yet is, oldest first, each in one commit; a
    call that is repeated, or dies and is repeated, captures nothing twice. Versions that the engine removed before are
    a gap: the stores say which, and reads inside it get a notice.

    ``states`` are the names of states to capture, by default all. ``follow``: return a `Following`, which goes on
    looking ``every`` so often until it is stopped. ``keep``: what ended longer ago is removed on the way. ``dry_run``:
    write nothing to the warehouse, and return an `Estimate` of the disk that is taken in a day. ``options`` are those
    of engines that select state (docs/reference.md).

    Raises the errors of `inspect` and `connect`; ConflictError CAPTURE_CONFLICT for a warehouse with captures of
    another source under these names; UnsupportedError CAPTURE_UNSUPPORTED for state that cannot be captured;
    NotFoundError TABLE_NOT_FOUND, TIME_NOT_KEPT.
    """
    found = SourceAt(os.fspath(source), engine_options_of("capture", options))
    if dry_run:
        return estimate_of(found, warehouse, states)
    if not follow:
        found.find()  # before a warehouse is made for it
    catalog = warehouse if isinstance(warehouse, Catalog) else connect(warehouse)
    looks = Looks(catalog, found, None if states is None else column_names(states, "states"))
    wait = duration_ms(every, "every")
    assert wait is not None, "every is no None"
    following = Following(looks, wait / 1000, duration_ms(keep, "keep"))
    return following if follow else captures_of(following)


def estimate_of(
    found: SourceAt, warehouse: str | os.PathLike[str] | Catalog, states: Sequence[str] | str | None
) -> Estimate:
    """Return what a capture would do. A warehouse that is not there is not made."""
    chosen = None if states is None else column_names(states, "states")
    if isinstance(warehouse, Catalog):
        return estimate(found, chosen, warehouse)
    is_there = not parse_location(warehouse).is_local or Path(warehouse).is_dir()
    return estimate(found, chosen, connect(warehouse) if is_there else None)


def captures_of(following: Following, told: Callable[[CaptureEvent], None] = lambda event: None) -> Captures:
    """Return what one look has done; ``told`` gets each event as it comes."""
    looks, found = following.looks, dict[str, CapturedState]()
    with following:
        for event in following.once():
            told(event)
            if event.state is not None and event.store is not None:
                found[event.state] = _with_event(found.get(event.state, CapturedState(event.state, event.store)), event)
        for state, store in looks.stores.items():
            newest = newest_captured(store)
            known = CapturedState(state, store.spec.name, newest=None if newest is None else newest.version)
            found.setdefault(state, known)
    return Captures(str(looks.found), str(looks.catalog.location), tuple(found[state] for state in sorted(found)))


def _with_event(state: CapturedState, event: CaptureEvent) -> CapturedState:
    if event.kind == "gap" and event.missing is not None:
        return replace(state, missing=(*state.missing, event.missing))
    if event.kind != "captured":
        return state
    return replace(
        state,
        versions=state.versions + 1,
        first=event.version if state.first is None else state.first,
        newest=event.version,
        rows=state.rows + event.rows,
        tombstones=state.tombstones + event.tombstones,
        bytes=state.bytes + event.bytes,
    )
