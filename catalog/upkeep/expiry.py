"""Expiry: moments before a horizon are refused, and files that hold only such moments are dropped (docs/format.md,
"Expiry").
"""

from __future__ import annotations

import time

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import after_publish, new_entry
from statestore.catalog.log.entries import Horizon, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.values.times import format_time


def check_horizon(log_state: LogState, name: str, horizon_time: int) -> None:
    """Refuse a horizon in the future, before which nothing could be read or written any more, not even what is valid.

    Raises InvalidInputError INVALID_OPTION.
    """
    latest = max(time.time_ns() // 1000, log_state.stream_time_us)
    if horizon_time > latest:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"before is {format_time(horizon_time)}, in the future of {name!r}: no moment until then could be read or "
            f"written; expected {format_time(latest)} or earlier",
        )


def run_expiry(files: SegmentFiles, base: LogState, horizon_time: int) -> LogState:
    """Expire moments before ``horizon_time`` (epoch microseconds): refuse them, and drop files that hold only them."""
    log_state = base
    while True:
        with claim(files.storage):
            log_state = load_log_state(files.storage, base=log_state)
            horizon = _horizon(log_state, horizon_time)
            if horizon is None:
                return log_state
            removed = tuple(m.name for m in log_state.segments if _can_drop(log_state, m, horizon))
            entry = new_entry(log_state, "expire", NewFiles(), removed=removed, horizon=horizon)
            try:
                write_entry(files.storage, entry)
            except ConflictError:
                continue
        return after_publish(files.storage, log_state, entry)


def _horizon(log_state: LogState, time_us: int) -> Horizon | None:
    """Return the new horizon, or None if it would not be later than the present one."""
    current = log_state.horizon
    if current is not None and time_us <= current.time:
        return None
    return Horizon(time_us, max(0, log_state.versions.last_until("stream_time", time_us)))


def _can_drop(log_state: LogState, meta: SegmentMeta, horizon: Horizon) -> bool:
    if meta.role == "belief":
        return meta.max_dropped <= horizon.version
    pending = log_state.closures.get(meta.name, ())
    return meta.max_valid_to <= horizon.time and meta.last_closed <= horizon.version and not pending
