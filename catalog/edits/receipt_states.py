"""The part of a receipt about the rows of an edit and its statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.edits.receipt import ROWS_AT_ONCE, EditedState, keyed_digest, rows_digest
from statestore.catalog.edits.row_sums import table_hashes
from statestore.catalog.edits.shown_rows import json_rows
from statestore.formats.edits import StateEdit
from statestore.formats.values.equal_hashes import distinct, numbered

_ADDING = ("INSERT", "PUT")
"""First words of statements that remove nothing."""


def edited_states(
    edits: Iterable[tuple[StateEdit, bool]], row_keys: Mapping[str, Sequence[str]], key: str, *, keep_rows: bool
) -> tuple[EditedState, ...]:
    """Return what became of each state; an edit comes with whether its rows follow from others.

    ``row_keys`` are the columns that identify the rows of a state. ``key`` is that of the digests.
    """
    return tuple(_edited(edit, follows, row_keys[edit.state], key, keep_rows) for edit, follows in edits)


def _edited(edit: StateEdit, follows: bool, row_key: Sequence[str], key: str, keep_rows: bool) -> EditedState:
    removed, added, changed = counts(edit, row_key)
    return EditedState(
        edit.state,
        removed,
        added,
        changed,
        rows_digest(key, edit.removed),
        rows_digest(key, edit.added),
        follows,
        tuple(_rows(edit.removed)) if keep_rows else None,
        tuple(_rows(edit.added)) if keep_rows else None,
    )


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from json_rows(batch)


def counts(edit: StateEdit, row_key: Sequence[str]) -> tuple[int, int, int]:
    """Return how many rows an edit removes, adds and changes.

    Rows that it both removes and adds as they are, for they belong to a unit that changes, are none of these.
    """
    names = edit.removed.column_names
    if not edit.removed.num_rows or not edit.added.num_rows:
        return edit.removed.num_rows, edit.added.num_rows, 0
    gone, come = (table_hashes(table, names) for table in (edit.removed, edit.added))
    numbers = numbered(np.concatenate([gone, come]))[0]
    size = len(numbers)
    before, after = (np.bincount(each, minlength=size) for each in np.split(numbers, [len(gone)]))
    same = int(np.minimum(before, after).sum())
    removed, added = len(gone) - same, len(come) - same
    if not row_key:
        return removed, added, 0
    old, new = (distinct(table_hashes(table, row_key)) for table in (edit.removed, edit.added))
    changed = len(np.intersect1d(old, new, assume_unique=True)) - same
    return removed - changed, added - changed, changed


def kept_statements(
    statements: Sequence[str], edits: Sequence[StateEdit], key: str, *, as_texts: bool
) -> tuple[str, ...]:
    """Return statements as a receipt keeps them: as texts if that was asked for, or if the edit only adds rows.

    Any statement of an edit that removes rows may name what must not survive: in its WHERE, and in rows it sets. So may
    one that found no row to remove.
    """
    adds = all(each.split(maxsplit=1)[0].upper() in _ADDING for each in statements if each.strip())
    if as_texts or (adds and not any(edit.removed.num_rows for edit in edits)):
        return tuple(statements)
    return tuple(keyed_digest(key, each) for each in statements)
