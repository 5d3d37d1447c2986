"""Verification, compaction, expiry and vacuum of stores named on the command line, beside writers that may be running.

Nothing here opens a store for writing. Each step publishes a commit of its own, and is repeated if a writer committed
first (see `catalog.upkeep.vacuum`). Acknowledged puts stay with their writer.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from statestore.catalog.checks.verification import checks_at
from statestore.catalog.checks.verify_report import Problem, Verification
from statestore.catalog.log.log_state import LogState
from statestore.catalog.store_upkeep import Upkeep
from statestore.catalog.upkeep.expiry import check_horizon, run_expiry
from statestore.catalog.upkeep.publish_compaction import Progress, run_compaction
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.cli.argument_texts import duration
from statestore.connector.terminal import Grid, cell, human_bytes, progress, say, say_error
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.values.times import duration_ms, format_duration, format_time

Row = dict[str, Any]
LAYOUT = ("segments", "closures", "bytes")
COMPACTED = (
    "store",
    "version",
    "compacted",
    *(f"{n}_{when}" for when in ("before", "after") for n in LAYOUT),
    "seconds",
)
EXPIRED = (
    "store",
    "version",
    "retention",
    "expired",
    "kept_from",
    "oldest_version",
    "segments_dropped",
    "bytes_dropped",
)
REMOVED = ("store", "file", "bytes", "removed")


class Failures(Exception):
    """Raised when some stores failed; the failure of each was already reported."""


Work = Callable[[str, Upkeep, Progress], list[Row]]
"""Work on the store of a name, which may report (amount done, total)."""


def each_store(path: str | Path, store: str | None, what: str, work: Work) -> list[Row]:
    """The rows of all stores, or of the named one, with a progress bar: of the stores, or of the work on one of them.

    A store that fails is reported and does not stop the others, nor does one that has nothing to do. If a store failed,
    ``Failures`` is raised at the end with the rows of the others as its argument.
    """
    warehouse = open_warehouse(path).pin()
    names = warehouse.stores(store)
    rows: list[Row] = []
    failed = False
    with progress() as advance:
        for number, name in enumerate(names):
            advance(f"{what} {name}", number, len(names))
            try:
                rows += work(name, warehouse.upkeep(name), partial(advance, f"{what} {name}"))
            except InvalidInputError:
                raise
            except (StateStoreError, OSError) as error:
                if store is not None:
                    raise
                if isinstance(error, StateStoreError) and error.code == ErrorCode.SNAPSHOTS_ONLY:
                    say(error.message)
                    continue
                say_error(f"{name}: {error}")
                failed = True
    if failed:
        raise Failures(rows)
    return rows


def compact(upkeep: Upkeep, full: bool, progress: Progress = lambda done, total: None) -> list[Row]:
    """Compact a store and report the result; the version stays the same if nothing was due.

    ``progress`` is called with (rows done, rows that are done or to do).
    """
    files = upkeep.files()
    started = time.perf_counter()
    before = files.log.newest()
    after = run_compaction(files, before, full, progress=progress)
    row: Row = {"store": files.spec.name, "version": after.version, "compacted": after.version != before.version}
    for name, log_state in (("before", before), ("after", after)):
        row |= {f"{key}_{name}": value for key, value in _layout(log_state).items()}
    return [{**row, "seconds": round(time.perf_counter() - started, 3)}]


def _layout(log_state: LogState) -> Row:
    metas = log_state.segments
    return {
        "segments": len(metas),
        "closures": sum(piece.count for pieces in log_state.closures.values() for piece in pieces),
        "bytes": sum(meta.file.bytes + (meta.index.bytes if meta.index else 0) for meta in metas),
    }


def expire(upkeep: Upkeep, before_us: int | None) -> list[Row]:
    """Expire by the store's retention, or before a moment, and report the dropped files. Does nothing without
    either."""
    files = upkeep.files()
    before = files.log.newest()
    retention = files.spec.history_retention
    horizon = before_us
    if horizon is None and retention is not None and before.stream_time is not None:
        horizon = before.stream_time - retention * 1000
    after = before if horizon is None else run_expiry(files, before, horizon)
    kept = after.horizon
    return [
        {
            "store": files.spec.name,
            "version": after.version,
            "retention": "for ever" if retention is None else format_duration(retention),
            "expired": after.version != before.version,
            "kept_from": None if kept is None else format_time(kept.time),
            "oldest_version": 0 if kept is None else kept.version,
            "segments_dropped": len(before.segments) - len(after.segments),
            "bytes_dropped": _layout(before)["bytes"] - _layout(after)["bytes"],
        }
    ]


def all_ended_before(path: str | Path, store: str | None, horizon_us: int) -> list[tuple[str, int]]:
    """Return the stores whose newest value begins before a horizon, with its time: only what is valid would stay.

    Raises InvalidInputError INVALID_OPTION for a horizon in the future.
    """
    warehouse = open_warehouse(path).pin()
    found = []
    for name in warehouse.stores(store):
        try:
            log_state = warehouse.upkeep(name).files().log.newest()
        except (StateStoreError, OSError):  # the expiry reports it
            continue
        check_horizon(log_state, name, horizon_us)
        if log_state.stream_time is not None and log_state.stream_time < horizon_us:
            found.append((name, log_state.stream_time))
    return found


def hold(path: str | Path, command: Sequence[str]) -> int:
    """Run a command while no file of any store that it may copy is removed; return its exit status.

    Raises InvalidInputError INVALID_OPTION for a command that cannot be started.
    """
    warehouse = open_warehouse(path).pin()
    holds = []
    for name in warehouse.stores(None):
        upkeep = warehouse.upkeep(name)
        with contextlib.suppress(UnsupportedError):  # a keyed store, whose vacuum waits for days
            holds.append(upkeep.files().log.hold())
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{command[0]} cannot be run: {error.strerror}; give a command after --"
        ) from error


def vacuum(store: str, upkeep: Upkeep, older_than: str | None, dry_run: bool) -> list[Row]:
    """Remove the files that are no longer needed, or that no version of the last ``older_than`` needs, and list
    them."""
    milliseconds = duration_ms(duration(older_than), "--older-than")
    found = upkeep.vacuum(None if milliseconds is None else milliseconds * 1000, dry_run)
    return [{"store": store, "file": item.name, "bytes": item.bytes, "removed": not dry_run} for item in found]


# `statestore verify`: the checks that were made, the problems found, and what is verified.

SHOWN = ("store", "result", "files", "bytes", "segments", "rows", "log_entries", "checkpoints", "uncommitted")
NUMBERS = SHOWN[2:]
OF_PROBLEMS = ("store", "file", "region", "expected", "found", "code", "affects")


def verifications(path: str | Path, store: str | None, options: Mapping[str, str], *, deep: bool) -> list[Verification]:
    """Verify the stores one after the other, with a progress bar of the bytes read."""
    checks = checks_at(path, store, options, deep=deep)
    with progress(unit_bytes=True) as advance:
        return [check(lambda event: advance(f"verify {event.store}", event.done, event.total)) for check in checks]


def as_object(verified: Verification) -> dict[str, Any]:
    """A verification as an object for JSON: counts, bytes, and problems with their effects."""
    item = {"store": verified.store, "ok": verified.ok, "result": _result(verified), "verified": verified.verified}
    counts = {name: getattr(verified, name) for name in (*SHOWN[2:], "versions", "cache_bytes", "notes")}
    spare = [{"file": name, "bytes": size} for name, size in verified.unreferenced]
    counts["coverage"] = [asdict(each) for each in verified.coverage]
    return {**item, **counts, "problems": [_problem(p) for p in verified.problems], "unreferenced": spare}


def _result(verified: Verification) -> str:
    count = len(verified.problems)
    return "ok" if verified.ok else f"{count} problem{'' if count == 1 else 's'}"


def _problem(problem: Problem) -> dict[str, Any]:
    item = asdict(problem)
    times = item.pop("times")
    start, end = times or (None, None)
    ends = {"from": None if start is None else format_time(start), "to": None if end is None else format_time(end)}
    return {**item, **ends}


def as_grid(items: list[dict[str, Any]]) -> Grid:
    rows = [[human_bytes(item[name]) if name == "bytes" else cell(item[name]) for name in SHOWN] for item in items]
    return Grid([name.replace("_", " ") for name in SHOWN], [name in NUMBERS for name in SHOWN], rows)


def problems_grid(items: list[dict[str, Any]]) -> Grid:
    problems = [{"store": item["store"], **problem} for item in items for problem in item["problems"]]
    rows = [[cell(problem[name]) for name in OF_PROBLEMS] for problem in problems]
    return Grid(list(OF_PROBLEMS), [name == "region" for name in OF_PROBLEMS], rows)
