"""Ends of Avro records that lie one after another, by a program of what to skip.

A step is ``(what, number, number)``:

    END                    the record ends here
    SKIP size              so many bytes
    VARINT                 a variable-length integer
    BYTES                  a length and so many bytes
    CHOOSE first count     the branch of a union; its step is in ``choices`` behind ``first``
    GO step                go on there
    BLOCK level step       the count of a block of an array or a map; 0 ends it and goes on at the step
    NEXT level step        behind an entry: the next one begins at the step, or else the next block

No count is trusted: each entry must move on, so a record takes no more steps than its bytes allow.
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, U64, inlined, kernel

END, SKIP, VARINT, BYTES, CHOOSE, GO, BLOCK, NEXT = range(8)


@inlined
def _varlong(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """A zig-zag varint and the position behind it, -1 where there is none."""
    raw, shift = U64(0), U64(0)
    while True:
        if at >= stop:
            return I64(0), I64(-1)
        byte = U64(data[at])
        at += 1
        if shift == U64(63) and byte > U64(1):
            return I64(0), I64(-1)
        raw |= (byte & U64(127)) << shift
        if byte < U64(128):
            break
        shift += U64(7)
    return I64(raw >> U64(1)) ^ -I64(raw & U64(1)), I64(at)


@kernel
def record_ends(data: Bytes, steps: Ints, choices: Ints, left: Ints, began: Ints, ends: Ints) -> int:
    """Write where each record ends into ``ends``; return how many records are whole.

    ``steps`` has three numbers for each step; ``left`` and ``began`` have room for each level of blocks.
    """
    stop = I64(len(data))
    at = I64(0)
    for row in range(len(ends)):
        step = I64(0)
        while True:
            what, first, second = steps[step * 3], steps[step * 3 + 1], steps[step * 3 + 2]
            step += 1
            if what == END:
                break
            if what == SKIP:
                if first > stop - at:
                    return row
                at += first
            elif what == GO:
                step = first
            elif what == NEXT:
                if at == began[first]:
                    return row
                left[first] -= 1
                began[first] = at
                # A block of the array follows the last entry; its step lies before the first one.
                step = second if left[first] > 0 else second - 1
            else:
                number, at = _varlong(data, at, stop)
                if at < 0:
                    return row
                if what == BYTES:
                    if number < 0 or number > stop - at:
                        return row
                    at += number
                elif what == CHOOSE:
                    if number < 0 or number >= second:
                        return row
                    step = choices[first + number]
                elif what == BLOCK:
                    if number < 0:
                        number = -number
                        _, at = _varlong(data, at, stop)
                        if at < 0 or number < 0:
                            return row
                    left[first] = number
                    began[first] = at
                    if number == 0:
                        step = second
        ends[row] = at
    return len(ends)
