"""Compiled loops that find the events of a change feed by the numbers of their keys and times.

A table has the first event of each number, in the slot of the number or in the next free one behind it. Its length is a
power of two above the number of events. Other events of the number follow the first one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.addresses import word_at
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel

Slots = npt.NDArray[np.int32]


@inlined
def _slot(number: Any, slots: Slots) -> Any:
    mixed = (number ^ (number >> U64(32))) * U64(0xC2B2AE3D27D4EB4F)
    return I64((mixed >> U64(32)) & U64(len(slots) - 1))


@kernel
def fill_table(numbers: Hashes, slots: Slots, following: Slots, repeats: Bools, most: int) -> bool:
    """Fill in the table, whose slots and following events are all -1, and mark the events of numbers that repeat.

    Returns False, and leaves the table half filled in, if more than ``most`` events have the same number.
    """
    last = len(slots) - 1
    for event in range(len(numbers)):
        number = numbers[event]
        at = _slot(number, slots)
        while slots[at] >= 0 and numbers[slots[at]] != number:
            at = (at + 1) & last
        if slots[at] >= 0:
            repeats[event] = repeats[slots[at]] = True
            following[event] = slots[at]
            if most < len(numbers):
                count, older = I64(1), slots[at]
                while older >= 0 and count <= most:
                    count += 1
                    older = following[older]
                if count > most:
                    return False
        slots[at] = event
    return True


@kernel
def matches(numbers: Hashes, slots: Slots, following: Slots, probes: Hashes, events: Ints, positions: Ints) -> int:
    """Fill in each event with the number of a probe, and the probe, as far as there is room; return how many there
    are."""
    last, filled, room = len(slots) - 1, 0, len(events)
    for probe in range(len(probes)):
        number = probes[probe]
        at = _slot(number, slots)
        while slots[at] >= 0 and numbers[slots[at]] != number:
            at = (at + 1) & last
        event = slots[at]
        while event >= 0:
            if filled < room:
                events[filled], positions[filled] = event, probe
            filled += 1
            event = following[event]
    return filled


@kernel
def marked(times: int, low: int, high: int, marks: Bools, mix: Any, shift: Any, positions: Ints) -> Any:
    """Fill in the positions of times from ``low`` to ``high`` that have a mark; return how many there are.

    ``times`` is the address of as many times as there is room for. The mark of a time is at its product with ``mix``,
    shifted.
    """
    filled = I64(0)
    for i in range(len(positions)):
        word = word_at(times + 8 * i)
        if low <= I64(word) <= high:
            positions[filled] = i
            filled += I64(marks[(word * mix) >> shift])
    return filled
