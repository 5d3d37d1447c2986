"""Programs: what a reader does to step over records of some shapes, as arrays of numbers.

One loop runs a program over all records, compiled (``flink_kernels``) or not (``plain_walk``), and writes down where
the parts of the wanted values lie. A part's places are rows of numbers: positions, counts, branches. A value that is
null or absent has no places inside it, so the rows of one record have different lengths. `Place` says where the
places of each part of a shape are.

No part of a program is entered again before it has ended, so that a register for each loop takes the place of a
stack. Only records of Avro may contain themselves: their steps are a routine, and a call keeps its registers on a
stack. Nothing is written down inside of a routine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statestore.formats.flink.layouts.shapes import Shape
from statestore.formats.kernels.arrays import Bytes, Ints

NO_ROW = -1


@dataclass(frozen=True)
class Place:
    """Where the places of a shape are: from row ``row``, at ``delta`` bytes behind the positions there."""

    shape: Shape
    row: int = NO_ROW
    delta: int = 0
    parts: tuple[Place | None, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps, a row of numbers for each: step, row, a, b, target, register, c.

    ``places`` has a place for each kind, None where it is not wanted or has no column. ``jumps`` are the targets of
    branches, ``names`` the class names that select some, ``name_ends`` where each ends in them. ``heads`` has for each
    row of places the row that counts them: a string has three numbers, which lie in neighbouring rows.
    """

    steps: npt.NDArray[np.int64]
    jumps: Ints
    names: Bytes
    name_ends: Ints
    heads: tuple[int, ...]
    registers: int
    places: tuple[Place | None, ...]
    shapes: tuple[Shape, ...]
    whose: tuple[str, ...]
    is_straight: bool
    """Whether each step is taken once by each record: numpy can take it for all records at once."""
