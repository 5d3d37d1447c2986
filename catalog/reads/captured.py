"""Captured stores as tables: the columns and keys that their state has, and what is said of versions that were gone
before they could be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from statestore.formats.values.times import TICK, format_time

if TYPE_CHECKING:
    from statestore.catalog.log.log_state import LogState
    from statestore.catalog.log.source_versions import Gap
    from statestore.catalog.log.store_spec import Captured, StoreSpec
    from statestore.formats.state_table import Query

NAMED_GAPS = 3
"""The number of gaps that a notice names one by one."""


def hidden_columns(spec: StoreSpec) -> tuple[str, ...]:
    """Return the columns of the store that are no columns of its state, and are read where a query names them."""
    return () if spec.captured is None else spec.captured.hidden


def shown_columns_of(spec: StoreSpec) -> tuple[pa.Schema, pa.Schema]:
    """Return the columns of the state: those that a user calls the key, with those that tell its rows apart, and the
    others.
    """
    if spec.captured is None:
        return spec.key, spec.value
    keys = {*spec.captured.key, *spec.captured.row_key}
    shown = [field for field in (*spec.key, *spec.value) if field.name not in spec.captured.hidden]
    key = [field for field in shown if field.name in keys]
    return pa.schema(key), pa.schema([field for field in shown if field.name not in keys])


def has_own_key(spec: StoreSpec) -> bool:
    """Return whether rows of the state have the key of the store, by which they are placed and looked up."""
    return spec.captured is None or spec.captured.row_key == spec.key_names


def unknown_of(spec: StoreSpec, log_state: LogState, query: Query) -> Sequence[str]:
    """Return why the answer to a query, which may name the versions of the log state, is not what the source had."""
    captured, log = spec.captured, log_state.captured
    if captured is None or log is None:
        return ()
    last = log_state.version if query.mode == "changes" or query.version is None else int(query.version)
    found = _in_words([gap for gap in log_state.gaps if gap.commit <= last and _meets(gap, query)], captured)
    asked = query.as_of if query.mode == "state" else query.start_time
    if asked is not None and asked < log.begins and not captured.own_times:
        found.append(f"its capture begins at {format_time(log.begins)}, and nothing is known of the state before")
    return found


def _meets(gap: Gap, query: Query) -> bool:
    """Return whether a query asks for moments in a gap, or for the changes over it."""
    if query.mode == "state":
        # At the very moment of the version before the gap, the state is that version's.
        asked = query.as_of
        return asked is not None and _since(gap) // TICK < asked // TICK and asked < gap.until
    if query.mode == "changes" and query.start_time is None and query.end_time is None:
        first, last = query.start_version, query.end_version
        return (first is None or first <= gap.commit) and (last is None or gap.commit <= last)
    is_later = query.start_time is not None and query.start_time > gap.until - (query.mode == "history")
    return not is_later and (query.end_time is None or query.end_time >= _since(gap))


def _since(gap: Gap) -> int:
    return -(2**63) if gap.since is None else gap.since


def _in_words(gaps: Sequence[Gap], captured: Captured) -> list[str]:
    found = [gap_in_words(gap, captured) for gap in gaps[:NAMED_GAPS]]
    if len(gaps) > NAMED_GAPS:
        further = len(gaps) - NAMED_GAPS
        found.append(f"{further} later gaps, which the versions of the table show (missing_from, missing_to)")
    return found


def gap_in_words(gap: Gap, captured: Captured) -> str:
    """Return which versions nobody could read, and the moments whose state is not known."""
    one, several = captured.words
    if gap.first == gap.last:
        gone = f"{one} {gap.first} was gone before it"
    else:
        gone = f"{several} {gap.first} to {gap.last} were gone before they"
    when = "before" if gap.since is None else f"after {format_time(gap.since)} and before"
    return f"{gone} could be captured, and nothing is known of the state {when} {format_time(gap.until)}"
