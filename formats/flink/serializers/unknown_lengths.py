"""Guessing where the snapshot of an unknown class ends: every length is tried, and one alone may fit all that follows.

A snapshot has no length. The class of a user's serializer mostly extends ``SimpleTypeSerializerSnapshot``, whose
snapshot is empty, but any number of bytes is possible. The end of the whole header is known, so a wrong length shows:
the rest does not parse, or does not end there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.serializers.snapshot_input import Budget, SnapshotInput, UnknownClass
from statestore.formats.flink.snapshot.data_input import DataInput

Parsed = TypeVar("Parsed")

LONGEST = 1 << 20
"""Bytes of the longest snapshot that is guessed, unless it is all that is left."""


def all_parses(
    parse: Callable[[SnapshotInput], Parsed],
    data: DataInput,
    start: int,
    stop: int,
    budget: Budget,
    depth: int = 0,
    *,
    tolerant: bool = False,
    first: list[UnknownClass] | None = None,
) -> Iterator[tuple[Parsed, int, bool]]:
    """Each way to parse what begins at ``start`` and ends at ``stop`` or before: the result, its end, and whether a
    length was guessed for it.

    An error is raised as it is if no length was guessed (and the caller is not ``tolerant``: it guessed none before).
    ``first`` gets the first unknown class that is met. Raises `OutOfGuesses`.
    """
    pending: list[Iterator[tuple[int, ...]]] = [iter([()])]
    while pending:
        guesses = next(pending[-1], None)
        if guesses is None:
            pending.pop()
            continue
        if guesses or tolerant:
            budget.spend()
        part = DataInput(data.data, data.path, start, stop)
        source = SnapshotInput(part, guesses, budget, depth=depth, unsure=tolerant)
        try:
            parsed = parse(source)
        except UnknownClass as unknown:
            if first is not None:
                first.append(unknown)
            pending.append(_longer(guesses, unknown, data.data, stop))
        except (CorruptError, UnsupportedError):
            if not guesses and not tolerant:
                raise
        else:
            yield parsed, source.data.at, bool(guesses)


def _longer(guesses: tuple[int, ...], unknown: UnknownClass, data: bytes, stop: int) -> Iterator[tuple[int, ...]]:
    """The guesses with each length for one more class, shortest first.

    Behind a snapshot lies the end, a text (a class, a role, a state) or a number of states. The first two bytes of all
    of these are never more than the bytes behind them.
    """
    left = stop - unknown.at
    part = np.frombuffer(data, np.uint8, min(unknown.most + 2, left, LONGEST), unknown.at).astype(np.int32)
    ahead = (part[:-1] << 8) + part[1:]
    for length in np.flatnonzero(np.arange(ahead.size) + 2 + ahead <= left).tolist():
        yield (*guesses, length)
    if unknown.most == left:
        yield (*guesses, left)
