"""The compiled walk over objects of Kryo, see ``kryo_walk``, and the loop that keeps what many of them contain."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels import kryo_leaves, kryo_parts, kryo_walk
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import inlined_once, kernel, merged, unowned
from statestore.formats.kernels.flink_steps import DONE, FULL

Matrix = npt.NDArray[np.int64]


def _calling(function: Callable[..., Any], compiled: dict[str, Any]) -> Any:
    """A plain function that calls compiled ones in place of those in its module."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **compiled}, function.__name__)


_parts: dict[str, Any] = {}
for _name in ("varint", "varlong", "signed", "wrapped", "fixed", "flagged", "text", "named_form", "local_date",
              "local_time", "date_or_time", "class_form", "usual_leaf", "sized", "instant_or_id", "maybe",
              "moment", "field_number", "class_object"):  # fmt: skip
    _parts[_name] = inlined_once(_calling(getattr(kryo_parts, _name), _parts))
for _name in ("put", "put_part", "repeat", "bits", "deltas", "constants", "numbers", "date_part", "date_time",
              "named_leaf", "one_number"):  # fmt: skip
    _parts[_name] = inlined_once(_calling(getattr(kryo_leaves, _name), _parts))

walk_object: Any = merged(_calling(kryo_walk.walk_object, _parts))


@kernel
def walk_cells(
    data: Bytes,
    start: Ints,
    size: Ints,
    cell: int,
    is_old: bool,
    forms: Matrix,
    registered: Ints,
    names: Bytes,
    name_ends: Ints,
    name_forms: Ints,
    tape: Matrix,
    firsts: Ints,
    stack: Matrix,
    refs: Ints,
    known: Ints,
    reached: Ints,
) -> int:
    """Walk over one object in each cell from ``cell`` on; ``firsts`` gets the first entry of each on the tape.

    Returns DONE, or the status of the first cell that is not done; ``reached[2]`` becomes its number.
    """
    n = firsts[cell]
    status = DONE
    octets, classes, numbers = unowned(data), unowned(forms), unowned(registered)
    texts, ends, found = unowned(names), unowned(name_ends), unowned(name_forms)
    entries, kept, objects, named, at = unowned(tape), unowned(stack), unowned(refs), unowned(known), unowned(reached)
    while cell < len(start):
        status = walk_object(
            octets, start[cell], start[cell] + size[cell], True, is_old, classes, numbers, texts, ends, found,
            entries, n, kept, objects, named, at,
        )  # fmt: skip
        if status != DONE:
            break
        n = reached[1]
        cell += 1
        firsts[cell] = n
    reached[2] = cell
    return status


@merged
def walk_part(
    data: Bytes,
    at: int,
    end: int,
    part: Ints,
    number: int,
    forms: Matrix,
    registered: Ints,
    names: Bytes,
    name_ends: Ints,
    name_forms: Ints,
    tape: Matrix,
    first: int,
    keep: bool,
    is_only: bool,
    stack: Matrix,
    refs: Ints,
    known: Matrix,
    reached: Ints,
) -> int:
    """Walk over one object of Kryo in a record, as `walk_object`, by the forms of which ``part`` tells the places.

    ``keep``: write it to ``tape`` from entry ``first`` on where there is room. ``reached`` becomes the position behind
    it, the entry behind it, and ``first``, or -1 for an object that is not on the tape. Returns FULL where the next
    tape has room for the object, unless it ``is_only`` one.
    """
    own = (forms[part[1] : part[2]], registered[part[3] : part[4]], names[part[5] : part[6]],
           name_ends[part[7] : part[8]], name_forms[part[9] : part[10]])  # fmt: skip
    status: int = DONE
    kept = keep and tape.shape[1] > 0
    while True:  # one call, as the compiler then makes it a part of the loop over records, which halves its time
        status = walk_object(
            data, at, end, kept, part[0] == 1, own[0], own[1], own[2], own[3], own[4], tape, first, stack, refs,
            known[number], reached,
        )  # fmt: skip
        if not kept:
            break
        if status == DONE:
            reached[2] = first
            return status
        if status == FULL and not is_only:
            return status
        # Only this says whether the object can be stepped over: one that contains itself can, and has no end on a tape.
        kept = False
    reached[1], reached[2] = first, -1
    return status
