"""Notes of what values of Kryo are like, which reads of some rows take: their types, and parts that cannot be read.

Reads have threads of their own, so the place in a part's type says who takes notes of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from statestore.formats.flink.columns.kryo_columns import type_of
from statestore.formats.flink.columns.kryo_object_types import type_of_both
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.flink.serializers.flink_types import KryoOf

MOST_OCTETS = 1 << 16
"""Bytes that are kept of a value that was not read to its end."""


@dataclass
class Notes:
    """The types of the values by the place of their part of a type, and the places of which values are opaque.

    These have the class that stands in the way, None where it is not known. ``octets`` are those of the first value
    that was not read to its end, from its begin on and not all of what may follow, by the place of its part.
    """

    types: dict[int, pa.DataType] = field(default_factory=dict)
    opaque: dict[int, str | None] = field(default_factory=dict)
    octets: dict[int, bytes] = field(default_factory=dict)


_numbers = itertools.count()
_taken: dict[int, Notes] = {}


@contextmanager
def taking_notes(count: int) -> Iterator[tuple[list[int], Notes]]:
    """So many places that no other part has, and the notes that reads take of them meanwhile."""
    places = [next(_numbers) for _ in range(count)]
    notes = Notes()
    _taken.update(dict.fromkeys(places, notes))
    try:
        yield places, notes
    finally:
        for place in places:
            del _taken[place]


def note_type(kind: KryoOf, tape: Tape) -> None:
    """Note the type of values."""
    notes = _taken.get(kind.place)
    if notes is not None:
        notes.types[kind.place] = type_of_both(notes.types.get(kind.place, pa.null()), type_of(tape))


def note_opaque(kind: KryoOf, name: str | None) -> None:
    """Note that a value is, or holds one, of a class whose form is not public, and the class where it is known."""
    notes = _taken.get(kind.place)
    if notes is not None:
        notes.opaque.setdefault(kind.place, name)


def note_octets(kind: KryoOf, octets: memoryview) -> None:
    """Note bytes that begin with a value which was not read to its end."""
    notes = _taken.get(kind.place)
    if notes is not None:
        notes.octets.setdefault(kind.place, bytes(octets[:MOST_OCTETS]))
