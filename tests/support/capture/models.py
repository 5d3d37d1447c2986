"""Events of queries whose state is captured, and plain models of that state after each batch.

A model needs of a batch what its offsets say: how many files of events were read by its end, its watermark, and its
time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW_S = 60
NEAR_S = 60
"""Rows of a join match if their times differ by this at most."""
TTL_MS = 2000
Rows = Counter[Any]
"""Rows of a state, each as `canonical` makes it."""


@dataclass(frozen=True)
class Event:
    k: str
    at: int
    """Seconds after `BEGAN`."""
    n: int
    side: str

    def row(self) -> dict[str, Any]:
        return {"k": self.k, "t": moment(self.at).isoformat(), "n": self.n, "s": self.side}


@dataclass(frozen=True)
class Batch:
    """A batch as its offsets say: the ``files`` of events that were read by its end; times in epoch milliseconds."""

    number: int
    files: int
    time: int
    watermark: int

    @property
    def watermark_s(self) -> float:
        """The watermark in seconds after `BEGAN`; before all events, where the batch had none."""
        return self.watermark / 1000 - BEGAN.timestamp()


def moment(seconds: int) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def events_of(seed: int, file: int, keys: int = 12) -> list[Event]:
    """The events of a file: some late, some twice, and none in each thirteenth file."""
    if file % 13 == 9:
        return []
    chance = Random(seed * 100_003 + file)
    found = []
    for number in range(chance.randrange(4, 14)):
        late = chance.choice((0, 5, 20, 40, 300 if number else 0))
        event = Event(f"k{chance.randrange(keys)}", file * 30 - late, file * 100 + number, chance.choice("lr"))
        found += [event] * chance.choice((1, 1, 1, 1, 2))
    return found


def canonical(value: Any) -> Any:
    """A cell, with its parts, as a value that is equal to and has the hash of that of any other reader."""
    match value:
        case datetime():
            return round((value - BEGAN) / timedelta(microseconds=1))
        case Mapping():
            return tuple((name, canonical(each)) for name, each in value.items())
        case list() | tuple():
            return tuple(map(canonical, value))
        case _:
            return value


class Model(ABC):
    """The states of a query, by name, after the batches that it was told."""

    states: Sequence[str]

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._files = 0
        self._before = Batch(-1, 0, 0, 0)

    def take(self, batch: Batch) -> dict[str, Rows]:
        """Return the rows of each state after the batch that follows."""
        assert batch.number == self._before.number + 1
        events = [event for file in range(self._files, batch.files) for event in events_of(self._seed, file)]
        self._files = batch.files
        self._take(batch, events)
        self._before = batch
        return {name: Counter(map(canonical, rows)) for name, rows in self._rows().items()}

    @abstractmethod
    def _take(self, batch: Batch, events: Sequence[Event]) -> None: ...

    @abstractmethod
    def _rows(self) -> dict[str, list[dict[str, Any]]]: ...


class WindowsModel(Model):
    """Counts and sums by window and key: those whose end the watermark has not reached."""

    states = ("state",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._windows: dict[tuple[int, str], tuple[int, int]] = {}

    def _take(self, batch: Batch, events: Sequence[Event]) -> None:
        for event in events:
            place = event.at // WINDOW_S * WINDOW_S, event.k
            count, total = self._windows.get(place, (0, 0))
            self._windows[place] = count + 1, total + event.n
        for start, key in [*self._windows]:
            if start + WINDOW_S <= batch.watermark_s:
                del self._windows[start, key]

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "state": [
                {
                    "key": {"window": {"start": moment(start), "end": moment(start + WINDOW_S)}, "k": key},
                    "value": {"count": count, "sum": total},
                }
                for (start, key), (count, total) in self._windows.items()
            ]
        }


class JoinModel(Model):
    """The events of both sides that may still find another."""

    states = ("left", "right")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._sides: dict[str, list[Event]] = {"l": [], "r": []}

    def _take(self, batch: Batch, events: Sequence[Event]) -> None:
        for event in events:
            if event.at > self._before.watermark_s:
                self._sides[event.side].append(event)
        for side, kept in self._sides.items():
            self._sides[side] = [event for event in kept if event.at >= batch.watermark_s - NEAR_S]

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        names = {"l": ("left", "k", "t", "n"), "r": ("right", "rk", "rt", "rn")}
        return {
            state: [
                {"key": {"field0": each.k}, "value": {k: each.k, t: moment(each.at), n: each.n}}
                for each in self._sides[side]
            ]
            for side, (state, k, t, n) in names.items()
        }


class VariablesModel(Model):
    """Variables of a function: a value and a list that expire, a list and a map from which rows are removed."""

    states = ("last", "listed", "recent", "seen")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._last: dict[str, tuple[int, int]] = {}
        self._recent: dict[str, list[tuple[int, int]]] = {}
        self._listed: dict[str, list[int]] = {}
        self._seen: dict[str, dict[int, int]] = defaultdict(dict)

    def _take(self, batch: Batch, events: Sequence[Event]) -> None:
        end = batch.time + TTL_MS
        for event in sorted(events, key=lambda each: each.n):
            key, n = event.k, event.n
            self._last[key] = n, end
            self._recent.setdefault(key, []).append((n, end))
            self._listed[key] = [n] if n % 7 == 5 else [*self._listed.get(key, []), n]
            self._seen[key][n % 5] = n
            if n % 4 == 1:
                self._seen[key].pop(n % 3, None)
        self._last = {key: each for key, each in self._last.items() if each[1] > batch.time}
        self._recent = {key: [each for each in of if each[1] > batch.time] for key, of in self._recent.items()}

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        def ending(n: int, end: int) -> dict[str, Any]:
            return {"value": {"n": n}, "ttlExpirationMs": end}

        return {
            "last": [{"key": {"k": key}, "value": ending(*each)} for key, each in self._last.items()],
            "listed": [
                {"key": {"k": key}, "list_element": {"n": n}} for key, of in self._listed.items() for n in of
            ],
            "recent": [
                {"key": {"k": key}, "list_element": ending(*each)} for key, of in self._recent.items() for each in of
            ],
            "seen": [
                {"key": {"k": key}, "user_map_key": {"kind": kind}, "user_map_value": {"n": n}}
                for key, of in self._seen.items()
                for kind, n in of.items()
            ],
        }  # fmt: skip
