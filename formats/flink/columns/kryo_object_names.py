"""Objects of a job's classes as maps from their class and the names of their fields, for texts of JSON.

The first key is ``class``, which no field of Java has as its name, as two classes may have the same fields.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from statestore.formats.bytes.byte_columns import ends_of
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Bytes, Ints


def with_field_names(tape: Tape) -> Tape:
    """The tape with a map in place of each object: its fields are in the order of the bytes, by their names."""
    is_object = tape.tag == forms.OBJECT
    if not is_object.any():
        return tape
    whole, children = np.flatnonzero(is_object), np.flatnonzero((tape.parent >= 0) & is_object[tape.parent])
    is_field = np.zeros(len(tape.tag) + 1, bool)
    is_field[children] = True
    # In front of each field is its name, and behind the beginning of an object the word class and its class.
    place = np.arange(len(is_field)) + np.cumsum(is_field)
    place[1:] += 2 * np.cumsum(is_object)
    front = place - is_field  # where the name of an entry is, if it has one, or the entry itself
    tag, value, more, parent, behind = np.empty((5, place[-1]), np.int64)
    found = replace(tape, tag=tag, value=value, more=more, parent=parent, behind=behind)
    entries = place[:-1]
    found.tag[entries] = np.where(is_object, forms.MAP, tape.tag)
    found.value[entries], found.more[entries] = np.where(is_object, 0, tape.value), tape.more
    found.parent[entries] = np.where(tape.parent < 0, -1, place[tape.parent])
    found.behind[entries] = front[tape.behind]
    texts, starts, sizes, firsts = _words(tape)
    outer = place[whole]
    classes = tape.value[whole]
    keys = front[children]
    parents = tape.parent[children]
    names = firsts[tape.value[parents]] + 2 + _order_inside(parents)
    for at, which, inside in (
        (outer + 1, np.zeros(len(whole), np.int64), outer),
        (outer + 2, firsts[classes] + 1, outer),
        (keys, names, place[parents]),
    ):
        found.tag[at], found.value[at], found.more[at] = forms.UTF_TEXT, len(tape.data) + starts[which], sizes[which]
        found.parent[at], found.behind[at] = inside, at + 1
    return replace(found, data=np.concatenate([tape.data, texts]), roots=place[tape.roots])


def _order_inside(parents: Ints) -> Ints:
    """The numbers of entries among those of the same parent; these are in order, but not behind one another."""
    order = np.argsort(parents, kind="stable")
    nth = np.arange(len(order))
    is_first = np.append(True, np.diff(parents[order]) != 0)[: len(order)]
    found = np.empty(len(order), np.int64)
    found[order] = nth - np.maximum.accumulate(np.where(is_first, nth, 0))
    return found


def _words(tape: Tape) -> tuple[Bytes, Ints, Ints, Ints]:
    """The word class, and for each class of objects its name and those of its fields: octets, starts and sizes.

    The last answer is the number of the word before those of each class.
    """
    words, firsts = ["class"], []
    for each in tape.objects:
        firsts.append(len(words) - 1)
        words += [each.name, *(name for name, _ in each.fields)]
    octets = [word.encode() for word in words]
    sizes = np.array([len(each) for each in octets], np.int64)
    return np.frombuffer(b"".join(octets), np.uint8), ends_of(sizes)[:-1], sizes, np.array(firsts, np.int64)
