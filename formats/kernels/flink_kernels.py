"""The compiled loop that decodes values of Flink by programs, see ``formats.flink.columns.programs``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import I64, kernel, packed
from statestore.formats.kernels.flink_steps import (
    AGAIN,
    BIG,
    BLOCK,
    BLOCK_NEXT,
    BLOCKS,
    BRANCH,
    CALL,
    CONSTANT,
    COUNT,
    DONE,
    END,
    FAIL,
    FIELD,
    FIXED,
    FRAME,
    FRAMED,
    FULL,
    JOIN,
    JOINED,
    JOINER,
    JUMP,
    KEPT,
    KRYO,
    LENGTH,
    MARK,
    MASK,
    MASKED,
    MASKED_NEXT,
    MOST_EMPTY,
    OPAQUE,
    OPTION,
    REST,
    RETURN,
    SHORT,
    SIZED,
    TAG_BYTE,
    TAG_EITHER,
    TAG_INDEX,
    TEXT,
    UNMASKED,
    WRONG,
)
from statestore.formats.kernels.flink_value_parts import int32, named_case, text_end
from statestore.formats.kernels.kryo_forms import KryoArrays
from statestore.formats.kernels.kryo_kernels import walk_part

Matrix = npt.NDArray[np.int64]

_MOST_UNITS = 2**31 - 1


@kernel
def walk(
    steps: Matrix,
    jumps: Ints,
    names: Bytes,
    name_ends: Ints,
    data: Bytes,
    start: Ints,
    stop: Ints,
    framed: bool,
    first: int,
    most: int,
    out: Matrix,
    used: Ints,
    saved: Ints,
    registers: Ints,
    reached: Ints,
    kryo: KryoArrays | None,
) -> int:
    """Run a program over records ``first`` to before ``most`` and fill in their places.

    Framed records lie at ``start[i]`` to ``stop[i]``; others follow one another from ``start[0]`` to at most
    ``stop[0]``. Returns why it ended: DONE, or FULL, SHORT, WRONG or OPAQUE of the first record that is not done.
    ``reached`` becomes the number of that record, its position and the entries of Kryo's tape, ``used`` how many places
    each row has. Without ``kryo`` the loop is compiled in a sixth of the time.
    """
    room = out.shape[1]
    status = DONE
    i = first
    at, end = I64(0), I64(0)
    if not framed:
        at, end = start[0], stop[0]
    begin = at
    entries, kept_entries = I64(0), I64(0)
    if kryo is not None:
        arrays, parts, behind_object = packed(data, kryo), kryo.rows, kryo.reached
        has_tape = kryo.tape.shape[1] > 0
    while i < most and status == DONE:
        if framed:
            at, end = start[i], stop[i]
        begin = at
        for k in range(len(used)):
            saved[k] = used[k]
        kept_entries = entries
        pc = 0
        while True:
            step, row, a = steps[pc, 0], steps[pc, 1], steps[pc, 2]
            if row >= 0 and used[row] >= room:
                status = FULL
                break
            if step == FIXED:
                if a > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = at
                    used[row] += 1
                at += a
            elif step == TEXT:
                units, shift = I64(0), 0
                while True:
                    if at >= end:
                        status = SHORT
                        break
                    byte = I64(data[at])
                    at += 1
                    units |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28:
                        status = WRONG
                        break
                if status != DONE:
                    break
                units += a
                if units - 1 > _MOST_UNITS:
                    status = WRONG
                    break
                behind = at
                if units > 1:
                    behind = text_end(data, at, end, units - 1)
                    if behind < 0:
                        status = -behind
                        break
                if row >= 0:
                    number = used[row]
                    out[row, number] = at
                    out[row + 1, number] = units
                    out[row + 2, number] = behind
                    used[row] = number + 1
                at = behind
            elif step == OPTION:
                if at >= end:
                    status = SHORT
                    break
                flag = I64(data[at])
                at += 1
                if flag > 1:
                    status = WRONG
                    break
                if row >= 0:
                    out[row, used[row]] = I64(flag != a)
                    used[row] += 1
                if flag == a:
                    padding = steps[pc, 3]
                    if padding > end - at:
                        status = SHORT
                        break
                    at = end if padding < 0 else at + padding
                    pc = steps[pc, 4]
                    continue
            elif step == SIZED:
                width = steps[pc, 3]
                if end - at < width:
                    status = SHORT
                    break
                count = int32(data, at) if width >= 4 else I64(data[at]) << 8 | I64(data[at + 1])
                if width == 8 and count >= 0:
                    further = int32(data, at + 4)
                    count = count + further if further >= 0 else further
                at += width
                if count < 0:
                    status = WRONG
                    break
                if count * a > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = at
                    out[row + 1, used[row]] = count
                    used[row] += 1
                at += count * a
            elif step == COUNT:
                if end - at < 4:
                    status = SHORT
                    break
                count = int32(data, at)
                at += 4
                if count < 0 or (a == 0 and count > MOST_EMPTY):
                    status = WRONG
                    break
                if count * a > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = count
                    used[row] += 1
                if count == 0:
                    pc = steps[pc, 4]
                    continue
                registers[steps[pc, 5]] = count
            elif step == AGAIN:
                registers[steps[pc, 5]] -= 1
                if registers[steps[pc, 5]] > 0:
                    pc = steps[pc, 4]
                    continue
            elif step == END:
                break
            elif step == BRANCH:
                case = I64(-1)
                cases = steps[pc, 4]
                if a == TAG_INDEX:
                    if end - at < 4:
                        status = SHORT
                        break
                    case = int32(data, at)
                    at += 4
                else:
                    if at >= end:
                        status = SHORT
                        break
                    flag = I64(data[at])
                    at += 1
                    if a == TAG_EITHER:
                        case = 1 - flag
                    elif a == TAG_BYTE:
                        tags = steps[pc, 5]
                        for k in range(cases):
                            if jumps[tags + k] == flag:
                                case = I64(k)
                    elif flag == 1 or flag == 2:
                        case = flag - 1
                    elif flag == 4:
                        if end - at < 2:
                            status = SHORT
                            break
                        size = I64(data[at]) << 8 | I64(data[at + 1])
                        at += 2
                        if size > end - at:
                            status = SHORT
                            break
                        case = 2 + named_case(data, at, size, names, name_ends, steps[pc, 5], steps[pc, 6])
                        if case < 2:
                            status = OPAQUE
                            break
                        at += size
                    elif flag == 8:
                        if at >= end:
                            status = SHORT
                            break
                        case = 2 + steps[pc, 6] + I64(data[at])
                        at += 1
                if case < 0 or case >= cases:
                    status = WRONG
                    break
                if row >= 0:
                    out[row, used[row]] = case
                    used[row] += 1
                pc = jumps[steps[pc, 3] + case]
                continue
            elif step == JUMP:
                pc = steps[pc, 4]
                continue
            elif step == FIELD:
                if data[registers[steps[pc, 5]] + (a >> 3)] >> (7 - (a & 7)) & 1 != 0:
                    pc = steps[pc, 4]
                    continue
            elif step == MASK:
                if a > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = at
                    used[row] += 1
                registers[steps[pc, 5]] = at
                at += a
            elif step == BIG:
                if end - at < 4:
                    status = SHORT
                    break
                count = int32(data, at)
                at += 4
                if count < 0:
                    status = WRONG
                    break
                size = max(count - 4, 0)
                if a != 0 and count > 0:
                    size += 4
                if size > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = at
                    out[row + 1, used[row]] = count
                    used[row] += 1
                at += size
            elif step == CONSTANT:
                if at >= end:
                    status = SHORT
                    break
                if data[at] != a:
                    status = WRONG
                    break
                at += 1
            elif step == JOIN:
                registers[steps[pc, 5]] = 0
            elif step == JOINED:
                registers[steps[pc, 5]] += 1
                if at < end:
                    if data[at] != JOINER:
                        status = WRONG
                        break
                    at += 1
                    pc = steps[pc, 4]
                    continue
                if row >= 0:
                    out[row, used[row]] = registers[steps[pc, 5]]
                    used[row] += 1
            elif step == MARK:
                registers[steps[pc, 5]] = at
            elif step == LENGTH:
                size = at - registers[steps[pc, 5]]
                while True:
                    if at >= end:
                        status = SHORT
                        break
                    if I64(data[at]) != size & 0xFF:
                        status = WRONG
                        break
                    at += 1
                    size >>= 8
                    if size == 0:
                        break
                if status != DONE:
                    break
            elif step == KRYO:
                if kryo is not None:
                    status = walk_part(
                        arrays, a, at, end, parts[a, 0] == 1, entries, row >= 0 and has_tape, i == first, behind_object
                    )
                    if status == DONE:
                        if row >= 0:
                            out[row, used[row]] = at
                            out[row + 1, used[row]] = behind_object[0] - at
                            out[row + 2, used[row]] = behind_object[2]
                            used[row] += 1
                            entries = behind_object[1]
                        at = behind_object[0]
                if status != DONE:
                    break
            elif step == REST:
                if row >= 0:
                    out[row, used[row]] = at
                    out[row + 1, used[row]] = end - at
                    used[row] += 1
                at = end
            elif step == BLOCKS:
                registers[steps[pc, 5]] = 0
            elif step == BLOCK:
                count, shift = I64(0), 0
                while True:
                    if at >= end:
                        status = SHORT
                        break
                    byte = I64(data[at])
                    at += 1
                    count |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28:
                        status = WRONG
                        break
                if status != DONE:
                    break
                if count > _MOST_UNITS + 1:
                    status = WRONG
                    break
                register = steps[pc, 5]
                total = registers[register] + count
                if a == 0 and total > MOST_EMPTY:
                    status = WRONG
                    break
                if count * a > end - at:
                    status = SHORT
                    break
                if count == 0:
                    if row >= 0:
                        out[row, used[row]] = total
                        used[row] += 1
                    pc = steps[pc, 4]
                    continue
                registers[register] = total
                registers[register + 1] = count
            elif step == BLOCK_NEXT:
                register = steps[pc, 5] + 1
                registers[register] -= 1
                pc = steps[pc, 4] if registers[register] > 0 else steps[pc, 3]
                continue
            elif step == MASKED:
                if end - at < 4:
                    status = SHORT
                    break
                count = int32(data, at)
                at += 4
                if count < 0:
                    status = WRONG
                    break
                if (count + 7) >> 3 > end - at:
                    status = SHORT
                    break
                if row >= 0:
                    out[row, used[row]] = count
                    out[row + 1, used[row]] = at
                    used[row] += 1
                register = steps[pc, 5]
                registers[register] = count
                registers[register + 1] = 0
                registers[register + 2] = at
                at += (count + 7) >> 3
                if count == 0:
                    pc = steps[pc, 4]
                    continue
            elif step == UNMASKED:
                register = steps[pc, 5]
                bit = registers[register + 1]
                if data[registers[register + 2] + (bit >> 3)] >> (7 - (bit & 7)) & 1 != 0:
                    pc = steps[pc, 4]
                    continue
            elif step == MASKED_NEXT:
                register = steps[pc, 5]
                registers[register] -= 1
                registers[register + 1] += 1
                if registers[register] > 0:
                    pc = steps[pc, 4]
                    continue
            elif step == FRAME:
                if end - at < 4:
                    status = SHORT
                    break
                count = int32(data, at)
                at += 4
                if count < 0:
                    status = WRONG
                    break
                if count > end - at:
                    status = SHORT
                    break
                registers[steps[pc, 5]] = at + count
                registers[steps[pc, 5] + 1] = 0
                if a != 0 and count == 0:
                    if row >= 0:
                        out[row, used[row]] = 0
                        used[row] += 1
                    pc = steps[pc, 4]
                    continue
            elif step == FRAMED:
                register = steps[pc, 5]
                registers[register + 1] += 1
                if a != 0 and at < registers[register]:
                    pc = steps[pc, 4]
                    continue
                if at != registers[register]:
                    status = WRONG
                    break
                if row >= 0:
                    out[row, used[row]] = registers[register + 1]
                    used[row] += 1
            elif step == KEPT:
                position = registers[steps[pc, 5]]
                out[row, used[row]] = position
                out[row + 1, used[row]] = at - position
                used[row] += 1
            elif step == CALL:
                size, top = steps[pc, 3] + 1, steps[pc, 5]
                frame = top + 1 + registers[top]
                if registers[top] + size > steps[pc, 6]:
                    status = OPAQUE
                    break
                registers[frame] = pc + 1
                for k in range(size - 1):
                    registers[frame + 1 + k] = registers[a + k]
                registers[top] += size
                pc = steps[pc, 4]
                continue
            elif step == RETURN:
                size, top = steps[pc, 3] + 1, steps[pc, 5]
                registers[top] -= size
                frame = top + 1 + registers[top]
                for k in range(size - 1):
                    registers[a + k] = registers[frame + 1 + k]
                pc = registers[frame]
                continue
            elif step == FAIL:
                status = OPAQUE
                break
            else:
                status = WRONG
                break
            pc += 1
        if status == DONE and framed and at != end:
            status = WRONG
        if status == DONE:
            i += 1
    if status != DONE:
        for k in range(len(used)):
            used[k] = saved[k]
        at, entries = begin, kept_entries
    reached[0], reached[1], reached[2] = i, at, entries
    return status
