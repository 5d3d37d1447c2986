"""Comparison of captured stores with the state that a query had after each batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import statestore
from support.capture.models import Batch, Rows, canonical
from support.capture.queries import FollowedQuery

OWN = ("valid_from", "valid_to", "_change_type", "_commit_version", "_commit_timestamp")
ADDS = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}


@dataclass(frozen=True)
class Found:
    """How many batches there were, how many were captured, and how many are missing, of the first state."""

    batches: int
    captured: int
    missing: int


def check_run(query: FollowedQuery, warehouse: Path, gaps: set[int] | None) -> Found:
    """Check a capture against the model, and that another one of the same finds nothing to do.

    ``gaps`` are the batches that nobody could have read; None where that is not known.
    """
    batches = len(query.batches)
    check_captured(warehouse, query.states, query.batches, query.truth(), gaps)
    before = {state: check_versions(warehouse, state, batches, gaps) for state in query.states}
    again = statestore.capture(query.checkpoint, warehouse)
    assert again.versions == 0, again
    assert before == {state: check_versions(warehouse, state, batches, gaps) for state in query.states}
    captured = len(before[query.states[0]])
    return Found(batches, captured, batches - captured)


def check_captured(
    warehouse: Path,
    states: Sequence[str],
    batches: Sequence[Batch],
    truth: Sequence[Mapping[str, Rows]],
    gaps: set[int] | None,
) -> None:
    """Check all that a warehouse says of each state: versions, moments, changes, history. ``gaps`` are as
    in `check_run`.
    """
    assert {*statestore.inspect(warehouse).tables()} - {"timers"} == {*states}
    for state in states:
        commits = check_versions(warehouse, state, len(batches), gaps)
        numbers = [*commits]
        rows = [truth[number][state] for number in numbers]
        check_moments(warehouse, state, [batches[number] for number in numbers], [*commits.values()], rows)
        check_changes(warehouse, state, [*commits.values()], rows)
        check_history(warehouse, state, [batches[number].time for number in numbers], rows)


def check_versions(warehouse: Path, state: str, batches: int, gaps: set[int] | None) -> dict[int, int]:
    """Check which batches were captured: each once, but for the gaps. Return the commit of each."""
    versions = statestore.inspect(warehouse).table(state).versions().to_pylist()
    captured = [row for row in versions if row["batch"] is not None]
    others = {row["operation"] for row in versions if row["batch"] is None}
    assert others <= {"create", "compact"}, (state, others)
    assert len({row["application"] for row in captured}) == 1, state
    numbers = [row["batch"] for row in captured]
    assert numbers == sorted({*numbers}), f"{state}: a batch was captured twice, or not in order: {numbers}"
    missing: set[int] = set()
    for row in captured:
        if row["missing_from"] is not None:
            told = range(row["missing_from"], row["missing_to"] + 1)
            assert told and told[-1] == row["batch"] - 1, (state, row)
            missing |= {*told}
    assert missing.isdisjoint(numbers), state
    # What was before the first captured batch is no gap: the store says where its capture begins.
    assert missing | {*numbers} == {*range(min(numbers), batches)}, (state, numbers, missing)
    if gaps is not None:
        assert missing == gaps, (state, missing, gaps)
    return {row["batch"]: row["version"] for row in captured}


def check_moments(
    warehouse: Path, state: str, batches: Sequence[Batch], commits: Sequence[int], rows: Sequence[Rows]
) -> None:
    """Check the rows of each captured batch by its version, at its time, and just before its time; some by SQL.

    A notice comes with moments between a batch before a gap and the one after it, and with no others.
    """
    table = statestore.inspect(warehouse).table(state)
    for number, (batch, expected) in enumerate(zip(batches, rows, strict=True)):
        after_gap = number > 0 and batch.number != batches[number - 1].number + 1
        before_gap = number + 1 < len(batches) and batches[number + 1].number != batch.number + 1
        asked: list[tuple[dict[str, Any], Rows, bool]] = [
            ({"version": commits[number]}, expected, False),
            ({"as_of": batch.time}, expected, False),
            ({"as_of": batch.time + 1}, expected, before_gap),
        ]
        if number:
            asked.append(({"as_of": batch.time - 1}, rows[number - 1], after_gap))
        for which, wanted, is_told in asked:
            with catch_warnings(record=True) as told:
                simplefilter("always")
                found = plain(table.scan(**which).read_all().to_pylist())
            assert found == wanted, _differ(state, f"{which} of {batch}", found, wanted)
            assert [f"{each.message}".count("could be captured") for each in told] == [1] * is_told, (
                state,
                which,
                batch,
            )
        if number % 20 == 3:
            for clause in (f"VERSION AS OF {commits[number]}", f"TIMESTAMP AS OF {_text(batch.time)}"):
                found = plain(statestore.sql(str(warehouse), f"SELECT * FROM {state} {clause}").to_pylist())
                assert found == expected, _differ(state, f"{clause} of {batch}", found, expected)


def check_changes(warehouse: Path, state: str, commits: Sequence[int], rows: Sequence[Rows]) -> None:
    """Check that the change feed leads from each captured version to the next."""
    table = statestore.inspect(warehouse).table(state)
    net: dict[int, Rows] = defaultdict(Counter)
    with catch_warnings():
        simplefilter("ignore")  # of gaps
        changes = table.changes(start_version=1, end_version=commits[-1]).read_all().to_pylist()
    for row in changes:
        (shown,) = plain([row])
        net[row["_commit_version"]][shown] += ADDS[row["_change_type"]]
    before: Rows = Counter()
    assert {*net} <= {*commits}
    for commit, after in zip(commits, rows, strict=True):
        expected = Counter(after)
        expected.subtract(before)
        found = {row: count for row, count in net[commit].items() if count}
        assert found == {row: count for row, count in expected.items() if count}, f"{state}, changes of {commit}"
        before = after


def check_history(warehouse: Path, state: str, times: Sequence[int], rows: Sequence[Rows]) -> None:
    """Check which rows were valid at the time of each captured version, by the history."""
    with catch_warnings():
        simplefilter("ignore")  # of gaps
        history = statestore.inspect(warehouse).table(state).history().read_all().to_pylist()
    spans = [(_ms(row["valid_from"]), _ms(row["valid_to"]), plain([row])) for row in history]
    for time, expected in zip(times, rows, strict=True):
        found: Rows = Counter()
        for begin, end, row in spans:
            if begin is not None and begin <= time and (end is None or time < end):
                found += row
        assert found == expected, _differ(state, f"history at {time}", found, expected)


def plain(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows with the columns of the state alone."""
    return Counter(canonical({name: each for name, each in row.items() if name not in OWN}) for row in rows)


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _text(ms: int) -> str:
    return f"'{datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec='milliseconds')}'"


def _differ(state: str, what: object, found: Rows, expected: Rows) -> str:
    return f"{state}, {what}: too much {found - expected}, too little {expected - found}"
