"""Keys of changes where nothing says their type: what precedes a namespace and values that end where the change does.

A key is told from what follows it where only one length leaves bytes that are a namespace and a value. The true length
always does, so that a single one is the true one. Each length is tried for each change, which is slow; so only a
changelog of some thousands of changes is read without the type of its keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.columns.faults import Opacity, Wrong
from statestore.formats.flink.columns.program_interpreter import ProgramInterpreter
from statestore.formats.flink.columns.program_writer import program_of
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.kernels.arrays import Bytes, Ints

_MOST_BYTES = 1 << 22
"""Bytes of all changes; a try takes about a microsecond."""


UNTOLD = -1


def key_sizes(
    cells: Cells, operations: Bytes, behind: Mapping[int, Sequence[FlinkType]], known: Collection[bytes] = ()
) -> Ints:
    """The bytes of the key at the start of each change, `UNTOLD` where they cannot be told.

    ``behind`` has the types of what follows, by operation. A change that begins with one of the ``known`` keys has that
    key, because a serializer reads no further than a value goes.
    """
    sizes = np.full(len(cells), UNTOLD)
    for operation in np.unique(operations).tolist():
        mine = np.flatnonzero(operations == operation)
        kinds = behind.get(operation)
        if kinds is None or int(cells.size.sum()) > _MOST_BYTES:
            continue
        try:
            program = program_of(tuple(kinds), (False,) * len(kinds), True)
        except UnsupportedError:
            continue
        walk = ProgramInterpreter(program, cells.data.data)
        sizes[mine] = [
            _only_size(walk, start, start + size)
            for start, size in zip(cells.start[mine].tolist(), cells.size[mine].tolist(), strict=True)
        ]
    lengths = sorted({len(each) for each in known})
    for place in np.flatnonzero(sizes == UNTOLD).tolist() if lengths else ():
        change = cells.cell(place)
        sizes[place] = next((length for length in lengths if change[:length] in known), UNTOLD)
    return sizes


def _only_size(walk: ProgramInterpreter, start: int, end: int) -> int:
    found = UNTOLD
    for at in range(start, end + 1):
        try:
            walk.record(at, end, True)
        except Wrong:
            continue
        except Opacity:
            return UNTOLD
        if found != UNTOLD:
            return UNTOLD
        found = at - start
    return found


def untold_keys(changes: int, origin: str) -> UnsupportedError:
    """The error for changes of which the keys cannot be told."""
    return UnsupportedError(
        ErrorCode.FLINK_OPAQUE,
        f"{origin}: found {changes} changes in a changelog that does not say the type of keys, and that can be divided "
        "into key and value in several ways; give the type of keys (--type 'STATE.key=...'), or read a checkpoint from "
        "after the job has materialized its state, or a canonical savepoint",
    )
