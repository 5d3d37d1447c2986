"""One key's timeline against the log of its puts, recomputed from scratch for every question.

The rule for a null put at the newest value's own time is that of `Timeline`. The orders of puts that Kafka
distinguishes and this rule does not are a matter of the store's semantics, not of these tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.catalog.commits.key_timeline import KeyVersion, Timeline, put_all
from statestore.formats.segments.segment_meta import OPEN

LAST = 12  # times are 0 … LAST

values = st.one_of(st.none(), st.tuples(st.integers(0, 3)))
puts = st.tuples(st.integers(0, LAST), values)
logs = st.lists(puts, max_size=14)


@dataclass
class PutLog:
    """Every put ever made; the current state is computed by reading all of them again."""

    log: list[tuple[int, Any]] = field(default_factory=list)

    def put(self, time: int, value: Any) -> int:
        self.log.append((time, value))
        return self.end_of(time)

    def standing(self) -> dict[int, Any]:
        standing: dict[int, Any] = {}
        for time, value in self.log:
            if value is None and self._takes_back(standing, time):
                del standing[time]
            else:
                standing[time] = value
        return standing

    @staticmethod
    def _takes_back(standing: dict[int, Any], time: int) -> bool:
        if standing.get(time) is None or any(t > time for t in standing):
            return False
        before = [t for t in standing if t < time]
        return not before or standing[max(before)] is None

    def end_of(self, time: int) -> int:
        return min((t for t in self.standing() if t > time), default=OPEN)

    def entries(self) -> list[tuple[int, int, Any]]:
        return [(time, self.end_of(time), value) for time, value in sorted(self.standing().items())]


def as_entries(timeline: Timeline) -> list[tuple[int, int, Any]]:
    return [(e.start, e.end, e.value) for e in timeline.entries]


def committed(log: PutLog) -> list[KeyVersion]:
    return [KeyVersion(start, end, value, f"row {start}") for start, end, value in log.entries()]


def apply_changes(before: list[KeyVersion], timeline: Timeline) -> list[tuple[int, int, Any]]:
    """The rows of a store after writing ``timeline.changes()``; refuses changes that no store could write."""
    closures, added = timeline.changes()
    rows = {e.origin: e for e in before}
    assert len({origin for origin, _ in closures}) == len(closures), "a row is closed twice"
    for origin, end in closures:
        assert rows[origin].start <= end < rows[origin].end, "ends only shrink"
        rows[origin] = rows[origin]._replace(end=end)
    kept = [(e.start, e.end, e.value) for e in rows.values() if e.end > e.start]
    return sorted([*kept, *added], key=lambda row: row[0])


@given(logs)
def test_every_answer_is_that_of_the_put_log(log: list[tuple[int, Any]]) -> None:
    timeline, model = Timeline(), PutLog()
    for time, value in log:
        assert timeline.put(time, value) == model.put(time, value)
        expected = model.entries()
        assert as_entries(timeline) == expected
        for moment in range(-1, LAST + 2):
            found = timeline.get(moment)
            valid = [row for row in expected if row[0] <= moment < row[1]]
            assert ([] if found is None else [(found.start, found.end, found.value)]) == valid
        newest = timeline.newest()
        assert (None if newest is None else newest.start) == (expected[-1][0] if expected else None)


@given(logs, st.integers(-1, LAST), st.integers(-1, LAST), st.booleans())
def test_versions_of_a_range(log: list[tuple[int, Any]], low: int, high: int, ascending: bool) -> None:
    timeline, model = Timeline(), PutLog()
    for time, value in log:
        timeline.put(time, value)
        model.put(time, value)
    found = [(e.start, e.end, e.value) for e in timeline.versions(low, high, ascending)]
    expected = [row for row in model.entries() if row[2] is not None and row[0] <= high and row[1] > low]
    assert found == (expected if ascending else expected[::-1])


@few_or_many(80, 600, logs, logs)
def test_changes_written_to_the_committed_rows_give_the_timeline(
    before: list[tuple[int, Any]], after: list[tuple[int, Any]]
) -> None:
    model = PutLog(before)
    rows = committed(model)
    timeline = Timeline(rows)
    for time, value in after:
        assert timeline.put(time, value) == model.put(time, value)
    assert apply_changes(rows, timeline) == model.entries()


@few_or_many(80, 600, logs, logs)
def test_rows_that_ended_before_the_earliest_put_are_not_needed(
    before: list[tuple[int, Any]], after: list[tuple[int, Any]]
) -> None:
    """The store starts a timeline with the rows that end at or after the earliest put, however long the history is."""
    rows = committed(PutLog(before))
    earliest = min((time for time, _ in after), default=0)
    whole, part = Timeline(rows), Timeline([e for e in rows if e.end >= earliest])
    for time, value in after:
        assert part.put(time, value) == whole.put(time, value)
    assert [e for e in whole.entries if e.end >= earliest] == part.entries
    assert part.changes() == whole.changes()


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(logs, logs)
def test_puts_to_entries_that_tile_leave_the_entries_of_all_puts(
    before: list[tuple[int, Any]], after: list[tuple[int, Any]]
) -> None:
    stored = PutLog(before).entries()
    numbered = [value for _, _, value in stored] + [value for _, value in after]
    dead = [value is None for value in numbered]
    starts, numbers = put_all([start for start, _, _ in stored], [time for time, _ in after], dead)
    expected = [(start, value) for start, _, value in PutLog([*before, *after]).entries()]
    assert [(start, numbered[number]) for start, number in zip(starts, numbers, strict=True)] == expected
    puts = {len(stored) + n: time for n, (time, _) in enumerate(after)}
    assert all(puts.get(number, start) == start for start, number in zip(starts, numbers, strict=True))


def test_nothing_put_changes_nothing() -> None:
    assert Timeline([KeyVersion(1, 5, ("a",), "row"), KeyVersion(5, OPEN, None, "end")]).changes() == ([], [])


def test_later_puts_shorten_what_an_earlier_code_said() -> None:
    """The worked example of KIP-889: the code is the end at the moment of the put."""
    timeline = Timeline()
    codes = [timeline.put(time, (name,)) for name, time in (("d", 4000), ("a", 1000), ("b", 2000), ("c", 3000))]
    assert codes == [OPEN, 4000, 4000, 4000]
    assert as_entries(timeline) == [
        (1000, 2000, ("a",)),
        (2000, 3000, ("b",)),
        (3000, 4000, ("c",)),
        (4000, OPEN, ("d",)),
    ]


def test_null_put_on_the_only_value_leaves_no_tombstone() -> None:
    """Kafka's case `null-put-into-empty-history-then-late-value`."""
    timeline = Timeline()
    assert [timeline.put(1000, ("x",)), timeline.put(1000, None), timeline.put(900, ("y",))] == [OPEN, OPEN, OPEN]
    assert as_entries(timeline) == [(900, OPEN, ("y",))]


def test_null_put_on_a_value_that_ended_another_is_a_tombstone() -> None:
    timeline = Timeline([KeyVersion(1, 5, ("a",), "a"), KeyVersion(5, OPEN, ("b",), "b")])
    assert timeline.put(5, None) == OPEN
    assert timeline.changes() == ([("b", 5)], [(5, OPEN, None)])


def test_a_tombstone_that_is_the_newest_again_is_written_anew() -> None:
    """An end never grows: the old row is closed at its own start, and a row like it is added."""
    timeline = Timeline([KeyVersion(1, 5, None, "gone"), KeyVersion(5, OPEN, ("b",), "b")])
    assert timeline.put(5, None) == OPEN
    assert timeline.changes() == ([("gone", 1), ("b", 5)], [(1, OPEN, None)])


@pytest.mark.parametrize("value", [None, ("new",)])
def test_equal_time_replaces_a_row_of_the_past(value: Any) -> None:
    timeline = Timeline([KeyVersion(1, 5, ("a",), "a"), KeyVersion(5, OPEN, ("b",), "b")])
    assert timeline.put(1, value) == 5
    assert timeline.changes() == ([("a", 1)], [(1, 5, value)])
