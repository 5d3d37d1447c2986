"""Objects of Kryo as tapes: what each value contains, found by the walk of ``kryo_walk``, compiled or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from statestore.formats.bytes.byte_columns import ends_of
from statestore.formats.flink.columns.faults import Opacity, Short, Wrong
from statestore.formats.flink.layouts.kryo_classes import Enums, KryoForms, kryo_forms
from statestore.formats.flink.layouts.kryo_objects import ObjectFields
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.kernels import compiled_use, kryo_walk
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.flink_steps import DONE, FULL, OPAQUE, SHORT
from statestore.formats.kernels.kryo_forms import (
    BEHIND,
    KNOWN_ROOM,
    LAST_BEGIN,
    LAST_END,
    LIST,
    MAP,
    MORE,
    MOST_LAST,
    MOST_NESTED,
    MOST_TAGS,
    OBJECT,
    OPAQUE_FORM,
    PARENT,
    TAG,
    TEXT,
    VALUE,
    KryoArrays,
)
from statestore.formats.kernels.kryo_parts import text

_LEAST_ROOM = 1 << 12
_IS_CONTAINER = np.isin(np.arange(MOST_TAGS), (LIST, MAP, OBJECT))


@dataclass(frozen=True)
class Tape:
    """The entries of some values in ``data``; ``roots`` has the entry of each value.

    ``parent`` is the entry of the container, -1 for a value itself, ``behind`` the entry behind all that one contains.
    ``enums`` are those of a job whose constants stand in it as numbers, ``objects`` the classes of its objects.
    """

    data: Bytes
    tag: Ints
    value: Ints
    more: Ints
    parent: Ints
    behind: Ints
    roots: Ints
    enums: Enums = ()
    objects: tuple[ObjectFields, ...] = ()

    def children(self, containers: Ints) -> tuple[Ints, Ints]:
        """The entries that these containers hold, in order, and how many each has."""
        sizes = self.behind[containers] - containers - 1
        inside = np.flatnonzero(self.parent >= 0)
        if int(sizes.sum()) == len(inside) and not _IS_CONTAINER[self.tag[inside]].any():
            return inside, sizes  # of all containers, and nothing within is one
        place = np.full(len(self.tag) + 1, -1, np.int64)
        place[containers] = np.arange(len(containers))
        whose = place[self.parent]  # a root's parent is the last one, which is none
        found = np.flatnonzero(whose >= 0)
        return found, np.bincount(whose[found], minlength=len(containers)).astype(np.int64)

    def values(self, roots: Ints) -> Tape:
        """The tape of these values, which are some of its own or of those inside, in order."""
        none = np.empty(0, np.int64)
        if not len(roots):
            return replace(self, tag=none, value=none, more=none, parent=none, behind=none, roots=none)
        behind = self.behind[roots]
        if roots[0] == 0 and behind[-1] == len(self.tag) and np.array_equal(behind[:-1], roots[1:]):
            return replace(self, roots=roots)
        sizes = behind - roots
        ends = ends_of(sizes)
        moved = np.repeat(roots - ends[:-1], sizes)
        taken = np.arange(ends[-1]) + moved
        parent = self.parent[taken] - moved
        parent[ends[:-1]] = -1
        return replace(
            self, tag=self.tag[taken], value=self.value[taken], more=self.more[taken], parent=parent,
            behind=self.behind[taken] - moved, roots=ends[:-1],
        )  # fmt: skip


class Joined(NamedTuple):
    """The arrays of the forms of several types, one behind the other; ``rows`` says where those of each are."""

    rows: npt.NDArray[np.int64]
    forms: npt.NDArray[np.int64]
    registered: Ints
    names: Bytes
    name_ends: Ints
    name_forms: Ints


class Scratch:
    """The arrays that a walk over values of at most ``longest`` bytes needs, all of the same data and type."""

    def __init__(self, longest: int) -> None:
        self.stack = np.zeros((MOST_NESTED + 8, 4), np.int64)
        self.refs = np.zeros(longest + 8, np.int64)
        self.known = np.zeros(KNOWN_ROOM, np.int64)
        self.reached = np.zeros(3, np.int64)


def end_of(forms: KryoForms, data: memoryview, at: int, end: int, scratch: Scratch) -> int:
    """The position behind the object at a position. Raises Short, Wrong, Opacity."""
    arrays = (
        data, forms.forms, forms.registered, forms.names, forms.name_ends, forms.name_forms, NO_TAPE, scratch.stack,
        scratch.refs, scratch.known, scratch.reached,
    )  # fmt: skip
    status = kryo_walk.walk_object(arrays, 0, at, end, False, forms.is_old, 0)
    if status != DONE:
        raise fault_of(status, end - at)
    return int(scratch.reached[0])


def unknown_class(data: memoryview, scratch: Scratch) -> str | None:
    """The class that ended the last walk by name, as its form is not public; None where a number stood for it."""
    known = scratch.known.tolist()
    if known[0] == 0 or known[known[0]] != OPAQUE_FORM:
        return None
    slot = min(known[0], MOST_LAST) - 1
    tag, start, size, _ = text(data, known[LAST_BEGIN + slot], known[LAST_END + slot])
    octets = bytearray(data[start : start + size])
    if tag == TEXT:
        octets[-1] &= 0x7F
    return octets.decode("utf-8", "replace")


def fault_of(status: int, left: int) -> Wrong | Opacity:
    """The fault that a status of a walk stands for."""
    if status == SHORT:
        return Short(left + 1, left)
    if status == OPAQUE:
        return Opacity("an object of Kryo of a class whose form is not public")
    return Wrong("bytes that no object of Kryo has", "an object of Kryo")


def forms_of(kind: KryoOf) -> KryoForms:
    """The forms that a type knows."""
    return kryo_forms(kind.is_old, kind.registrations, kind.classes, kind.is_scala)


NO_TAPE = np.zeros((5, 0), np.int64)


@lru_cache(256)
def joined_forms(kinds: tuple[KryoOf, ...]) -> Joined:
    """The forms of several types."""
    return _joined([forms_of(kind) for kind in kinds])


def _joined(every: list[KryoForms]) -> Joined:
    parts: list[list[npt.NDArray[Any]]] = [
        [each.forms, each.registered, each.names, each.name_ends, each.name_forms] for each in every
    ]
    rows = np.zeros((len(every), 11), np.int64)
    begins = [0] * 5
    for row, each, arrays in zip(rows, every, parts, strict=True):
        row[0] = each.is_old
        for number, array in enumerate(arrays):
            row[1 + 2 * number : 3 + 2 * number] = begins[number], begins[number] + len(array)
            begins[number] += len(array)
    if not every:
        parts = [
            [np.zeros((0, 4), np.int64), *(np.zeros(0, kind) for kind in (np.int64, np.uint8, np.int64, np.int64))]
        ]
    return Joined(rows, *(np.concatenate(each) for each in zip(*parts, strict=True)))


def tape_from(data: Bytes, entries: npt.NDArray[np.int64], roots: Ints) -> Tape:
    """The tape of the entries that a walk wrote."""
    return Tape(data, entries[TAG], entries[VALUE], entries[MORE], entries[PARENT], entries[BEHIND], roots)


def tape_of(forms: KryoForms, data: Bytes, start: Ints, size: Ints) -> Tape:
    """The tape of the objects in these cells. Raises Short, Wrong, Opacity."""
    data = data.view()
    data.flags.writeable = False
    room = max(_LEAST_ROOM, 2 * len(start), int(size.sum()) // 6)  # most objects have more bytes
    tape = np.empty((5, room), np.int64)
    firsts = np.zeros(len(start) + 1, np.int64)
    start, size = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(size, np.int64)
    scratch = Scratch(int(size.max(initial=0)))
    cell = 0
    while cell < len(start):
        status, cell = _walk(forms, data, start, size, cell, tape, firsts, scratch)
        if status == FULL:
            tape = np.concatenate([tape, np.empty_like(tape)], axis=1)
        elif status != DONE:
            raise fault_of(status, int(size[cell]))
    used = int(firsts[-1])
    return tape_from(data, tape[:, :used], firsts[:-1])


def _walk(
    forms: KryoForms,
    data: Bytes,
    start: Ints,
    size: Ints,
    cell: int,
    tape: npt.NDArray[np.int64],
    firsts: Ints,
    scratch: Scratch,
) -> tuple[int, int]:
    """Walk over the cells from ``cell`` on; returns the status, and the first cell that is not done."""
    if compiled_use.is_loaded():
        from statestore.formats.kernels.kryo_kernels import walk_cells

        known = scratch.known.reshape(1, -1)
        arrays = KryoArrays(*_joined([forms]), scratch.stack, known, scratch.refs, tape, scratch.reached)
        return walk_cells(data, start, size, cell, arrays, firsts), int(scratch.reached[2])
    plain = (
        data.data, forms.forms, forms.registered, forms.names, forms.name_ends, forms.name_forms, tape, scratch.stack,
        scratch.refs, scratch.known, scratch.reached,
    )  # fmt: skip
    while cell < len(start):
        first, at = int(firsts[cell]), int(start[cell])
        status = kryo_walk.walk_object(plain, 0, at, at + int(size[cell]), True, forms.is_old, first)
        if status != DONE:
            return status, cell
        cell += 1
        firsts[cell] = scratch.reached[1]
    return DONE, cell
