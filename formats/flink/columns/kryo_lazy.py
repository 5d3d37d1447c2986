"""Lazy vals of Scala in objects of a job's classes: null before they were computed, and no field for their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from statestore.formats.flink.columns.faults import Wrong
from statestore.formats.flink.columns.kryo_tapes import Tape
from statestore.formats.kernels import kryo_forms as forms


def without_lazy(tape: Tape) -> Tape:
    """The tape whose objects have null for each lazy val without a value, and no field that is hidden.

    A field without a value has the default of its type, which contains nothing. Raises Wrong for another one.
    """
    if not any(each.hidden for each in tape.objects):
        return tape
    tag, dropped = tape.tag.copy(), np.zeros(len(tape.tag), bool)
    objects = np.flatnonzero(tape.tag == forms.OBJECT)
    for number, found in enumerate(tape.objects):
        rows = objects[tape.value[objects] == number]
        if not found.hidden or not len(rows):
            continue
        inner, _ = tape.children(rows)
        inner = inner[np.argsort(tape.parent[inner], kind="stable")]  # one such object may be inside another
        fields = inner.reshape(len(rows), len(found.fields))
        for place, bitmap, bit in found.lazy:
            missing = fields[(tape.value[fields[:, bitmap]] & bit) == 0, place]
            if (tape.behind[missing] != missing + 1).any():
                raise Wrong("a value of a lazy val that was not computed", "its default")
            tag[missing] = forms.NULL
        dropped[fields[:, sorted(found.hidden)]] = True
    if not dropped.any():
        return replace(tape, objects=tuple(each.shown for each in tape.objects))
    kept = np.flatnonzero(~dropped)
    moved = np.append(0, np.cumsum(~dropped))
    parent = tape.parent[kept]
    return replace(
        tape, tag=tag[kept], value=tape.value[kept], more=tape.more[kept],
        parent=np.where(parent < 0, parent, moved[parent]), behind=moved[tape.behind[kept]], roots=moved[tape.roots],
        objects=tuple(each.shown for each in tape.objects),
    )  # fmt: skip
