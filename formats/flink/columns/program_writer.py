"""The writer of programs: the steps for each shape, and the rows of places that they fill."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.layouts.shapes import (
    Again,
    BigNumber,
    Branches,
    Cast,
    Constant,
    Fixed,
    Framed,
    KryoValue,
    LengthBefore,
    Masked,
    Nulls,
    Optional,
    Repeated,
    Rest,
    Routines,
    Shape,
    Sized,
    Span,
    Struct,
    Text,
    Unknown,
    least_bytes,
)
from statestore.formats.flink.layouts.type_layouts import layout
from statestore.formats.flink.serializers.flink_types import FlinkType, KryoOf
from statestore.formats.kernels.arrays import Bytes, Ints
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
    END,
    FAIL,
    FIELD,
    FIXED,
    FRAME,
    FRAMED,
    JOIN,
    JOINED,
    JUMP,
    KEPT,
    KRYO,
    LENGTH,
    MARK,
    MASK,
    MASKED,
    MASKED_NEXT,
    OPTION,
    REST,
    RETURN,
    SIZED,
    TAG_BYTE,
    TAG_EITHER,
    TAG_INDEX,
    TAG_POJO,
    TEXT,
    UNMASKED,
)

# Programs: what a reader does to step over records of some shapes, as arrays of numbers.
#
# One loop runs a program over all records, compiled (``flink_kernels``) or not (``program_interpreter``), and writes
# down where the parts of the wanted values lie. A part's places are rows of numbers: positions, counts, branches. A
# value that is null or absent has no places inside it, so the rows of one record have different lengths. `Place` says
# where the places of each part of a shape are.
#
# No part of a program is entered again before it has ended, so that a register for each loop takes the place of a
# stack. Only records of Avro may contain themselves: their steps are a routine, and a call keeps its registers on a
# stack. Nothing is written down inside of a routine.


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
    kryo: tuple[KryoOf, ...]
    """The types of objects of Kryo, by number."""
    is_straight: bool
    """Whether each step is taken once by each record: numpy can take it for all records at once."""


_ROWS = {KRYO: 3, MASKED: 2, TEXT: 3, SIZED: 2, BIG: 2, REST: 2, KEPT: 2}
_TAGS = {"either": TAG_EITHER, "index": TAG_INDEX, "pojo": TAG_POJO, "byte": TAG_BYTE}
_STRAIGHT = (FIXED, CONSTANT, REST, MARK, KEPT, END)
_MOST_STEPS = 1 << 16
_MOST_CALLS = 1 << 12  # a record of Avro within itself; writers and readers of Java have no room for many more
_MOST_STACK = 1 << 20


@lru_cache(256)
def program_of(
    kinds: tuple[FlinkType, ...], wanted: tuple[bool, ...], framed: bool, positions: bool = False
) -> Program:
    """The program for records of these kinds. With ``positions``, row 0 of the places is where each record begins.

    Raises UnsupportedError FLINK_OPAQUE for bytes of the job's classes that are not at the end of a frame, and
    FLINK_UNSUPPORTED as `layout`.
    """
    shapes = tuple(layout(kind) for kind in kinds)
    writer = _Writer(framed)
    if positions:
        writer.position()
    places = []
    for number, (shape, want) in enumerate(zip(shapes, wanted, strict=True)):
        register = -1
        if number + 1 < len(shapes) and isinstance(shapes[number + 1], LengthBefore):
            register = writer.register()
            writer.step(MARK, register=register)
        places.append(writer.write(shape, want))
        if register >= 0:
            writer.length_of = register
    writer.step(END)
    writer.routines()
    return writer.program(tuple(places), shapes)


_Bodies = tuple[tuple[str, Shape], ...]


class _Writer:
    def __init__(self, framed: bool) -> None:
        self._framed = framed
        self._branch = 0  # branches around the shape that is written
        self._steps: list[list[int]] = []
        self._heads: list[int] = []
        self._registers = 0
        self._jumps: list[int] = []
        self._names = b""
        self._name_ends: list[int] = []
        self._whose: list[str] = []
        self._extendable = False  # the last step is FIXED, and no step jumps behind it
        self._ended_by = ""  # whose bytes take the rest of the frame
        self._bodies: _Bodies = ()
        self._kryo: list[KryoOf] = []
        self._calls: list[tuple[int, _Bodies, str]] = []  # steps that call a record's routine
        self.length_of = -1

    def register(self) -> int:
        self._registers += 1
        return self._registers - 1

    def position(self) -> None:
        """Append a step that writes down where the reader is: no bytes, which those of fixed width join."""
        self.step(FIXED, self._row(FIXED, True))

    def step(
        self, step: int, row: int = NO_ROW, a: int = 0, b: int = 0, target: int = 0, register: int = 0, c: int = 0
    ) -> int:
        """Append a step and return its number."""
        if self._ended_by and step not in (END, JUMP):
            raise _opaque(self._ended_by)
        if len(self._steps) >= _MOST_STEPS:
            raise UnsupportedError(
                ErrorCode.FLINK_UNSUPPORTED,
                f"type of Flink with more than {_MOST_STEPS} parts, which cannot be read; read the other columns",
            )
        self._steps.append([step, row, a, b, target, register, c])
        self._extendable = step == FIXED
        return len(self._steps) - 1

    def program(self, places: tuple[Place | None, ...], shapes: tuple[Shape, ...]) -> Program:
        return Program(
            np.array(self._steps, np.int64).reshape(-1, 7),
            np.array(self._jumps, np.int64),
            np.frombuffer(self._names, np.uint8).copy(),
            np.array([0, *self._name_ends], np.int64),
            tuple(self._heads),
            self._registers,
            places,
            shapes,
            tuple(self._whose),
            tuple(self._kryo),
            all(step[0] in _STRAIGHT for step in self._steps),
        )

    def write(self, shape: Shape, want: bool) -> Place | None:
        """Append the steps for a shape; returns its place, if it is wanted and has a column."""
        want = want and shape.column is not None
        place = self._write(shape, want)
        return place if want else None

    def _row(self, step: int, want: bool) -> int:
        if not want:
            return NO_ROW
        first = len(self._heads)
        self._heads += [first] * _ROWS.get(step, 1)
        return first

    def _here(self) -> int:
        """The number of the next step, to which others jump."""
        self._extendable = False
        return len(self._steps)

    def _write(self, shape: Shape, want: bool) -> Place:
        if isinstance(shape, Fixed):
            return self._fixed(shape, want)
        if isinstance(shape, (Text, Sized, BigNumber, Rest)):
            return self._leaf(shape, want)
        if isinstance(shape, Repeated):
            return self._repeated(shape, want)
        if isinstance(shape, Optional):
            if shape.padding < 0 and not self._framed:
                raise AssertionError("a null takes the rest only inside of frames")
            row = self._row(OPTION, want)
            step = self.step(OPTION, row, shape.null_flag, shape.padding)
            part = self.write(shape.value, want)
            self._steps[step][4] = self._here()
            return Place(shape, row, parts=(part,))
        if isinstance(shape, Struct):
            return Place(shape, parts=tuple(self.write(part, want) for part in shape.parts))
        if isinstance(shape, Masked):
            return self._masked(shape, want)
        if isinstance(shape, Framed):
            return self._framed_value(shape, want)
        if isinstance(shape, Branches):
            return self._branches(shape, want)
        if isinstance(shape, Routines):
            self._bodies = shape.bodies
            return Place(shape, parts=(self.write(shape.value, want),))
        if isinstance(shape, Again):
            return self._again(shape, want)
        if isinstance(shape, Span):
            return self._span(shape, want)
        if isinstance(shape, KryoValue):
            row = self._row(KRYO, want)
            self.step(KRYO, row, len(self._kryo))
            self._kryo.append(shape.kind)
            return Place(shape, row)
        if isinstance(shape, (Cast, Nulls)):
            return Place(shape, parts=(self.write(shape.value, want),))
        if isinstance(shape, Constant):
            self.step(CONSTANT, a=shape.byte)
        elif isinstance(shape, LengthBefore):
            self.step(LENGTH, register=self.length_of)
        elif isinstance(shape, Unknown):
            self.step(FAIL, a=len(self._whose))
            self._whose += [shape.whose, shape.remedy]
        return Place(shape)

    def _again(self, shape: Again, want: bool) -> Place:
        row = NO_ROW
        register = self.register() if want else -1
        if want:
            self.step(MARK, register=register)
        self._calls.append((self.step(CALL), self._bodies, shape.name))
        if want:
            row = self._row(KEPT, want)
            self.step(KEPT, row, register=register)
        return Place(shape, row)

    def _span(self, shape: Span, want: bool) -> Place:
        if not want:
            self.write(shape.value, False)
            return Place(shape)
        register = self.register()
        self.step(MARK, register=register)
        self.write(shape.value, False)
        row = self._row(KEPT, want)
        if self._ended_by:  # the rest of the frame: nothing follows
            self._ended_by, whose = "", self._ended_by
            self.step(KEPT, row, register=register)
            self._ended_by = whose
        else:
            self.step(KEPT, row, register=register)
        return Place(shape, row)

    def routines(self) -> None:
        """Append the routines that steps before call, each once, and the stack that they use behind the registers."""
        self._ended_by = ""
        first, known, returns = self._registers, dict[tuple[_Bodies, str], int](), list[int]()
        done = 0
        while done < len(self._calls):
            step, bodies, name = self._calls[done]
            if (bodies, name) not in known:
                known[bodies, name] = self._here()
                self._bodies = bodies
                self.write(dict(bodies)[name], False)
                returns.append(self.step(RETURN))
            self._steps[step][4] = known[bodies, name]
            done += 1
        if not returns:
            return
        size = self._registers - first
        most = min(_MOST_CALLS, _MOST_STACK // (size + 1)) * (size + 1)
        for step in (*returns, *(step for step, _, _ in self._calls)):
            self._steps[step][2:4] = first, size
            self._steps[step][5:7] = self._registers, most
        self._registers += 1 + most

    def _fixed(self, shape: Fixed, want: bool) -> Place:
        """Neighbours share the position of the first."""
        if not self._extendable:
            self.step(FIXED)
        step = self._steps[-1]
        if self._ended_by:
            raise _opaque(self._ended_by)
        if want and step[1] == NO_ROW:
            step[1] = self._row(FIXED, want)
        place = Place(shape, step[1], step[2])
        step[2] += shape.width
        return place

    def _leaf(self, shape: Shape, want: bool) -> Place:
        if isinstance(shape, Text):
            row = self._row(TEXT, want)
            self.step(TEXT, row, int(not shape.nullable))
        elif isinstance(shape, Sized):
            row = self._row(SIZED, want)
            self.step(SIZED, row, shape.unit, shape.counted_by)
        elif isinstance(shape, BigNumber):
            row = self._row(BIG, want)
            self.step(BIG, row, int(shape.scaled))
        else:
            assert isinstance(shape, Rest)
            row = self._row(REST, want)
            if not self._framed and self._branch:  # values of other cases can be read
                self.step(FAIL, a=len(self._whose))
                self._whose += [shape.whose, ""]
                return Place(shape, row)
            if not self._framed:
                raise _opaque(shape.whose)
            self.step(REST, row)
            self._ended_by = shape.whose
        return Place(shape, row)

    def _repeated(self, shape: Repeated, want: bool) -> Place:
        if shape.framing == "masked":
            return self._masked_list(shape, want)
        row, register = self._row(COUNT, want), self.register()
        least = least_bytes(shape.element)
        if shape.framing == "counted":
            step = self.step(COUNT, row, least, register=register)
            start = self._here()
            part = self.write(shape.element, want)
            self.step(AGAIN, target=start, register=register)
            self._steps[step][4] = self._here()
        elif shape.framing == "packed":
            self.register()  # for the entries
            step = self.step(FRAME, row, 1, register=register)
            start = self._here()
            part = self.write(shape.element, want)
            self.step(FRAMED, row, 1, target=start, register=register)
            self._steps[step][4] = self._here()
        elif shape.framing == "joined":
            if not self._framed:
                raise AssertionError("elements are joined only inside of frames")
            self.step(JOIN, register=register)
            start = self._here()
            part = self.write(shape.element, want)
            self.step(JOINED, row, target=start, register=register)
        else:
            self.register()  # for the entries that are left of the block
            self.step(BLOCKS, register=register)
            head = self.step(BLOCK, row, least, register=register)
            start = self._here()
            part = self.write(shape.element, want)
            self.step(BLOCK_NEXT, b=head, target=start, register=register)
            self._steps[head][4] = self._here()
        return Place(shape, row, parts=(part,))

    def _framed_value(self, shape: Framed, want: bool) -> Place:
        register = self.register()
        self.register()
        self.step(FRAME, register=register)
        part = self.write(shape.value, want)
        self.step(FRAMED, register=register)
        return Place(shape, parts=(part,))

    def _masked_list(self, shape: Repeated, want: bool) -> Place:
        row, register = self._row(MASKED, want), self.register()
        self.register()
        self.register()
        head = self.step(MASKED, row, register=register)
        start = self._here()
        step = self.step(UNMASKED, register=register)
        part = self.write(shape.element, want)
        self._steps[step][4] = self._here()
        self.step(MASKED_NEXT, target=start, register=register)
        self._steps[head][4] = self._here()
        return Place(shape, row, parts=(part,))

    def _masked(self, shape: Masked, want: bool) -> Place:
        row, register = self._row(MASK, want), self.register()
        self.step(MASK, row, shape.width, register=register)
        parts = []
        for number, part in enumerate(shape.parts):
            step = self.step(FIELD, a=number + shape.first_bit, register=register)
            parts.append(self.write(part, want))
            self._steps[step][4] = self._here()
        return Place(shape, row, parts=tuple(parts))

    def _branches(self, shape: Branches, want: bool) -> Place:
        row, base, first_name = self._row(BRANCH, want), len(self._jumps), len(self._name_ends)
        for name in shape.names:
            self._names += modified_utf8(name)
            self._name_ends.append(len(self._names))
        self._jumps += [0] * len(shape.cases)
        if shape.tag == "pojo":  # for messages
            self._jumps.append(len(self._whose))
            self._whose.append(shape.whose)
        if shape.tag == "byte":
            first_name = len(self._jumps)
            self._jumps += shape.tags
        self.step(BRANCH, row, _TAGS[shape.tag], base, len(shape.cases), first_name, len(shape.names))
        parts: list[Place | None] = []
        ends, ended_by = [], ""
        for number, case in enumerate(shape.cases):
            self._jumps[base + number] = self._here()
            self._branch += 1
            parts.append(None if case is None else self.write(case, want))
            self._branch -= 1
            ended_by = ended_by or self._ended_by
            self._ended_by = ""
            ends.append(self.step(JUMP))
        self._ended_by = ended_by
        for end in ends:
            self._steps[end][4] = self._here()
        return Place(shape, row, parts=tuple(parts))


def modified_utf8(text: str) -> bytes:
    """Java's ``writeUTF`` without its length: surrogates one by one, NUL as two bytes."""
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2").tolist()
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _opaque(whose: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.FLINK_OPAQUE,
        f"values of Flink with bytes of {whose}, of which only the job's classes know the end; give a type for them if "
        "a serializer of the job's own wrote them, or read the other columns",
    )
