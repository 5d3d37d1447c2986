"""Facts about an open store for its text in a terminal and in a notebook, from its log alone."""

from __future__ import annotations

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.results.shown_object import Facts
from statestore.catalog.reads.results.shown_table import shown_columns
from statestore.formats.values.times import format_duration, format_time


def store_title(spec: StoreSpec, storage: Storage) -> str:
    serde = "" if spec.serde == "natural" else f" with serde {spec.serde}"
    return f"{spec.kind} store {spec.name!r}{serde} at {storage}"


def columns_of(spec: StoreSpec) -> Facts:
    """Return the columns of keys and values, and how long they are kept."""
    kept = spec.history_retention if spec.windowing is None else spec.windowing.retention
    facts = [("key", shown_columns(spec.key))]
    if len(spec.value):
        facts.append(("value", shown_columns(spec.value)))
    return facts if kept is None else [*facts, ("kept for", format_duration(kept))]


def contents_of(log_state: LogState) -> Facts:
    """Return what the newest version has."""
    rows = sum(m.rows for m in log_state.segments if not m.tombstone and m.role != "belief")
    oldest = 0 if log_state.horizon is None else log_state.horizon.version
    facts = [("versions", f"{oldest} to {log_state.version}"), ("rows", f"{rows}, with those of the past")]
    newest = log_state.stream_time
    return facts if newest is None else [*facts, ("newest moment", format_time(newest))]
