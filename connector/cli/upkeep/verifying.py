"""`statestore verify`: the checks that were made, the problems found, and what is verified."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from statestore.catalog.checks.verification import checks_at
from statestore.catalog.checks.verify_report import Problem, Verification
from statestore.connector.terminal.grid import Grid
from statestore.connector.terminal.output import cell, human_bytes
from statestore.connector.terminal.progress import progress
from statestore.formats.values.times import format_time

SHOWN = ("store", "result", "files", "bytes", "segments", "rows", "log_entries", "checkpoints", "uncommitted")
NUMBERS = SHOWN[2:]
OF_PROBLEMS = ("store", "file", "region", "expected", "found", "code", "affects")


def verifications(path: str | Path, store: str | None) -> list[Verification]:
    """Verify the stores one after the other, with a progress bar of the bytes read."""
    checks = checks_at(path, store)
    with progress(unit_bytes=True) as advance:
        return [check(lambda event: advance(f"verify {event.store}", event.done, event.total)) for check in checks]


def as_object(verified: Verification) -> dict[str, Any]:
    """A verification as an object for JSON: counts, bytes, and problems with their effects."""
    item = {"store": verified.store, "ok": verified.ok, "result": _result(verified), "verified": verified.verified}
    counts = {name: getattr(verified, name) for name in (*SHOWN[2:], "versions", "cache_bytes", "notes")}
    spare = [{"file": name, "bytes": size} for name, size in verified.unreferenced]
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
