"""The compiled walk over objects of Kryo, see ``kryo_walk``, and the loop that keeps what many of them contain."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from statestore.formats.kernels import kryo_leaves, kryo_parts, kryo_walk
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import inlined_once, kernel, merged, packed, unpacked
from statestore.formats.kernels.flink_steps import DONE, FULL
from statestore.formats.kernels.kryo_forms import KryoArrays


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


@merged
def _arrays_of(arrays: Any, part: int) -> Any:
    """The arrays of one part; those of forms have all parts one behind the other."""
    data, rows, forms, registered, names, name_ends, name_forms, stack, known, refs, tape, reached = unpacked(arrays)
    row = rows[part]
    return (
        data, forms[row[1] : row[2]], registered[row[3] : row[4]], names[row[5] : row[6]], name_ends[row[7] : row[8]],
        name_forms[row[9] : row[10]], tape, stack, refs, known[part], reached,
    )  # fmt: skip


_parts["arrays_of"] = _arrays_of
walk_object: Any = inlined_once(_calling(kryo_walk.walk_object, _parts))
"""The walk, compiled once for all loops that call it: it takes more time to compile than all else about Kryo."""


@kernel
def walk_cells(data: Bytes, start: Ints, size: Ints, cell: int, kryo: KryoArrays, firsts: Ints) -> int:
    """Walk over one object in each cell from ``cell`` on; ``firsts`` gets the first entry of each on the tape.

    Returns DONE, or the status of the first cell that is not done; the third number that is reached becomes its number.
    """
    n = firsts[cell]
    status = DONE
    arrays = packed(data, kryo)
    is_old, reached = kryo.rows[0, 0] == 1, kryo.reached
    while cell < len(start):
        status = walk_object(arrays, 0, start[cell], start[cell] + size[cell], True, is_old, n)
        if status != DONE:
            break
        n = reached[1]
        cell += 1
        firsts[cell] = n
    reached[2] = cell
    return status


@merged
def walk_part(
    arrays: Any,
    number: int,
    at: int,
    end: int,
    is_old: bool,
    first: int,
    keep: bool,
    is_only: bool,
    reached: Ints,
) -> int:
    """Walk over one object of Kryo in a record, as `walk_object`, by the forms of a part of ``arrays``.

    ``keep``: write it to the tape from entry ``first`` on where there is room. ``reached`` becomes the position behind
    it, the entry behind it, and ``first``, or -1 for an object that is not on the tape. Returns FULL where the next
    tape has room for the object, unless it ``is_only`` one.
    """
    status: int = DONE
    kept = keep
    while True:
        status = walk_object(arrays, number, at, end, kept, is_old, first)
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
