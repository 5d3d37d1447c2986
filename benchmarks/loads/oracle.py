"""The right answers to questions about a stream, from its changes alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.loads.stream import COLUMNS, Numbers, Stream, newest_of_each_key


class WrongAnswerError(AssertionError):
    """An answer differs from what the changes say; nothing was timed."""


def live_events(stream: Stream, as_of: int | None = None, commits: int | None = None) -> Numbers:
    """The events whose rows are valid at ``as_of`` (default: now) by the first ``commits``, in order of key."""
    known = stream.shape.events if commits is None else commits * stream.shape.commit_rows
    events = np.arange(known)
    if as_of is not None:
        events = events[stream.time[:known] <= as_of]
    newest = newest_of_each_key(stream, events)
    return newest[~stream.deleted[newest]]


def check(stream: Stream, answer: pa.Table, events: Numbers, asked: str) -> None:
    """Compare every cell of an answer, whose rows come in any order, with the rows of ``events``."""
    keys = pc.index_in(answer["item"], value_set=stream.names)
    if keys.null_count:
        raise WrongAnswerError(f"{asked}: {keys.null_count} rows have keys that were never written.")
    order = np.argsort(keys.to_numpy(), kind="stable")
    found = answer.select(COLUMNS).take(pa.array(order))
    expected = stream.rows(events).select(COLUMNS)
    if found.num_rows != expected.num_rows:
        raise WrongAnswerError(f"{asked}: {found.num_rows} rows were found, {expected.num_rows} are right.")
    for name in COLUMNS:
        wrong = _differing(found[name], expected[name])
        if wrong:
            raise WrongAnswerError(f"{asked}: {wrong} of {found.num_rows} rows are wrong in the column {name}.")


def _differing(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> int:
    found = found.cast(expected.type)
    nulls = pc.xor(found.is_null(), expected.is_null())
    unequal = pc.fill_null(pc.not_equal(found, expected), False)
    return int(pc.sum(pc.or_(nulls, unequal)).as_py() or 0)
