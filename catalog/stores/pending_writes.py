"""Acknowledged writes that are not committed yet: kept in order, read by key, turned into records for a commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.commits.divided_records import DividedRecords, whole_or_divided
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.serdes.row_serde import RowSerde
from statestore.formats.serdes.value_layout import value_layout
from statestore.formats.values.canonical import from_arrow
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.types import TIME

Key = tuple[Any, ...]
Put = tuple[int, tuple[Any, ...] | None]  # epoch microseconds, value (None: tombstone)
EncodedPut = tuple[int, bytes | None]  # the same, with the value in the bytes of the changelog
BEFORE = -(2**63)  # earlier than all times


@dataclass
class _Singles:
    """Puts made one by one."""

    keys: list[Key] = field(default_factory=list)
    puts: list[EncodedPut] = field(default_factory=list)
    by_key: dict[Key, list[EncodedPut]] = field(default_factory=dict)


@dataclass
class _Bulk:
    """A batch of records in the store's record schema; its key index is built at the first read of a key."""

    batch: pa.RecordBatch
    index: KeyIndex | None = None


class Pending:
    """The uncommitted writes of one handle; ``parts`` is empty when there are none.

    ``taken`` numbers the writes (a batch is one) from 1 on; it never decreases.

    Values of single puts are kept as the bytes that the changelog has: few are read before the commit, which converts
    them all at once.
    """

    def __init__(self, spec: StoreSpec, keys: KeyCodec, serde: RowSerde) -> None:
        self._spec = spec
        self._keys = keys
        self._serde = serde
        self._decode = value_layout(spec.value).decode
        self._from_arrow = [from_arrow(field.type) for field in spec.value]
        self.parts: list[_Singles | _Bulk] = []
        self.taken = 0
        self._open: _Singles | None = None  # the part to which the next single put belongs
        self._newest: dict[Key, int] = {}  # the greatest time of the single puts of each key
        self._are_single = True  # no batches are pending

    def seal(self) -> int:
        """Make later writes begin a new part; return the current number of parts."""
        self._open = None
        return len(self.parts)

    def is_newest(self, key: Key, moment: int) -> bool:
        """Return whether all pending puts of a key are older; False also where that would take a search."""
        return self._are_single and self._newest.get(key, BEFORE) < moment

    def put(self, key: Key, put: EncodedPut) -> None:
        part = self._open
        if part is None:
            part = self._open = _Singles()
            self.parts.append(part)
        part.keys.append(key)
        part.puts.append(put)
        self.taken += 1
        same = part.by_key.get(key)
        if same is None:
            part.by_key[key] = [put]
        else:
            same.append(put)
        moment = put[0]
        if self._newest.get(key, BEFORE) < moment:
            self._newest[key] = moment

    def decoded(self, put: EncodedPut) -> Put:
        moment, value = put
        return moment, None if value is None else self._decode(value)

    def put_batch(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.parts.append(_Bulk(batch))
            self.taken += 1
            self._open = None
            self._are_single = False

    def forget(self, first: int, last: int | None = None) -> None:
        """Remove the parts from number ``first`` up to ``last`` (None: to the end)."""
        del self.parts[first:last]
        self._open = None
        # Writes that were made during a commit are left; the next put of one of their keys may still be the newest.
        left = [part for part in self.parts if isinstance(part, _Singles)]
        self._are_single = len(left) == len(self.parts)
        self._newest = {}
        for part in left:
            for key, puts in part.by_key.items():
                self._newest[key] = max(self._newest.get(key, BEFORE), *(moment for moment, _ in puts))

    def puts_of(self, key: Key, key_hash: int) -> list[Put]:
        """Return all pending puts of a key in the order of their acknowledgement."""
        puts: list[Put] = []
        for part in self.parts:
            if isinstance(part, _Singles):
                puts += map(self.decoded, part.by_key.get(key, ()))
            else:
                puts += self._bulk_puts(part, key, key_hash)
        return puts

    def records(self) -> Records | DividedRecords:
        """Return all pending writes, in order, as one set of records."""
        return records_of_batches(self._spec, list(self._batches()))

    def _bulk_puts(self, part: _Bulk, key: Key, key_hash: int) -> Iterator[Put]:
        width = len(self._spec.key)
        if part.index is None:
            part.index = KeyIndex.build(hash_keys(part.batch.columns[:width]))
        for row in sorted(part.index.find(key_hash)):
            cells = [column[row].as_py() for column in part.batch.columns[:-2]]
            if self._keys.normalize(tuple(cells[:width])) == key:
                tombstone = part.batch.column(part.batch.num_columns - 1)[row].as_py()
                moment = part.batch.column(part.batch.num_columns - 2)[row].value
                values = [to(cell) if to else cell for to, cell in zip(self._from_arrow, cells[width:], strict=True)]
                yield moment, None if tombstone else tuple(values)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for part in self.parts:
            if isinstance(part, _Bulk):
                yield part.batch
            else:
                yield self._singles(part)

    def _singles(self, part: _Singles) -> pa.RecordBatch:
        """Return puts as a batch of the store's record schema; a tombstone's value columns are null."""
        values = pa.array([value for _, value in part.puts], pa.binary())
        columns = [
            *self._keys.to_columns(part.keys),
            *self._serde.values_from_bytes(values),
            pa.array([moment for moment, _ in part.puts], pa.int64()).cast(TIME),
            values.is_null(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._spec.record_schema())


def records_from_rows(spec: StoreSpec, serde: RowSerde, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of the changelog (key, value, epoch milliseconds) as a batch of the store's record schema."""
    key, value, times = rows.columns
    columns = [
        *serde.keys_from_bytes(key),
        *serde.values_from_bytes(value),
        pc.multiply(times, 1000).cast(TIME),
        value.is_null(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=spec.record_schema())


def records_of_batches(spec: StoreSpec, batches: Sequence[pa.RecordBatch]) -> Records | DividedRecords:
    """Return batches of the record schema as Records, or divided where they are many."""
    return whole_or_divided(batches, spec.record_schema(), len(spec.key), partial(records_of, spec))


def records_of(spec: StoreSpec, table: pa.Table) -> Records:
    """Return a table of the record schema as Records."""
    # Arrow copies a column even if it already is one chunk.
    columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
    width = len(spec.key)
    times: npt.NDArray[np.int64] = columns[-2].view(pa.int64()).to_numpy(zero_copy_only=False)
    return Records(columns[:width], columns[width:-2], times, columns[-1].to_numpy(zero_copy_only=False))
