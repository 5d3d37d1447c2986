"""The compiled walk over objects of Kryo, see ``kryo_walk``, and the loop that keeps what many of them contain."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels import kryo_parts, kryo_walk
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import inlined, kernel
from statestore.formats.kernels.flink_steps import DONE

Matrix = npt.NDArray[np.int64]


def _calling(function: Callable[..., Any], compiled: dict[str, Any]) -> Any:
    """A plain function that calls compiled ones in place of those in its module."""
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **compiled}, function.__name__)


_parts: dict[str, Any] = {}
for _name in ("varint", "varlong", "signed", "wrapped", "fixed", "flagged", "text", "named_form", "local_date",
              "local_time", "class_form"):  # fmt: skip
    _parts[_name] = inlined(_calling(getattr(kryo_parts, _name), _parts))

walk_object: Any = kernel(_calling(kryo_walk.walk_object, _parts))


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
    while cell < len(start):
        status = walk_object(
            data, start[cell], start[cell] + size[cell], True, is_old, forms, registered, names, name_ends, name_forms,
            tape, n, stack, refs, known, reached,
        )  # fmt: skip
        if status != DONE:
            break
        n = reached[1]
        cell += 1
        firsts[cell] = n
    reached[2] = cell
    return status
