"""The rows of a store partition on disk as records of its changelog: a `RecordLog` over a state directory.

A row is the record that a restore would have made it of. Of a versioned store each version is one, and each end of a
version that no other version follows is a delete. Offsets are unknown, as are timestamps that a store does not keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.kafka.changelogs.record_log import LogFindings
from statestore.formats.kafka.changelogs.records import ListedHeaders, Records
from statestore.formats.kafka.columns.header_columns import empty_headers
from statestore.formats.kafka.columns.record_encoders import kept_headers, kept_timestamps, record_keys
from statestore.formats.kafka.columns.time_columns import UNKNOWN
from statestore.formats.kafka.directory.applications import StorePartition
from statestore.formats.kafka.known_store import KnownStore
from statestore.formats.kafka.store_at import VersionedAt, store_at
from statestore.formats.places.folder import Folder

_RAW = "bytes"


@dataclass(frozen=True)
class DirectoryLog:
    """The rows of one partition of a store; ``folder`` is the application's."""

    folder: Folder
    store: KnownStore
    place: StorePartition
    allow_unflushed: bool = False

    @property
    def partition(self) -> int:
        return 0 if self.place.partition is None else self.place.partition

    @property
    def findings(self) -> LogFindings:
        return LogFindings(self.partition, None, 0, None, None, markers_known=False)

    def read(self) -> Iterator[Records]:
        """Yield the rows, in no order; versions by their times, those of a partition at once."""
        kind = self.store.kind
        form = replace(self.store.form, key_serde=_RAW, value_serde=_RAW, window_size=None)
        raw = replace(self.store, form=form, partitions=(self.place,), retention=None)
        at = store_at(self.folder, raw, allow_unflushed=self.allow_unflushed, hide_expired=False)
        names = at.schema.names
        if isinstance(at, VersionedAt):
            yield from self._versions([b for part in at.parts(()) for b in at.past_rows(part, names, ()) if len(b)])
            return
        for part in at.parts(()):
            for rows in at.rows(part, names, ()):
                if len(rows):
                    times = kept_timestamps(kind, rows)
                    times = np.full(len(rows), UNKNOWN, np.int64) if times is None else times
                    keys = record_keys(kind, rows.column("key"), rows)
                    yield self._records(keys, rows.column("value"), times, kept_headers(kind, rows))

    def _versions(self, batches: list[pa.RecordBatch]) -> Iterator[Records]:
        if not batches:
            return
        rows = pa.Table.from_batches(batches).combine_chunks()
        key, value = (pa.concat_arrays(rows.column(name).chunks) for name in ("key", "value"))
        begin, end = (
            rows.column(name).cast(pa.int64()).fill_null(-1000).to_numpy() // 1000
            for name in ("valid_from", "valid_to")
        )
        code = key.dictionary_encode().indices.to_numpy()
        order = np.lexsort((begin, code))
        followed = np.zeros(len(order), bool)
        followed[order[:-1]] = (code[order[1:]] == code[order[:-1]]) & (begin[order[1:]] == end[order[:-1]])
        ended = np.flatnonzero((end >= 0) & ~followed)
        times = np.concatenate([begin, end[ended]])
        by_time = np.argsort(times, kind="stable")
        chosen = pa.array(by_time)
        keys = pa.concat_arrays([key, key.take(pa.array(ended))]).take(chosen)
        values = pa.concat_arrays([value, pa.nulls(len(ended), pa.binary())]).take(chosen)
        yield self._records(keys, values, times[by_time], empty_headers(len(times)))

    def _records(
        self, keys: pa.Array, values: pa.Array, times: np.ndarray[tuple[int], np.dtype[np.int64]], headers: pa.Array
    ) -> Records:
        listed = ListedHeaders(len(keys), headers)
        return Records(self.partition, None, times, None, cells_of(keys), cells_of(values), listed)
