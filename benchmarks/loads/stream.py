"""A seeded stream of changes: hot keys, deletes and late records, cut into commits.

All columns are made at once with numpy. Event numbers are the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

START_MS = 1_700_000_000_000
STEP_MS = 10  # one change every ten milliseconds of state time
KEY: dict[str, Any] = {"item": "string"}
VALUE: dict[str, Any] = {"price": "double", "stock": "bigint", "label": "string", "note": "string"}
COLUMNS = [*KEY, *VALUE]
LABELS, NOTES = 4_096, 20_000

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """The shape of a stream: ``keys`` times ``factor`` changes in commits of ``commit_rows``.

    ``hot`` of the changes go to keys drawn by Zipf's law, the others to any key. ``late`` of them are older than their
    arrival by up to ``late_by`` of the stream.
    """

    keys: int
    factor: int
    commit_rows: int
    late: float = 0.01
    deletes: float = 0.03
    hot: float = 0.5
    late_by: float = 0.05

    @property
    def commits(self) -> int:
        return max(self.keys * self.factor // self.commit_rows, 1)

    @property
    def events(self) -> int:
        return self.commits * self.commit_rows

    def __str__(self) -> str:
        return f"{self.factor}x, {self.late:.1%} late".replace(".0%", "%")


class Stream:
    """The changes of one stream, by columns."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        random = np.random.default_rng([seed, shape.keys, shape.factor, shape.commit_rows, int(shape.late * 1e6)])
        self.names = _names(shape.keys, random)
        events = shape.events
        self.key = _keys(shape, random)
        self.time = _times(shape, random)
        self.deleted = random.random(events) < shape.deletes
        self.price = random.integers(0, 1_000_000, events) / 100.0
        self.stock = random.integers(0, 100_000, events)
        self._label = random.integers(0, LABELS, events, dtype=np.int16)
        self._note = random.integers(0, NOTES, events, dtype=np.int32)
        self._note_missing = random.random(events) < 0.3
        self._labels = _words("l", LABELS, 4, random)
        self._notes = _words("note of ", NOTES, 12, random)

    @cached_property
    def clock(self) -> int:
        """The greatest time of all, epoch milliseconds."""
        return int(self.time.max())

    def moment(self, share: float) -> int:
        """A moment after this share of the stream."""
        return START_MS + int(self.shape.events * share) * STEP_MS

    def commit(self, number: int) -> pa.Table:
        """The changes of one commit, as `put_all` takes them."""
        first = number * self.shape.commit_rows
        events = np.arange(first, first + self.shape.commit_rows)
        changes = pa.array(["insert", "delete"]).take(pa.array(self.deleted[events].astype(np.int8)))
        return self.rows(events).append_column("_change_type", changes)

    def raw(self, number: int) -> pa.Table:
        """The changes of one commit without the column that tells deletes."""
        return self.commit(number).drop_columns(["_change_type"])

    def merged(self, number: int) -> pa.Table:
        """The last change of each key in one commit, with a column ``deleted``, as a merge by key takes them."""
        first = number * self.shape.commit_rows
        events = newest_of_each_key(self, np.arange(first, first + self.shape.commit_rows))
        return self.rows(events).append_column("deleted", pa.array(self.deleted[events]))

    def rows(self, events: Numbers) -> pa.Table:
        """These events as a table with the columns of the store and ``timestamp``."""
        notes = pa.array(self._note[events], mask=self._note_missing[events])
        return pa.table(
            {
                "item": self.names.take(pa.array(self.key[events])),
                "price": self.price[events],
                "stock": self.stock[events],
                "label": self._labels.take(pa.array(self._label[events])),
                "note": self._notes.take(notes),
                "timestamp": self.time[events],
            }
        )


def newest_of_each_key(stream: Stream, events: Numbers) -> Numbers:
    """Return, of events in order of arrival, the one that counts for each key: the latest time, then the last to come.

    The result is in order of key.
    """
    if not len(events):
        return events
    keys = stream.key[events]
    order = np.lexsort((stream.time[events], keys))  # stable: equal times stay in order of arrival
    sorted_keys = keys[order]
    last = np.append(sorted_keys[1:] != sorted_keys[:-1], True)
    newest: Numbers = events[order[last]]
    return newest


def _keys(shape: Shape, random: np.random.Generator) -> npt.NDArray[np.int32]:
    """Zipf's law with exponent 1: the rank is log-uniform. Ranks are spread over the names."""
    events = shape.events
    ranks = np.minimum(shape.keys ** random.random(events), shape.keys - 1).astype(np.int32)
    hot = random.permutation(shape.keys).astype(np.int32)[ranks]
    anywhere = random.integers(0, shape.keys, events, dtype=np.int32)
    return np.where(random.random(events) < shape.hot, hot, anywhere)


def _times(shape: Shape, random: np.random.Generator) -> Numbers:
    times = START_MS + np.arange(shape.events, dtype=np.int64) * STEP_MS
    reach = max(int(shape.events * shape.late_by) * STEP_MS, 2)
    moved = random.random(shape.events) < shape.late
    times[moved] -= random.integers(1, reach, int(moved.sum()))
    late: Numbers = np.maximum(times, START_MS)
    return late


def _names(keys: int, random: np.random.Generator) -> pa.StringArray:
    """Names of 14 to 26 bytes."""
    digits = pc.utf8_lpad(pa.array(np.arange(keys)).cast(pa.string()), 9, "0")
    tails = pa.array(["x" * length for length in range(13)]).take(pa.array(random.integers(0, 13, keys)))
    return pc.binary_join_element_wise("item-", digits, tails, "")


def _words(start: str, count: int, longest: int, random: np.random.Generator) -> pa.StringArray:
    tails = pa.array(["y" * length for length in range(longest + 1)])
    numbers = pa.array(np.arange(count)).cast(pa.string())
    return pc.binary_join_element_wise(start, numbers, tails.take(pa.array(random.integers(0, longest + 1, count))), "")
