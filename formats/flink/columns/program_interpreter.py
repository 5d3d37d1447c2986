"""The loop of ``flink_kernels`` in Python, which runs a program without compilation: for small states, and where numba
is absent.

It also says what is wrong with bytes that the compiled loop refuses.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct

from statestore.formats.flink.columns.faults import Opacity, Short, Wrong
from statestore.formats.flink.columns.kryo_survey import note_octets, note_opaque
from statestore.formats.flink.columns.kryo_tapes import Scratch, end_of, forms_of, unknown_class
from statestore.formats.flink.columns.kryo_thrown import is_thrown, thrown
from statestore.formats.flink.columns.program_writer import Program
from statestore.formats.flink.layouts.class_remedies import in_the_way, remedy_for
from statestore.formats.flink.layouts.type_layouts import whose
from statestore.formats.flink.serializers.subclasses import remedy_for as remedy_for_subclass
from statestore.formats.kernels import flink_steps as steps

_INT32 = Struct(">i")
_ENOUGH = 1 << 16  # places in one row


class ProgramInterpreter:
    """One program run over records in ``data``; ``out`` has the places of each row."""

    def __init__(self, program: Program, data: memoryview) -> None:
        self._steps: list[list[int]] = program.steps.tolist()
        self._jumps: list[int] = program.jumps.tolist()
        self._whose, self._kinds = program.whose, program.kryo
        self._scratch: dict[int, Scratch] = {}
        names, ends = program.names.tobytes(), program.name_ends.tolist()
        self._names = [names[begin:end] for begin, end in pairwise(ends)]
        self._registers = [0] * program.registers
        self._sizes = {2: self._short_count, 4: self._count, 8: self._two_counts}
        self._data = data
        self.out: list[list[int]] = [[] for _ in range(len(program.heads))]

    def is_full(self) -> bool:
        """Return whether there are enough places for one batch."""
        return any(len(row) >= _ENOUGH for row in self.out)

    def record(self, at: int, end: int, framed: bool) -> int:
        """Step over one record and return the position behind it.

        Raises Wrong, Short if the data ends inside it, Opacity for a part that cannot be decoded; the places of the
        record are then gone.
        """
        before = [len(row) for row in self.out]
        try:
            at = self._record(at, end)
            if framed and at != end:
                raise Wrong(f"{end - at} bytes behind the value", "none")
            return at
        except (Wrong, Opacity):
            for row, size in zip(self.out, before, strict=True):
                del row[size:]
            raise

    def _record(self, at: int, end: int) -> int:
        pc, data, out, registers = 0, self._data, self.out, self._registers
        while True:
            step, row, a, b, target, register, c = self._steps[pc]
            pc += 1
            if step == steps.FIXED:
                if a > end - at:
                    raise Short(a, end - at)
                if row >= 0:
                    out[row].append(at)
                at += a
            elif step == steps.TEXT:
                units, at = self._varint(at, end, a)
                behind = at if units < 2 else self._text_end(at, end, units - 1)
                if row >= 0:
                    out[row].append(at)
                    out[row + 1].append(units)
                    out[row + 2].append(behind)
                at = behind
            elif step == steps.OPTION:
                flag, at = self._flag(at, end)
                if row >= 0:
                    out[row].append(int(flag != a))
                if flag == a:
                    if b > end - at:
                        raise Short(b, end - at)
                    at, pc = end if b < 0 else at + b, target
            elif step == steps.SIZED:
                count, at = self._sizes[b](at, end, a)
                if row >= 0:
                    out[row].append(at)
                    out[row + 1].append(count)
                at += count * a
            elif step == steps.COUNT:
                count, at = self._count(at, end, a)
                if row >= 0:
                    out[row].append(count)
                registers[register] = count
                if not count:
                    pc = target
            elif step == steps.AGAIN:
                registers[register] -= 1
                if registers[register]:
                    pc = target
            elif step == steps.END:
                return at
            elif step == steps.BRANCH:
                case, at = self._case(at, end, a, register, c, target, b)
                if not 0 <= case < target:
                    raise Wrong(f"branch {case}", f"one of {target}")
                if row >= 0:
                    out[row].append(case)
                pc = self._jumps[b + case]
            elif step == steps.JUMP:
                pc = target
            elif step == steps.FIELD:
                if data[registers[register] + (a >> 3)] >> (7 - (a & 7)) & 1:
                    pc = target
            elif step == steps.MASK:
                if a > end - at:
                    raise Short(a, end - at)
                if row >= 0:
                    out[row].append(at)
                registers[register] = at
                at += a
            elif step == steps.BIG:
                count, at = self._int32(at, end)
                size = max(count - 4, 0) + (4 if a and count else 0)
                if count < 0:
                    raise Wrong(f"length {count} of a number", "0 or more")
                if size > end - at:
                    raise Short(size, end - at)
                if row >= 0:
                    out[row].append(at)
                    out[row + 1].append(count)
                at += size
            elif step == steps.CONSTANT:
                if at >= end:
                    raise Short(1, 0)
                if data[at] != a:
                    raise Wrong(f"byte {data[at]} for a void value or the mark of an entry", f"byte {a}")
                at += 1
            elif step == steps.JOIN:
                registers[register] = 0
            elif step == steps.JOINED:
                registers[register] += 1
                if at < end:
                    if data[at] != steps.JOINER:
                        raise Wrong(f"byte {data[at]:02x} behind an element", f"byte {steps.JOINER:02x} or the end")
                    at, pc = at + 1, target
                elif row >= 0:
                    out[row].append(registers[register])
            elif step == steps.BLOCKS:
                registers[register] = 0
            elif step == steps.BLOCK:
                count, at = self._varint(at, end)
                registers[register] += count
                registers[register + 1] = count
                _check(registers[register] if not a else count, a, end - at)
                if not count:
                    if row >= 0:
                        out[row].append(registers[register])
                    pc = target
            elif step == steps.BLOCK_NEXT:
                registers[register + 1] -= 1
                pc = target if registers[register + 1] else b
            elif step == steps.MASKED:
                count, at = self._int32(at, end)
                if count < 0:
                    raise Wrong(f"count {count}", "0 or more")
                if (count + 7) // 8 > end - at:
                    raise Short((count + 7) // 8, end - at)
                if row >= 0:
                    out[row].append(count)
                    out[row + 1].append(at)
                registers[register : register + 3] = count, 0, at
                at += (count + 7) // 8
                if not count:
                    pc = target
            elif step == steps.UNMASKED:
                bit = registers[register + 1]
                if data[registers[register + 2] + (bit >> 3)] >> (7 - (bit & 7)) & 1:
                    pc = target
            elif step == steps.MASKED_NEXT:
                registers[register] -= 1
                registers[register + 1] += 1
                if registers[register]:
                    pc = target
            elif step == steps.FRAME:
                size, at = self._count(at, end, 1)
                registers[register : register + 2] = at + size, 0
                if a and not size:
                    if row >= 0:
                        out[row].append(0)
                    pc = target
            elif step == steps.FRAMED:
                registers[register + 1] += 1
                if a and at < registers[register]:
                    pc = target
                elif at != registers[register]:
                    raise _misfit(registers[register] - at)
                elif row >= 0:
                    out[row].append(registers[register + 1])
            elif step == steps.MARK:
                registers[register] = at
            elif step == steps.LENGTH:
                at = self._length(at, end, at - registers[register])
            elif step == steps.KEPT:
                out[row].append(registers[register])
                out[row + 1].append(at - registers[register])
            elif step == steps.CALL:
                used = registers[register]
                if used + b + 1 > c:
                    raise Opacity(f"a record that contains itself more than {c // (b + 1)} times")
                frame = register + 1 + used
                registers[frame : frame + b + 1] = pc, *registers[a : a + b]
                registers[register], pc = used + b + 1, target
            elif step == steps.RETURN:
                registers[register] -= b + 1
                frame = register + 1 + registers[register]
                pc, *registers[a : a + b] = registers[frame : frame + b + 1]
            elif step == steps.KRYO:
                behind = self._kryo(a, at, end)
                if row >= 0:
                    out[row].append(at)
                    out[row + 1].append(behind - at)
                    out[row + 2].append(-1)
                at = behind
            elif step == steps.REST:
                if row >= 0:
                    out[row].append(at)
                    out[row + 1].append(end - at)
                at = end
            else:
                named, remedy = self._whose[a : a + 2]
                raise Opacity(named, remedy)

    def _kryo(self, number: int, at: int, end: int) -> int:
        kind = self._kinds[number]
        if number not in self._scratch:
            self._scratch[number] = Scratch(0)
        try:
            return end_of(forms_of(kind), self._data, at, end, self._scratch[number])
        except Wrong:
            note_octets(kind, self._data[at:end])
            raise
        except Opacity:
            found = thrown(self._data, at, end) if is_thrown(kind) else None
            if found is not None:
                return found[1]
            name = unknown_class(self._data, self._scratch[number])
            note_octets(kind, self._data[at:end])
            note_opaque(kind, name)
            raise Opacity(
                f"an object of {whose(kind)} of {f'class {name}' if name else 'a class'}, whose form is not public",
                remedy_for(kind, name),
                in_the_way(kind, name),
            ) from None

    def _int32(self, at: int, end: int) -> tuple[int, int]:
        if end - at < _INT32.size:
            raise Short(_INT32.size, end - at)
        return _INT32.unpack_from(self._data, at)[0], at + _INT32.size

    def _count(self, at: int, end: int, least: int) -> tuple[int, int]:
        count, at = self._int32(at, end)
        if count < 0:
            raise Wrong(f"count {count}", "0 or more")
        _check(count, least, end - at)
        return count, at

    def _short_count(self, at: int, end: int, least: int) -> tuple[int, int]:
        if end - at < 2:
            raise Short(2, end - at)
        count = self._data[at] << 8 | self._data[at + 1]
        _check(count, least, end - at - 2)
        return count, at + 2

    def _two_counts(self, at: int, end: int, least: int) -> tuple[int, int]:
        """The sum of two counts, which stand one behind the other."""
        first, at = self._int32(at, end)
        second, at = self._int32(at, end)
        if first < 0 or second < 0:
            raise Wrong(f"count {min(first, second)}", "0 or more")
        _check(first + second, least, end - at)
        return first + second, at

    def _flag(self, at: int, end: int) -> tuple[int, int]:
        if at >= end:
            raise Short(1, 0)
        if self._data[at] > 1:
            raise Wrong(f"byte {self._data[at]} for a boolean", "0 or 1")
        return self._data[at], at + 1

    def _varint(self, at: int, end: int, more: int = 0) -> tuple[int, int]:
        """A varint and ``more``, at most 2**31."""
        value = shift = 0
        while True:
            if at >= end:
                raise Short(1, 0)
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Wrong("a length of more than 5 bytes", "at most 5")
        if value + more > 2**31:
            raise Wrong(f"length {value}", f"at most {2**31 - 1}")
        return value + more, at

    def _text_end(self, at: int, end: int, units: int) -> int:
        if units > end - at:
            raise Short(units, end - at)
        data = self._data
        if bytes(data[at : at + units]).isascii():
            return at + units
        for _ in range(units):
            size = 1
            while at + size <= end and data[at + size - 1] >= 0x80 and size < 3:
                size += 1
            if at + size > end:
                raise Short(size, end - at)
            if size == 3 and data[at + 2] > 3:
                raise Wrong("a character of more than 16 bits", "at most 16")
            at += size
        return at

    def _case(self, at: int, end: int, tag: int, first_name: int, names: int, cases: int, base: int) -> tuple[int, int]:
        if tag == steps.TAG_INDEX:
            return self._int32(at, end)
        if at >= end:
            raise Short(1, 0)
        flag = self._data[at]
        at += 1
        if tag == steps.TAG_EITHER:
            return 1 - flag, at
        if tag == steps.TAG_BYTE:
            tags = self._jumps[first_name : first_name + cases]
            if flag not in tags:
                raise Wrong(f"tag {flag}", f"one of {tags}")
            return tags.index(flag), at
        if flag in (1, 2):
            return flag - 1, at
        if flag == 4:
            if end - at < 2:
                raise Short(2, end - at)
            size = self._data[at] << 8 | self._data[at + 1]
            at += 2
            if size > end - at:
                raise Short(size, end - at)
            name = bytes(self._data[at : at + size])
            known = self._names[first_name : first_name + names]
            if name not in known:
                subclass = name.decode("utf-8", "backslashreplace")
                raise Opacity(
                    f"subclass {subclass!r} (the file has no snapshot of it)",
                    remedy_for_subclass(subclass, self._whose[self._jumps[base + cases]]),
                )
            return 2 + known.index(name), at + size
        if flag == 8:
            if at >= end:
                raise Short(1, 0)
            return 2 + names + self._data[at], at + 1
        raise Wrong(f"flags {flag} of a POJO", "1, 2, 4 or 8")

    def _length(self, at: int, end: int, size: int) -> int:
        expected = size.to_bytes(max(1, (size.bit_length() + 7) // 8), "little")
        for byte in expected:
            if at >= end:
                raise Short(1, 0)
            if self._data[at] != byte:
                raise Wrong(f"byte {self._data[at]:02x} in the length of the value before", f"length {size}")
            at += 1
        return at


def _misfit(left: int) -> Wrong:
    if left < 0:
        return Wrong(f"the end of the bytes of a value of PyFlink {-left} bytes before that of the value", "one end")
    return Wrong(f"{left} bytes behind the value within its bytes of PyFlink", "none")


def _check(count: int, least: int, left: int) -> None:
    if not least and count > steps.MOST_EMPTY:
        raise Wrong(f"{count} entries without bytes", f"at most {steps.MOST_EMPTY}")
    if count * least > left:
        raise Short(count * least, left)
