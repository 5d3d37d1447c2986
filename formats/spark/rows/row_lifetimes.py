"""Lifetimes of rows from the writes to their keys: numbers only, all keys at once.

Batches are ascending numbers; rows with the same content have the same number.
"""

from __future__ import annotations

import numpy as np

from statestore.formats.spark.rows.byte_spans import Flags, Ints

OPEN = np.iinfo(np.int64).max
"""The end of a row that still exists."""

Columns = tuple[Ints, Ints, Ints]


def ends_of_writes(keys: Ints, replaces: Flags) -> Ints:
    """The next write to the same key that replaces the current rows, OPEN without one.

    Writes are in the order in which they were made. Writes that do not replace add a row.
    """
    count = len(keys)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    positions = np.where(replaces[order], np.arange(count), count)
    at_or_after = np.append(np.minimum.accumulate(positions[::-1])[::-1], count)
    after = at_or_after[1:]
    found = np.minimum(after, count - 1)
    ends = np.where((after < count) & (sorted_keys[found] == sorted_keys), order[found], OPEN)
    result = np.empty(count, np.int64)
    result[order] = ends
    return result


def net_changes(content: Ints, start: Ints, end: Ints) -> Columns:
    """(content, batch, number of rows) of each change, by content and batch; a negative number means removed rows.

    A row that is removed and added again in one batch is no change.
    """
    closed = end < OPEN
    contents, batches = np.concatenate((content, content[closed])), np.concatenate((start, end[closed]))
    counts = np.repeat(np.array([1, -1]), (len(content), int(closed.sum())))
    order = np.lexsort((batches, contents))
    contents, batches = contents[order], batches[order]
    first = np.flatnonzero(np.append(True, (np.diff(contents) != 0) | (np.diff(batches) != 0))[: len(contents)])
    net = np.add.reduceat(counts[order], first) if len(first) else np.empty(0, np.int64)
    kept = net != 0
    return contents[first][kept], batches[first][kept], net[kept]


def intervals(content: Ints, start: Ints, end: Ints) -> Columns:
    """(content, first batch, end) of each row without its unchanged rewrites; of equal rows the newest ends first."""
    contents, batches, net = net_changes(content, start, end)
    total = np.cumsum(net)
    begins = np.append(True, np.diff(contents) != 0)[: len(contents)]
    before_group = (total - net)[begins]
    after = total - np.repeat(before_group, np.diff(np.append(np.flatnonzero(begins), len(contents))))
    # Rows form a stack: each start is paired with the next end at its height.
    size = np.abs(net)
    owner = np.repeat(np.arange(len(net)), size)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    height = np.minimum(after, after - net)[owner] + within
    order = np.lexsort((batches[owner], height, contents[owner]))
    owner, height = owner[order], height[order]
    opens = np.flatnonzero(net[owner] > 0)
    following = np.minimum(opens + 1, max(len(owner) - 1, 0))
    ended = (opens + 1 < len(owner)) & (net[owner[following]] < 0)
    first, last = owner[opens], owner[following]
    return contents[first], batches[first], np.where(ended, batches[last], OPEN)
