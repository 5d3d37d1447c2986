"""Rows of one side of a stream-stream join: which stored row each removed row is, which one each added row replaces.

``matched`` says that a result with the row was emitted. Spark looks at it when the watermark removes the row: an outer
join then emits a row that was not matched with nulls. A row that stays as it is, or of which values change, keeps it,
as what was emitted with it is not taken back. A row that is added has been joined with nothing, whatever the other side
has: it is not matched, so that an outer join emits it, too, at the latest when it is removed. So no row is added of
which no result would ever be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_parts import joined_parts
from statestore.formats.edits import StateEdit
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.spark_schema import StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.editable_states import late_rows, next_watermark
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.rows.unsafe_row_encoding import row_parts
from statestore.formats.spark.state_edits import ANEW
from statestore.formats.spark.state_rows import state_decoder


@dataclass(frozen=True)
class SideRows:
    """Rows of an edit: the columns of their keys, without an index, and of their values; the place of each row, its
    stored key, and its values as bytes to compare."""

    keys: Sequence[pa.Array]
    values: Sequence[pa.Array]
    partition: Ints
    stored_keys: list[bytes]
    content: list[bytes]

    def places(self) -> Iterator[tuple[int, bytes]]:
        """The partition and the stored key of each row."""
        return zip(self.partition.tolist(), self.stored_keys, strict=True)


@dataclass(frozen=True)
class JoinedRow:
    """A stored row of a key: its index, what it shows as bytes, whether it was matched."""

    index: int
    content: bytes
    matched: bool


def has_flag(side: StateView, numbered: StateView) -> bool:
    """Return whether stored rows say that they were matched."""
    return len(numbered.family.value.fields) > len(side.value.fields)


def fields_of(column: pa.ChunkedArray) -> list[pa.Array]:
    """The fields of keys or of values. Raises InvalidInputError EDIT_REFUSED where one is null."""
    whole = column.combine_chunks()
    if whole.null_count:
        raise refused("found null in place of a key or a value; give all columns of each row")
    return [whole.field(number) for number in range(whole.type.num_fields)]


def content_of(columns: Sequence[pa.Array], schema: StructOf, rows: int) -> list[bytes]:
    """The values that rows show, as bytes: equal rows have equal ones."""
    found: list[bytes] = joined_parts(row_parts(columns, schema, rows), rows).copied(corrupt_row).to_pylist()
    return found


def decoded_rows(
    checkpoint: Checkpoint, side: StateView, numbered: StateView, partition: int, batch: pa.RecordBatch
) -> Iterator[tuple[bytes, bool]]:
    """Yield content of stored rows, and whether they were matched."""
    if not batch.num_rows:
        return
    value = state_decoder(checkpoint, numbered, partition, None)(StoredRows(batch)).column(1)
    count = len(side.value.fields)
    content = content_of([value.field(number) for number in range(count)], side.value, len(value))
    flags = value.field(count).to_pylist() if has_flag(side, numbered) else [False] * len(value)
    yield from zip(content, flags, strict=True)


def recognised(removed: list[bytes], stored: list[JoinedRow], state: str) -> list[JoinedRow]:
    """The stored row of each removed row of a key; of equal ones that of the lower index comes first."""
    by_content: dict[bytes, list[JoinedRow]] = {}
    for row in reversed(stored):
        by_content.setdefault(row.content, []).append(row)
    found = [by_content[content].pop() for content in removed if by_content.get(content)]
    if len(found) != len(removed):
        raise refused(
            f"{state}: {len(removed) - len(found)} rows of a key are not stored as the edit says that they were; {ANEW}"
        )
    return found


def successors(removed: list[JoinedRow], added: list[bytes], state: str) -> list[JoinedRow | None]:
    """The removed row of which each added row of a key takes the place; None for rows that are new.

    Equal rows stay. Of the others, as many as are removed and added are changed, in their order.
    """
    left: dict[bytes, list[JoinedRow]] = {}
    for row in reversed(removed):
        left.setdefault(row.content, []).append(row)
    found = [left[content].pop() if left.get(content) else None for content in added]
    kept = {row.index for row in found if row is not None}
    gone = [row for row in removed if row.index not in kept]
    holes = [number for number, row in enumerate(found) if row is None]
    if len(gone) != len(holes) and gone and holes and any(row.matched for row in gone):
        raise refused(
            f"{state}: of a key {len(gone)} rows go and {len(holes)} others come, so it is not certain which of these "
            "are changed, and stay matched, and which are new; change rows of a key in one edit, and insert or delete "
            "rows of it in another"
        )
    for number, changed in zip(holes, gone, strict=False):
        found[number] = changed
    return found


def stay_matched(replaced: Sequence[JoinedRow | None], added: Sequence[bytes]) -> int:
    """Return how many added rows differ from the matched rows whose place they take."""
    return sum(
        row is not None and row.matched and row.content != content for row, content in zip(replaced, added, strict=True)
    )


def told_of_rows(
    checkpoint: Checkpoint, side: StateView, stored: StateView, edit: StateEdit, state: str, matched: int
) -> Iterator[str]:
    """Tell what becomes of added rows; ``matched`` of them take the place of others that were matched."""
    if matched:
        yield (
            f"{state}: {matched} rows take the place of rows that were matched, and stay so: an outer join does not "
            "emit them with nulls. Rows that are new, and not changed, are to be inserted in an edit of their own."
        )
    if edit.added.num_rows > edit.removed.num_rows and has_flag(side, stored):
        yield (
            f"{state}: rows that are added were joined with nothing, so an outer join emits them with nulls when the "
            "watermark removes them, unless rows that come later match."
        )
    watermark = next_watermark(checkpoint)
    late, were_late = (int(np.count_nonzero(late_rows(side, rows, watermark))) for rows in (edit.added, edit.removed))
    if late > were_late:
        yield (
            f"{state}: {late - were_late} more rows than before are older than the watermark, {watermark} ms; the next "
            "batch removes them, unless the condition of the join needs them longer."
        )
