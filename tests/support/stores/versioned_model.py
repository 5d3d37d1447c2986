"""The versioned store as dictionaries: every right answer, computed without any of the store's methods.

A key is a dictionary of time -> value (None: tombstone). Each entry lasts until the next time in the dictionary, the
last one for ever. A version of the store is a copy of everything. Times are milliseconds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Key = str
Times = dict[int, Any]
Row = tuple[Any, ...]


@dataclass
class Model:
    """A model. ``states[v]`` is the state that commit ``v`` recorded, ``added[v][key, time]`` the commit that wrote
    each entry by then."""

    retention: int | None = None
    stream_time: int = -1
    dropped: int = 0
    current: dict[Key, Times] = field(default_factory=dict)
    states: list[dict[Key, Times]] = field(default_factory=lambda: [{}])
    added: list[dict[tuple[Key, int], int]] = field(default_factory=lambda: [{}])
    touched: list[set[tuple[Key, int]]] = field(default_factory=lambda: [set()])
    pending: set[tuple[Key, int]] = field(default_factory=set)
    stream_times: list[int] = field(default_factory=lambda: [-1])

    def put(self, key: Key, value: Any, time: int) -> tuple[bool, int | None]:
        if self.retention is not None and time < self.stream_time - self.retention:
            self.dropped += 1
            return False, None
        self.stream_time = max(self.stream_time, time)
        times = self.current.setdefault(key, {})
        older = [t for t in times if t < time]
        ended_by_value = bool(older) and times[max(older)] is not None
        newest = bool(times) and time == max(times)
        if value is None and newest and times[time] is not None and not ended_by_value:
            del times[time]  # Kafka forgets it: no tombstone stays behind
        else:
            times[time] = value
        self.pending.add((key, time))
        later = [t for t in times if t > time]
        return True, min(later) if later else None

    def commit(self) -> None:
        version = len(self.states)
        before, after = self.states[-1], copy.deepcopy(self.current)
        added = dict(self.added[-1])
        added.update(dict.fromkeys(self.pending, version))
        for key, times in after.items():
            for time in times:
                old_end = end_of(before.get(key, {}), time) if time in before.get(key, {}) else None
                new_end = end_of(times, time)
                if old_end is not None and (new_end is None or new_end > old_end):
                    added[key, time] = version  # a tombstone that became the newest again is written anew
        self.states.append(after)
        self.added.append(added)
        self.touched.append(self.pending)
        self.stream_times.append(self.stream_time)
        self.pending = set()

    def same_again(self) -> None:
        """A version that changes nothing (a compaction)."""
        self.states.append(self.states[-1])
        self.added.append(self.added[-1])
        self.stream_times.append(self.stream_times[-1])
        self.touched.append(set())

    def get(self, key: Key, as_of: int | None = None) -> Row | None:
        found = valid_at(self.current.get(key, {}), as_of if as_of is not None else 10**12)
        if found is None or found[0] is None:
            return None
        late = as_of is not None and self.retention is not None and as_of < self.stream_time - self.retention
        return None if found[2] is not None and late else found

    def state_at(self, version: int, time: int | None = None) -> set[Row]:
        """(key, value, valid_from, valid_to) of the keys that had a value."""
        rows = set()
        for key, times in self.states[version].items():
            found = valid_at(times, time if time is not None else 10**12)
            if found is not None and found[0] is not None:
                rows.add((key, *found))
        return rows

    def history(self, version: int, key: Key | None = None) -> set[Row]:
        """(key, value, valid_from, valid_to, commit)."""
        state, added = self.states[version], self.added[version]
        return {
            (k, value, time, end_of(times, time), added[k, time])
            for k, times in state.items()
            for time, value in times.items()
            if value is not None and key in (None, k)
        }

    def changes(self, first: int, last: int) -> list[Row]:
        """(commit, valid_from, key, type, value) of the commits first to last, sorted."""
        events: list[Row] = []
        for version in range(first, last + 1):
            before, after = self.states[version - 1] if version else {}, self.states[version]
            for key, time in self.touched[version]:
                old_times, new_times = before.get(key, {}), after.get(key, {})
                old = old_times[time] if time in old_times else value_before(new_times, time)
                if time in new_times:
                    events += [(version, time, key, *e) for e in event(old, new_times[time])]
                elif old_times.get(time) is not None:
                    events.append((version, time, key, "delete", old))
        return sorted(events)

    def changes_by_time(self, low: int, high: int) -> list[Row]:
        """(commit, valid_from, key, type, value) of the entries of the newest version that start from ``low`` to
        ``high``."""
        state, added = self.states[-1], self.added[-1]
        return sorted(
            (added[key, time], time, key, *e)
            for key, times in state.items()
            for time, value in times.items()
            if low <= time <= high
            for e in event(value_before(times, time), value)
        )


def event(old: Any, new: Any) -> Iterator[tuple[str, Any]]:
    if new is None:
        if old is not None:
            yield "delete", old
    elif old is None:
        yield "insert", new
    else:
        yield "update_preimage", old
        yield "update_postimage", new


def end_of(times: Times, time: int) -> int | None:
    return min((t for t in times if t > time), default=None)


def value_before(times: Times, time: int) -> Any:
    before = [t for t in times if t < time]
    return times[max(before)] if before else None


def valid_at(times: Times, time: int) -> Row | None:
    """(value, valid_from, valid_to), the value None for a tombstone; None before the first entry."""
    begun = [t for t in times if t <= time]
    if not begun:
        return None
    start = max(begun)
    return times[start], start, end_of(times, start)
