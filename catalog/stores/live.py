"""Live stores: what every kind with a hot tier has in common.

A write is acknowledged when the changelog has it and is then put into the hot tier, from which the store answers;
`commit` turns what the changelog holds into segments and a version of the table that all doors read. The hot tier is a
cache: lost, stale or damaged, it is made anew from segments and changelog. Who may write: `tier_handle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.snapshot import Snapshot
from statestore.catalog.stores.handle import PutAllResult, check_transaction
from statestore.catalog.stores.hot_tier import HotTier
from statestore.catalog.stores.live_recovery import NO_TIME
from statestore.catalog.stores.live_rows import apply_rows, binary_columns
from statestore.catalog.stores.live_tables import Accepted, live_table, overwritten
from statestore.catalog.stores.record_input import TICK, batches_of
from statestore.catalog.stores.tier_checkpoint import remove_checkpoint
from statestore.catalog.stores.tier_handle import FOLDER, TierHandle
from statestore.catalog.write import Change, commit_change, commit_time
from statestore.formats.errors import InvalidInputError

RESTORE_ROWS = 1 << 16


class LiveStore(TierHandle):
    """A handle on a store with a hot tier; the kinds add their verbs."""

    def commit(self, transaction: tuple[str, int] | None = None) -> int:
        """Turn everything acknowledged into one commit; answers its version.

        ``transaction`` (application, batch number): if the log holds it already, what this handle wrote is discarded as
        a repetition; what it took over from a writer that died stays pending. With nothing to commit the newest version
        is answered and nothing is written.
        """
        transaction = check_transaction(transaction)
        with self._mutex:
            self._own()
            self._before_commit()
            batches = list(self._changelogs.uncommitted())
            keys, values = (binary_columns(batches, name) for name in ("key", "value"))
            times = np.concatenate([np.empty(0, np.int64), *(batch.column("timestamp") for batch in batches)])
            if not len(keys) and not self._dropped and transaction is None:
                return self.refresh()
            repeated = self._version_of(transaction)
            if repeated is not None:
                self._discard_own()
                return repeated
            found = Accepted(keys, values, self._ost, self._dropped, times)
            consumed = self._changelogs.consumed()
            snapshot = commit_change(
                self._files,
                self._snapshot,
                lambda base: self._change("write", base, found, transaction, consumed),
            )
            self._dropped = 0
            self._after_commit(snapshot)
            return snapshot.version

    def write(self, data: Any, mode: str = "append", transaction: tuple[str, int] | None = None) -> int:
        """Commit a table (as for ``put_all``) at once; answers the version. What is pending is committed before it.

        ``overwrite``: afterwards the current state is exactly these rows; history stays.
        """
        if mode not in ("append", "overwrite"):
            raise InvalidInputError("INVALID_MODE", f"write mode {mode!r}; expected 'append' or 'overwrite'")
        transaction = check_transaction(transaction)
        with self._mutex:
            tier = self._own()
            self.commit()
            repeated = self._version_of(transaction)
            if repeated is not None:
                return repeated
            found = self._accept(data)
            if not len(found.row_keys) and not found.dropped and transaction is None and mode == "append":
                return self.version
            if mode == "overwrite":
                found = self._overwriting(tier, found)
            operation = "write" if mode == "append" else "overwrite"
            snapshot = commit_change(
                self._files, self._snapshot, lambda base: self._change(operation, base, found, transaction, ())
            )
            self._observe(found.stream_time)
            self._snapshot = snapshot
            self._take_written(operation, found)
            self._after_commit(snapshot)
            return snapshot.version

    def put_all(self, data: Any) -> PutAllResult:
        """Bulk put of an Arrow table, RecordBatchReader or pandas DataFrame with the table's key and value columns, in
        row order; answers how many rows were accepted and refused.

        Rows whose optional ``_change_type`` is ``delete`` remove. Refused rows are counted in ``dropped_records``.
        """
        accepted = refused = 0
        with self._mutex:
            self._own()
            for batch in batches_of(data):
                found = self._accept(batch)
                self._dropped += found.dropped
                refused += found.dropped
                accepted += len(found.row_keys)
                self._acknowledge(found)
        return PutAllResult(accepted, refused)

    def flush(self) -> None:
        """Make what was acknowledged survive the end of the machine, too, and a restart cost nothing."""
        with self._mutex:
            self._own()
            with self._latencies.time("flush"):
                self._before_commit()
                self._changelogs.sync()
                self._save_tier()

    def changelog(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """(row key, value, epoch milliseconds) of everything acknowledged since the last commit, as logged."""
        with self._mutex:
            self._own()
            batches = list(self._changelogs.uncommitted())
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    # For the kinds

    def _put_row(self, segment: int, key: bytes, value: bytes | None, time: int) -> None:
        """Acknowledge one row and put it into the tier; the caller holds the mutex and owns the store."""
        (self._append or self._open_changelog())(key, value, time)
        assert self._tier is not None
        self._tier.put(segment, key, value)

    def _restore_rows(self, rows: Iterable[tuple[bytes, bytes | None, int]]) -> None:
        """Take in (row key, value, time) of a changelog, many at once; those of dead segments are left out."""
        windowing = self.spec.windowing
        first_live = 0 if windowing is None else windowing.first_live_segment(self._ost)
        remaining = iter(rows)
        while chunk := list(islice(remaining, RESTORE_ROWS)):
            keys, values, times = zip(*chunk, strict=True)
            found = Accepted(
                pa.array(keys, pa.binary()), pa.array(values, pa.binary()), max(times), times=np.array(times, np.int64)
            )
            segments = self._forms.segments(self._forms.times(found.row_keys))
            if segments is not None:
                alive = segments >= first_live
                found = found.chosen(alive)
            self._acknowledge(found)

    # Inside

    def _open_changelog(self) -> Callable[[bytes, bytes | None, int], Any]:
        """How rows are appended to the changelog, which is made if it is not there yet."""
        self._own()
        self._append = self._changelogs.writer().append_row
        return self._append

    def _acknowledge(self, found: Accepted) -> None:
        """Log rows as one batch and put them into the tier."""
        if len(found.row_keys):
            self._changelogs.append(found.batch(self._forms))
            self._observe(found.stream_time)
            self._into_tier(found)

    def _into_tier(self, found: Accepted) -> None:
        assert self._tier is not None
        segments = self._forms.segments(self._forms.times(found.row_keys))
        windowing = self.spec.windowing
        first_live = 0 if windowing is None else windowing.first_live_segment(self._ost)
        apply_rows(self._tier, found.row_keys, found.values, segments, first_live)

    def _overwriting(self, tier: HotTier, found: Accepted) -> Accepted:
        """Hook: the rows, and what removes all others."""
        return overwritten(self._forms, tier, found)

    def _take_written(self, operation: str, found: Accepted) -> None:
        """Hook: put what ``write`` has committed into the tier."""
        self._into_tier(found)

    def _accept(self, data: Any) -> Accepted:
        """The rows of a table that the kind's rules accept, in the form of the changelog."""
        found, self._sequence = live_table(self._forms, data, self._ost, self._sequence)
        return found

    def _change(
        self,
        operation: str,
        base: Snapshot,
        found: Accepted,
        transaction: tuple[str, int] | None,
        changelogs: tuple[tuple[str, int], ...],
    ) -> Change:
        if self.spec.kind == "key_value":
            # Without a time of its own: one moment per commit, later than that of every commit before.
            stream_time = max(commit_time(base), base.stream_time_us + TICK)
            times = np.full(len(found.row_keys), stream_time)
        else:
            stream_time = found.stream_time * TICK
            times = found.times_of(self._forms) * TICK
        records = self._forms.records(found.row_keys, found.values, times)
        return Change(
            operation, records, stream_time, found.dropped, transaction, changelogs, expiring=self.spec.windowing
        )

    def _after_commit(self, snapshot: Snapshot) -> None:
        """What the commit holds is in the tier; only when that is safe its changelog may go."""
        self._snapshot = snapshot
        self._changelogs.version = snapshot.version
        self._append = None
        if self._tier is not None:
            self._tier.flush()
        self._changelogs.discard()
        self._save_tier()
        self._committed(snapshot)

    def _version_of(self, transaction: tuple[str, int] | None) -> int | None:
        """The version that a transaction has in the log, None if it is new."""
        self.refresh()
        return None if transaction is None else self._snapshot.versions.find_transaction(*transaction)

    def _discard_own(self) -> None:
        """Forget what this handle acknowledged, in the tier, too."""
        self._append = None
        remove_checkpoint(self._root / FOLDER)  # it knows of what goes now, and is written again by the repair
        self._changelogs.discard_own()
        self._ost, self._dropped = NO_TIME, 0
        self._repair()
