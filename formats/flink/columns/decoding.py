"""Decoding of Flink's values: of framed ones, cell by cell, and of those that follow one another without lengths.

A program steps over the records and writes down where the wanted values lie, compiled where that pays, and numpy
gathers them into columns. Framed values of fixed width need no loop. All ways give the same columns and refuse the same
bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, gather
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.built_columns import Places, build
from statestore.formats.flink.columns.faults import (
    Beyond,
    NullMapKey,
    NullMapKeyError,
    Opacity,
    OpaqueClassError,
    Short,
    Wrong,
)
from statestore.formats.flink.columns.kryo_tapes import Scratch, Tape, joined_forms, tape_from
from statestore.formats.flink.columns.kryo_thrown import is_thrown
from statestore.formats.flink.columns.program_interpreter import ProgramInterpreter
from statestore.formats.flink.columns.program_writer import Place, Program, program_of
from statestore.formats.flink.columns.spreading import spread
from statestore.formats.flink.layouts.shapes import Span
from statestore.formats.flink.serializers.flink_types import FlinkType, ListOf, SpanOf
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.flink_steps import CONSTANT, DONE, FIXED, FULL, KEPT, MARK, OPAQUE, REST, SHORT, WRONG
from statestore.formats.kernels.kryo_forms import KryoArrays

_KERNELS = "statestore.formats.kernels.flink_kernels"
_WORTH_BYTES = 1 << 20
"""Bytes of values in all calls from which on the compiled loop is loaded.

Loading takes 0.45 s, a read of a few rows without it 10 ms. Beyond, 65,536 keys take 120 ms interpreted, 4 ms compiled.
"""
_MOST_PLACES = 1 << 16
_FEWEST_PLACES = 1 << 10
_PLACES_BYTES = 64 << 20
_MOST_ENTRIES = 1 << 20  # of Kryo, of 48 bytes
_SHOWN_BYTES = 40
_NONE = np.empty(0, np.int64)
_stepped_plainly = 0  # bytes; threads may lose a few, which only delays loading
_REMEDY = "restore the file from a copy, or correct the type given for the state"


@dataclass(frozen=True)
class Records:
    """Columns of ``rows`` records, None where not wanted or void; ``at`` is the position behind the last.

    ``starts`` is where each record begins, if that was asked for; it ends where the next one does, the last at ``at``.
    """

    columns: list[pa.Array | None]
    rows: int
    at: int
    starts: Ints | None = None


@dataclass(frozen=True)
class _Walked:
    """The result of a walk: places of records up to before ``until``, position ``at``, and why it ended."""

    rows: Sequence[Ints]
    until: int
    at: int
    status: int
    tape: Tape | None = None


def decode_cells(
    kinds: Sequence[FlinkType], cells: Cells, wanted: Sequence[bool], origin: str
) -> list[pa.Array | None]:
    """A column for each kind that is wanted and not void; each cell holds one value of each kind, and nothing else.

    Null cells are nulls in all columns. If nothing is wanted, no cell is looked at. ``origin`` names the state in
    messages. Raises CorruptError FLINK_ROW for bytes that are no such values, UnsupportedError FLINK_OPAQUE for parts
    that only the job's classes decode, FLINK_UNSUPPORTED for values that the column cannot hold.
    """
    program = _program(kinds, wanted, True, origin)
    if not any(program.places):
        return [None] * len(kinds)
    if cells.missing is not None and cells.missing.any():
        present = ~cells.missing
        found = decode_cells(kinds, cells.select(present), wanted, origin)
        return [None if column is None else spread(column, present) for column in found]
    if not len(cells):
        return [None if place is None else pa.array([], place.shape.column) for place in program.places]
    cells, stop = _bounded(cells)
    batches: list[list[pa.Array | None]] = []
    first = 0
    while first < len(cells):
        columns, first = _batch(program, cells, stop, first, origin)
        batches.append(columns)
    return [None if parts[0] is None else pa.concat_arrays(parts) for parts in zip(*batches, strict=True)]


def divide_cells(kinds: Sequence[FlinkType], cells: Cells, origin: str) -> list[Cells]:
    """The bytes of the value of each kind; each cell holds one value of each kind, and nothing else.

    Nothing is copied. No cell may be null. Raises as `decode_cells`.
    """
    parts = [SpanOf(kind) for kind in kinds]
    program = _program(parts, [True] * len(parts), True, origin)
    rows = [_rows_of(place) for place in program.places]
    batches = [[(each[row], each[row + 1]) for row in rows] for each in _walks(program, cells, origin)]
    return [_spans(cells, [batch[number] for batch in batches]) for number in range(len(parts))]


def divide_lists(element: FlinkType, cells: Cells, origin: str) -> tuple[Ints, Cells]:
    """The number of elements of each list, and the bytes of all elements; each cell holds a list, and nothing else.

    Nothing is copied. No cell may be null. Raises as `decode_cells`.
    """
    program = _program([ListOf(SpanOf(element))], [True], True, origin)
    (place,) = program.places
    assert place is not None
    row, batches = _rows_of(place.parts[0]), list(_walks(program, cells, origin))
    counts = [each[place.row] for each in batches]
    return np.concatenate([_NONE, *counts]), _spans(cells, [(each[row], each[row + 1]) for each in batches])


def _walks(program: Program, cells: Cells, origin: str) -> Iterator[Sequence[Ints]]:
    """Yield the places in all cells, in batches."""
    if not len(cells):
        return
    cells, stop = _bounded(cells)
    first = 0
    while first < len(cells):
        walked = _walked(program, cells, stop, first, origin)
        first = walked.until
        yield walked.rows


def _rows_of(place: Place | None) -> int:
    assert place is not None and isinstance(place.shape, Span)
    return place.row


def _spans(cells: Cells, found: Sequence[tuple[Ints, Ints]]) -> Cells:
    if len(found) == 1:
        return Cells(cells.data, *found[0])
    start, size = (np.concatenate([_NONE, *(each[part] for each in found)]) for part in range(2))
    return Cells(cells.data, start, size)


def _bounded(cells: Cells) -> tuple[Cells, Ints]:
    """The cells, and where each ends. Raises ValueError for cells beyond their data."""
    # Starts that can be written, as the compiled loop expects.
    cells = replace(cells, start=np.array(cells.start, np.int64))
    stop = cells.start + cells.size
    if cells.start.min() < 0 or cells.size.min() < 0 or stop.max() > len(cells.data):
        raise ValueError("cells beyond their data")
    return cells, stop


def decode_records(
    kinds: Sequence[FlinkType],
    data: Bytes,
    at: int,
    stop: int,
    count: int,
    wanted: Sequence[bool],
    origin: str,
    last: bool,
    positions: bool = False,
) -> Records:
    """Decode up to ``count`` records without frames, which follow one another from ``at`` to at most ``stop``.

    Fewer are decoded if the batch is full, or if the data ends and is not the ``last``; then at least none.
    ``positions``: also return where each record begins. Raises as `decode_cells`, and CorruptError FLINK_ROW if the
    last data ends before the records do.
    """
    program = _program(kinds, wanted, False, origin, positions)
    if not 0 <= at <= stop <= len(data):
        raise ValueError("records beyond their data")
    if not count:
        rows = _no_rows(program)
        return Records(_columns(program, Places(data, rows, decode_cells), 0), 0, at, rows[0] if positions else None)
    begin, end = np.array([at]), np.array([stop])
    walked = _walk(program, data, begin, end, False, 0, count)
    if walked.status not in (DONE, FULL) and (walked.status != SHORT or (last and not walked.until)):
        raise _refusal(program, data, walked.at, stop, False, origin)
    try:
        columns = _columns(program, Places(data, walked.rows, decode_cells, walked.tape), walked.until)
    except (Wrong, Beyond) as fault:
        raise _culprit(program, data, begin, end, False, 0, walked.until, fault, origin) from None
    return Records(columns, walked.until, walked.at, walked.rows[0].copy() if positions else None)


def _program(
    kinds: Sequence[FlinkType], wanted: Sequence[bool], framed: bool, origin: str, positions: bool = False
) -> Program:
    try:
        return program_of(tuple(kinds), tuple(map(bool, wanted)), framed, positions)
    except UnsupportedError as error:
        raise UnsupportedError(error.code, f"{origin}: {error.message}") from None


def _batch(program: Program, cells: Cells, stop: Ints, first: int, origin: str) -> tuple[list[pa.Array | None], int]:
    """The columns of the next cells, and the first cell that is not in them."""
    walked = _walked(program, cells, stop, first, origin)
    try:
        return _columns(
            program, Places(cells.data, walked.rows, decode_cells, walked.tape), walked.until - first
        ), walked.until
    except (Wrong, Beyond) as fault:
        raise _culprit(program, cells.data, cells.start, stop, True, first, walked.until, fault, origin) from None


def _walked(program: Program, cells: Cells, stop: Ints, first: int, origin: str) -> _Walked:
    """Walk over the next cells. Raises the error for one that is no value."""
    walked = _walk(program, cells.data, cells.start, stop, True, first, len(cells))
    if walked.status not in (DONE, FULL):
        bad = walked.until
        raise _refusal(program, cells.data, int(cells.start[bad]), int(stop[bad]), True, origin)
    return walked


def _culprit(
    program: Program,
    data: Bytes,
    start: Ints,
    stop: Ints,
    framed: bool,
    first: int,
    until: int,
    whole: Exception,
    origin: str,
) -> StateStoreError:
    """The error for the first record of which a value cannot be shown, found by halves.

    ``whole`` is the fault of all these records, which may be such that none has it alone: values of two types.
    """
    at, begin = int(start[0]), start
    first_record = (int(start[first]), int(stop[first])) if framed else (at, int(stop[0]))
    while first < until:
        half = max((until - first) // 2, 1)
        base = first if framed else 0
        walked = _walk(program, data, begin, stop, framed, base, base + half)
        try:
            _columns(program, Places(data, walked.rows, decode_cells, walked.tape), walked.until - base)
        except (Wrong, Beyond) as fault:
            if half == 1:
                at, end = (int(start[first]), int(stop[first])) if framed else (at, int(stop[0]))
                return _told(fault, data, at, end, origin)
            until = first + half
        else:
            first += walked.until - base
            at = walked.at
            begin = start if framed else np.array([at])
    return _told(whole, data, *first_record, origin)


def _columns(program: Program, places: Places, count: int) -> list[pa.Array | None]:
    return [None if place is None else build(places, place, count) for place in program.places]


def _no_rows(program: Program) -> list[Ints]:
    return [np.empty(0, np.int64)] * len(program.heads)


def _is_compiled(stored: int) -> bool:
    global _stepped_plainly
    if not compiled_use.is_loaded():
        return False
    if _KERNELS not in sys.modules:
        _stepped_plainly += stored
    return _KERNELS in sys.modules or _stepped_plainly >= _WORTH_BYTES


def _walk(program: Program, data: Bytes, start: Ints, stop: Ints, framed: bool, first: int, most: int) -> _Walked:
    """Walk over records ``first`` to before ``most``, or as many as have places in one batch, at least one."""
    if framed and program.is_straight:
        return _walk_straight(program, data, start, stop, first, most)
    stored = int((stop - start).sum())
    if not _is_compiled(stored):
        return _walk_interpreted(program, data, start, stop, framed, first, most)
    from statestore.formats.kernels.flink_kernels import walk

    room = min(most - first, _MOST_PLACES, _PLACES_BYTES // (8 * max(len(program.heads), 1)))
    room = max(room, _FEWEST_PLACES)
    limit = 4 * max(stored, _MOST_PLACES)
    data = data.view()
    data.flags.writeable = False  # the loop is compiled once, for data that cannot be written
    reached = np.zeros(3, np.int64)
    kryo = _kryo_arrays(program, stored) if program.kryo else None
    while True:
        out = np.empty((len(program.heads), room), np.int64)
        used, saved = np.zeros(len(program.heads), np.int64), np.zeros(len(program.heads), np.int64)
        registers = np.zeros(program.registers + 1, np.int64)
        status = walk(
            program.steps, program.jumps, program.names, program.name_ends, data, start, stop, framed, first, most,
            out, used, saved, registers, reached, kryo,
        )  # fmt: skip
        until, at, entries = reached.tolist()
        if status != FULL or until > first or room > limit:
            break
        room *= 2
    rows = [row[: used[head]] for row, head in zip(out, program.heads, strict=True)]
    if status == OPAQUE and any(map(is_thrown, program.kryo)):
        begin = start if framed else np.array([at])
        rest = _walk_interpreted(program, data, begin, stop, framed, until, most)
        joined = [np.concatenate(both) for both in zip(rows, rest.rows, strict=True)]
        return _Walked(joined, rest.until, rest.at, rest.status)
    written = None if kryo is None else tape_from(data, kryo.tape[:, :entries], np.empty(0, np.int64))
    return _Walked(rows, until, at, status, written)


def _kryo_arrays(program: Program, stored: int) -> KryoArrays:
    """Return the arrays that a walk over so many bytes needs for the objects of Kryo in them."""
    scratch = Scratch(0)
    known = np.zeros((len(program.kryo), len(scratch.known)), np.int64)
    entries = min(stored, _MOST_ENTRIES) if any(not is_thrown(kind) for kind in program.kryo) else 0
    tape, refs = np.empty((5, entries), np.int64), np.empty(entries, np.int64)
    return KryoArrays(*joined_forms(program.kryo), scratch.stack, known, refs, tape, scratch.reached)


def _walk_straight(program: Program, data: Bytes, start: Ints, stop: Ints, first: int, most: int) -> _Walked:
    """Walk over framed records by a program without branches and loops, each step for all of them at once.

    Interpreted, 65,536 keys of a bigint take 120 ms in place of 2 ms; compiled, they take about the same.
    """
    at, end = start[first:most], stop[first:most]
    bad = np.zeros(len(at), bool)
    rows = [at] * len(program.heads)
    marks: dict[int, Ints] = {}
    for step, row, size, _, _, register, _ in program.steps.tolist():
        if step == FIXED:
            if row >= 0:
                rows[row] = at
            at = at + size
        elif step == REST:
            if row >= 0:
                rows[row], rows[row + 1] = at, end - at
            bad |= at > end
            at = end
        elif step == MARK:
            marks[register] = at
        elif step == KEPT:
            rows[row], rows[row + 1] = marks[register], at - marks[register]
        elif step == CONSTANT:
            bad |= at >= end
            bad |= gather(data, np.where(bad, 0, at), "u1") != size
            at = at + 1
    bad |= at != end
    right = int(bad.argmax()) if bad.any() else len(bad)
    return _Walked([row[:right] for row in rows], first + right, 0, DONE if right == len(bad) else WRONG)


def _walk_interpreted(
    program: Program, data: Bytes, start: Ints, stop: Ints, framed: bool, first: int, most: int
) -> _Walked:
    walk = ProgramInterpreter(program, data.data)
    starts, stops = (start[first:most].tolist(), stop[first:most].tolist()) if framed else ([], [])
    until, status = first, DONE
    at, end = (0, 0) if framed else (int(start[0]), int(stop[0]))
    while until < most:
        if walk.is_full():
            status = FULL
            break
        if framed:
            at, end = starts[until - first], stops[until - first]
        try:
            at = walk.record(at, end, framed)
        except Opacity:
            status = OPAQUE
            break
        except Wrong as fault:
            status = SHORT if isinstance(fault, Short) else WRONG
            break
        until += 1
    return _Walked([np.array(row, np.int64) for row in walk.out], until, at, status)


def _refusal(program: Program, data: Bytes, at: int, stop: int, framed: bool, origin: str) -> StateStoreError:
    """The error for a record that cannot be walked."""
    try:
        ProgramInterpreter(program, data.data).record(at, stop, framed)
    except (Wrong, Opacity) as fault:
        # A fault that outlived this block would keep its own frame, and with it the files of the read.
        return _told(fault, data, at, stop, origin)
    return _told(Wrong("bytes that no value has", "a value of the state's type"), data, at, stop, origin)


def _told(fault: Exception, data: Bytes, at: int, stop: int, origin: str) -> StateStoreError:
    """The error that says of which bytes of which state a fault is."""
    octets = data[at : min(stop, at + _SHOWN_BYTES)].tobytes().hex()
    where = f"{octets}..." if stop - at > _SHOWN_BYTES else octets or "no bytes"
    if isinstance(fault, Opacity):
        first = f"{fault.remedy}; else " if fault.remedy else ""
        error = OpaqueClassError(
            ErrorCode.FLINK_OPAQUE,
            f"{origin}: found {fault.whose}, which only the job's classes decode, in bytes {where}; expected values "
            f"that the file describes; {first}read the other columns, or give the type binary for the values",
        )
        error.classes = fault.classes
        return error
    if isinstance(fault, NullMapKey):
        found = f"{origin}: found {fault.value}, expected a value that fits {fault.column}, in bytes {where}"
        refused = NullMapKeyError(
            ErrorCode.FLINK_UNSUPPORTED, f"{found}; give a type with array<struct<key: ..., value: ...>> for the map"
        )
        refused.kind, refused.found = fault.kind, found
        return refused
    if isinstance(fault, Beyond):
        remedy = "type string for the values, or struct<start: bigint, end: bigint> for a time window"
        if fault.column == "text":
            remedy = "type binary for the values, or none where a serializer of the job's own wrote them"
        return UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{origin}: found {fault.value}, expected a value that fits {fault.column}, in bytes {where}; give the "
            f"{fault.remedy or remedy}",
        )
    assert isinstance(fault, Wrong)
    return CorruptError(
        ErrorCode.FLINK_ROW,
        f"{origin}: found {fault.found}, expected {fault.expected}, in bytes {where}; {_REMEDY}",
    )
