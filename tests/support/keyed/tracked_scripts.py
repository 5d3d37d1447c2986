"""A tracked function that does what each value says, and what its emitted records are compared as."""

from __future__ import annotations

from datetime import datetime

from statestore.connector.tracked.spec import State

Seen = tuple[str, int | None, int | None, bool]
"""Key, value, state before, and whether it was timing out."""


SEEN = {"word": "string", "n": "bigint", "before": "bigint", "out": "boolean"}


LOOK, REMOVE, FAIL = -1, -2, -3
"""Values that do not update."""


def scripted(batch_time: datetime, key: str, n: int | None, state: State) -> Seen:
    """Do what the value selects: look at the state, remove it, fail, or add the value to it."""
    before, out = state.get_option(), state.is_timing_out()
    if n == FAIL:
        raise LookupError("told to")
    if n == REMOVE:
        state.remove()
    elif n is not None and n >= 0:
        state.update((before or 0) + n)
    return key, n, before, out


def ordered(emitted: list[Seen]) -> dict[str, list[Seen]]:
    """Emitted records in comparable order: records of one key are in order, those of several keys in any order."""
    found: dict[str, list[Seen]] = {}
    for each in emitted:
        found.setdefault(each[0], []).append(each)
    return found
