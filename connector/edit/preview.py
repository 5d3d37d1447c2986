"""The preview of an edit, before anything is written: rows that change, and what the engine's plan says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.edits.left_keys import left_keys
from statestore.catalog.reads.difference import CHANGE, CHANGED, KINDS, NEW, OLD, difference_of_rows
from statestore.connector.edit.units import one_array
from statestore.formats.edits import EditPlan, StateEdit
from statestore.formats.engine import Source
from statestore.formats.errors import StateStoreError
from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values

SHOWN_ROWS = 10
"""Rows of each state that a preview shows as text."""


@dataclass(frozen=True)
class ChangedRows:
    """The rows of one state that differ, in the columns of ``diff``: the change, the key, old and new values.

    ``followed``: they change along with others, and no statement names them.
    """

    state: str
    rows: pa.Table
    followed: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of rows that are added, changed and removed."""
        found = pc.value_counts(self.rows.column(CHANGE)).to_pylist()
        return Counter({each["values"]: each["counts"] for each in found})

    def numbers(self) -> str:
        """Return the counts as a sentence has them."""
        counts = self.counts
        return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts.get(kind)) or "no rows"

    def __str__(self) -> str:
        along = " (follow from the other changes)" if self.followed else ""
        return "\n".join([f"{self.state}: {self.numbers()}{along}", *self._lines()])

    def _lines(self) -> Iterator[str]:
        names = [name for name in self.rows.schema.names if name not in (CHANGE, OLD, NEW, CHANGED)]
        first = self.rows.slice(0, SHOWN_ROWS).combine_chunks()
        cells = {name: python_values(one_array(first.column(name))) for name in first.schema.names}
        for row in range(first.num_rows):
            key = ", ".join(f"{name} {_text(cells[name][row])}" for name in names)
            old, new, changed = cells[OLD][row], cells[NEW][row], cells[CHANGED][row]
            is_read = all(each is None or isinstance(each, Mapping) for each in (old, new))
            if not is_read:  # times beyond Python's years make texts of all values of a column
                values = [" → ".join(str(each) for each in (old, new) if each is not None)]
            elif changed is None:
                values = [f"{name} {_text(each)}" for name, each in (new if old is None else old).items()]
            else:
                values = [each for name in changed for each in _changes(name, old[name], new[name])]
            yield f"  {cells[CHANGE][row]} {key}{': ' if values else ''}{', '.join(values)}"
        if self.rows.num_rows > SHOWN_ROWS:
            yield f"  … {self.rows.num_rows - SHOWN_ROWS} more"


@dataclass(frozen=True)
class Preview:
    """The preview of an edit. Printed, it shows the first rows of each state.

    ``written_bytes`` are about those of the files that are written anew, ``copied_bytes`` those of files that the
    target has as they are, as far as their sizes are known. ``refused`` is why the engine would not take the edit;
    there is no plan then.
    """

    source: str
    target: str | None
    version: int
    changes: tuple[ChangedRows, ...]
    target_version: int | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    written_bytes: int = 0
    copied_bytes: int = 0
    copied_files: int = 0
    refused: StateStoreError | None = field(default=None, compare=False)

    def __str__(self) -> str:
        lines = [str(each) for each in self.changes] or ["no row changes"]
        lines += [f"note: {each}" for each in self.notes]
        return "\n".join([*lines, *self.summary()])

    def summary(self) -> Iterator[str]:
        """Yield what is written where, as sentences."""
        if self.refused is not None:
            yield f"refused: {self.refused}"
            return
        into = self.target or "a target"
        yield (
            f"version {self.version} of {self.source} becomes version {self.target_version} of {into}: about "
            f"{self.written_bytes} bytes written, {self.copied_bytes} bytes in {self.copied_files} files copied"
        )

    __repr__ = __str__


def preview_of(
    source: Source,
    target: str | None,
    version: int,
    edits: Sequence[tuple[StateEdit, bool]],
    plan: EditPlan | StateStoreError,
) -> Preview:
    """Return the preview of edits, each with whether its state has one row for a unit, and of the engine's plan."""
    changes = [changed_rows(edit, is_keyed) for edit, is_keyed in edits]
    if isinstance(plan, StateStoreError):
        return Preview(source.path, target, version, tuple(changes), refused=plan)
    followed = plan.followed
    changes += [changed_rows(edit, bool(edit.unit), followed=True) for edit in followed]
    sizes = [each.bytes for each in plan.copied()]
    return Preview(
        source.path,
        target,
        plan.version,
        tuple(changes),
        plan.target_version,
        (*plan.notes, *left_keys(source, plan, [*(edit for edit, _ in edits), *followed])),
        plan.written_bytes(),
        sum(size or 0 for size in sizes),
        len(sizes),
    )


def changed_rows(edit: StateEdit, is_keyed: bool, *, followed: bool = False) -> ChangedRows:
    """Return the rows that an edit changes; those of a list (not ``is_keyed``) are removed and added."""
    rows = difference_of_rows(edit.state, edit.removed, edit.added, edit.unit, is_keyed=is_keyed)
    return ChangedRows(edit.state, rows, followed)


def _changes(name: str, old: Any, new: Any) -> Iterator[str]:
    """Yield the fields that differ, at any depth of structs."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        for member in old:
            if old[member] != new[member]:
                yield from _changes(f"{name}.{member}", old[member], new[member])
    else:
        yield f"{name} {_text(old)} → {_text(new)}"


def _text(value: Any) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
