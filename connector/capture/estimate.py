"""An estimate of what a capture would take: the last versions of each state, captured into a temporary warehouse."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statestore.catalog.capture.next_version import kept_versions, versions_behind
from statestore.catalog.capture.step import Step, newest_captured
from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.reads.shown import Facts, ShowsItself
from statestore.connector.capture.looks import Looks, SourceAt
from statestore.connector.terminal import human_bytes
from statestore.formats.engine import Source
from statestore.formats.errors import NotFoundError

MEASURED = 4
"""Versions that are captured for an estimate, the newest ones."""
_DAY = 86_400_000_000


@dataclass(frozen=True)
class StateEstimate:
    """What a capture of one state would do: ``waiting`` versions can be read and are not captured yet.

    ``whole_bytes`` is the size of the state in a store. ``version_bytes`` is what each further version adds, and
    ``day_bytes`` what those of a day add, by the times of the last versions; None where there is only one.
    """

    state: str
    waiting: int
    rows: int
    whole_bytes: int
    version_bytes: int | None = None
    day_bytes: int | None = None

    def __str__(self) -> str:
        found = f"{self.waiting:,} versions to capture; {self.rows:,} rows take {human_bytes(self.whole_bytes)}"
        if self.version_bytes is None or self.day_bytes is None:
            return f"{found}; only one version can be read, so what later ones add is not known"
        added = human_bytes(self.version_bytes)
        return f"{found}, each version about {added} more, {human_bytes(self.day_bytes)} a day"


@dataclass(frozen=True, repr=False)
class Estimate(ShowsItself):
    """The result of `capture` with ``dry_run``: nothing was written to the warehouse."""

    source: str
    states: tuple[StateEstimate, ...] = ()

    def _about(self) -> tuple[str, Facts]:
        return f"estimate of a capture of {self.source}", [(f"state {each.state}", str(each)) for each in self.states]


def estimate(found: SourceAt, chosen: Sequence[str] | None, existing: Catalog | None) -> Estimate:
    """Return what a capture would do; ``existing`` is its warehouse, None where there is none yet.

    The newest versions are captured into a folder of the system's temporary directory. Raises the errors of `capture`.
    """
    source = found.open()
    with tempfile.TemporaryDirectory(prefix="statestore-estimate-") as folder:
        trial = Looks(connect(folder), found, chosen)
        waiting = _waiting(trial, source, existing)
        trial.since = dict(_first_measured(trial, source))
        steps: dict[str, list[Step]] = {}
        try:
            for each in trial.look():
                steps.setdefault(each.state, []).append(each.step)
        finally:
            trial.close()
    states = [_estimated(state, waiting[state], steps[state]) for state in sorted(steps)]
    return Estimate(str(found), tuple(states))


def _waiting(looks: Looks, source: Source, existing: Catalog | None) -> dict[str, int]:
    """Return the versions of each state that can be read and are not captured."""
    found = {}
    for state in looks.states(source):
        taken = None
        if existing is not None:
            try:
                store = existing.open_store(looks.name(source, state), read_only=True)
            except NotFoundError:
                store = None
            if store is not None:
                with store:
                    taken = newest_captured(store)
        found[state] = versions_behind(source, state, taken)
    return found


def _first_measured(looks: Looks, source: Source) -> Iterator[tuple[str, int]]:
    for state in looks.states(source):
        kept = kept_versions(source, state)
        if kept:
            yield state, kept[-MEASURED:][0]


def _estimated(state: str, waiting: int, steps: list[Step]) -> StateEstimate:
    first, later = steps[0], steps[1:]
    whole = StateEstimate(state, waiting, first.rows, first.bytes)
    if not later:
        return whole
    each = sum(step.bytes for step in later) // len(later)
    span = later[-1].source.time - first.source.time
    a_day = each * len(later) * _DAY // span if span > 0 else None
    return StateEstimate(state, waiting, first.rows, first.bytes, each, a_day)
