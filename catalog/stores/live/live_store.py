"""Live stores: the common part of all kinds with a hot tier.

A write is acknowledged when the changelog has it. It is then put into the hot tier, from which the store answers.
`commit` turns the content of the changelog into segments and a version of the table that all doors read. The hot tier
is a cache: a lost, stale or damaged tier is recreated from segments and changelog. `tier_owner` describes which handle
may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.publish_commit import Change, commit_change, commit_time
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_locations import TIER
from statestore.catalog.stores.group_commit import CommitAttempt, Taken
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_recovery import NO_TIME_MS
from statestore.catalog.stores.live.live_rows import apply_rows, binary_columns
from statestore.catalog.stores.live.live_tables import Accepted, live_table, overwritten
from statestore.catalog.stores.live.tier_errors import TierBrokenError, broken
from statestore.catalog.stores.live.tier_handle import TierHandle
from statestore.catalog.stores.live.tier_position import remove_position
from statestore.catalog.stores.record_input import batches_of
from statestore.catalog.stores.store_handle import PutAllResult, check_transaction
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, InvalidInputError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.values.times import TICK

RESTORE_ROWS = 1 << 16


class LiveStore(TierHandle):
    """A handle on a store with a hot tier; the kinds add their methods."""

    def commit(self, transaction: tuple[str, int] | None = None) -> int:
        """Turn all acknowledged writes into one commit; return its version.

        ``transaction`` (application, batch number): if the log has it already, the writes of this handle are discarded
        as a repetition; writes taken over from a writer that died stay pending. Without anything to commit, the newest
        version is returned and nothing is written.

        After an error the commit was not made, the writes are still acknowledged, and the call can be repeated. After
        CommitUnknownError the commit may have been made; a repeated call first determines that, and commits nothing
        twice.

        Threads that share the handle can go on writing during a commit (without ``transaction``). The next commit takes
        all their writes, and each thread gets the version that has its own.
        """
        transaction = check_transaction(transaction)
        if transaction is not None:
            with self._commits.turn, self._mutex:
                return self._commit(transaction)
        with self._mutex:
            self._own_log()
            self._before_commit()
            written = self._changelogs.position()
        return self._commits.version_with(written, partial(self._commit, None))

    def _commit(self, transaction: tuple[str, int] | None) -> int:
        def take() -> Taken[tuple[str, int]] | int:
            self._own_log()
            self._before_commit()
            self._finish_attempt()
            accepted = self._uncommitted()
            if not len(accepted.row_keys) and not self._dropped and transaction is None:
                self.refresh()
                self._check_owner(self._log_state)
                return self.version
            repeated = self._version_of(transaction)
            if repeated is not None:
                self._discard_own()
                return repeated
            consumed = self._changelogs.consumed()
            self._append = None  # later writes may go to another changelog

            def change(base: LogState) -> Change:
                self._check_owner(base)
                return self._change("write", base, accepted, transaction, consumed)

            return Taken(self._changelogs.position(), CommitAttempt(consumed, dropped=self._dropped), change)

        def forget(taken: Taken[tuple[str, int]], log_state: LogState) -> None:
            self._dropped -= taken.attempt.dropped
            self._after_commit(log_state)

        def commit(change: Callable[[LogState], Change | None]) -> LogState:
            with self._noting_unknown():
                return commit_change(self._files, self._log_state, change)

        log_state = self._commits.publish(self._mutex, self._changelogs, take, commit, forget)
        return log_state if isinstance(log_state, int) else self._committed(log_state)

    def _finish_attempt(self) -> None:
        """Determine whether a commit that raised took place; if it did, its records are no longer uncommitted."""
        self._settle_outcome()
        attempt = self._commits.attempt
        if attempt is None:
            return
        self.refresh()
        if attempt.took_place(self._storage, self._log_state):
            self._dropped -= attempt.dropped
            self._changelogs.mark_committed(self._log_state.changelogs)
            if not any(batch.num_rows for batch in self._changelogs.uncommitted()):
                self._changelogs.seal()
                self._after_commit(self._log_state)
                self._committed(self._log_state)
        self._commits.attempt = None

    def write(self, data: Any, mode: str = "append", transaction: tuple[str, int] | None = None) -> int:
        """Commit a table (as for ``put_all``) at once, after pending writes; return the version.

        ``overwrite``: afterwards the current state is exactly these rows; history stays.
        """
        if mode not in ("append", "overwrite"):
            raise InvalidInputError(ErrorCode.INVALID_MODE, f"write mode {mode!r}; expected 'append' or 'overwrite'")
        transaction = check_transaction(transaction)
        with self._commits.turn, self._mutex:
            self._own()
            self.commit()
            repeated = self._version_of(transaction)
            if repeated is not None:
                return repeated
            accepted = self._accept(data)
            if not len(accepted.row_keys) and not accepted.dropped and transaction is None and mode == "append":
                return self.version
            if mode == "overwrite":
                accepted = self._overwriting(accepted)
            operation = "write" if mode == "append" else "overwrite"

            def change(base: LogState) -> Change:
                self._check_owner(base)
                return self._change(operation, base, accepted, transaction, ())

            try:
                with self._noting_unknown():
                    log_state = commit_change(self._files, self._log_state, change)
            except CommitUnknownError:
                self._make_anew()  # from the table, which may have these rows
                raise
            self._observe(accepted.stream_time)
            self._advance(log_state)
            self._take_written(operation, accepted)
            self._after_commit(log_state)
            return self._committed(log_state)

    def put_all(self, data: Any) -> PutAllResult:
        """Put the rows of a frame with the table's key and value columns in their order. A frame is a pandas or Polars
        DataFrame, an Arrow table or reader, or another object with an Arrow stream, such as a relation of DuckDB.

        Returns how many rows were accepted and refused. Rows whose optional ``_change_type`` is ``delete`` remove.
        Refused rows are counted in ``dropped_records``.
        """
        accepted = refused = 0
        with self._mutex:
            self._own()
            for batch in batches_of(data):
                batch_accepted = self._accept(batch)
                self._dropped += batch_accepted.dropped
                refused += batch_accepted.dropped
                accepted += len(batch_accepted.row_keys)
                self._acknowledge(batch_accepted)
        return PutAllResult(accepted, refused)

    def flush(self) -> None:
        """Make acknowledged writes survive the end of the machine, too, and make a restart fast."""
        with self._mutex:
            self._own_log()
            with self._latencies.time("flush"):
                with disk_errors("sync the changelog", self._root):
                    self._before_commit()
                    self._changelogs.sync()
                self._save_tier()

    def changelog(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yield (row key, value, epoch milliseconds) of everything acknowledged since the last commit, as logged."""
        with self._mutex:
            self._own_log()
            with disk_errors("read the changelog", self._root):
                batches = list(self._changelogs.uncommitted())
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    # For the kinds

    def _put_row(self, time_segment: int, key: bytes, value: bytes | None, time: int) -> None:
        """Acknowledge one row and put it into the tier; the caller holds the mutex and owns the store.

        The row is acknowledged when the changelog has it: a tier that fails gets it from there when it is reopened.
        """
        (self._append or self._open_changelog())(key, value, time)
        tier = self._tier
        if tier is not None:
            try:
                tier.put(time_segment, key, value)
            except BaseException as error:
                self._lose_tier(tier, broken(error))
                if not isinstance(error, TierBrokenError):
                    raise

    def _restore_rows(self, rows: Iterable[tuple[bytes, bytes | None, int]]) -> None:
        """Take in (row key, value, time) of a changelog, many at once; rows of dead segments are left out."""
        windowing = self.spec.windowing
        first_live = 0 if windowing is None else windowing.first_live_time_segment(self._ost)
        remaining = iter(rows)
        while chunk := list(islice(remaining, RESTORE_ROWS)):
            keys, values, times = zip(*chunk, strict=True)
            restored = Accepted(
                pa.array(keys, pa.binary()), pa.array(values, pa.binary()), max(times), times=np.array(times, np.int64)
            )
            time_segments = self._forms.time_segments(self._forms.times(restored.row_keys))
            if time_segments is not None:
                alive = time_segments >= first_live
                restored = restored.chosen(alive)
            self._acknowledge(restored)

    # Internals

    def _open_changelog(self) -> Callable[[bytes, bytes | None, int], Any]:
        """Return the function that appends rows to the changelog, which is created if it does not exist."""
        self._own()
        with disk_errors("make a changelog", self._root):
            self._append = self._changelogs.writer().append_row
        return self._append

    def _uncommitted(self) -> Accepted:
        """Return the rows of the changelog that the next commit adds to the table."""
        batches = list(self._changelogs.uncommitted())
        keys, values = (binary_columns(batches, name) for name in ("key", "value"))
        times = np.concatenate([np.empty(0, np.int64), *(batch.column("timestamp") for batch in batches)])
        return Accepted(keys, values, self._ost, self._dropped, times)

    def _own_log(self) -> None:
        """Own the store, with or without a tier: operations that only read the changelog do not need a tier that has
        failed.
        """
        if self._lock is None or self._ost == NO_TIME_MS:
            self._own()

    def _acknowledge(self, accepted: Accepted) -> None:
        """Log rows as one batch and put them into the tier."""
        if len(accepted.row_keys):
            with disk_errors("write the changelog", self._root):
                self._changelogs.append(accepted.batch(self._forms))
            self._observe(accepted.stream_time)
            self._into_tier(accepted)

    def _into_tier(self, accepted: Accepted) -> None:
        """Put rows that the changelog or the table holds into the tier; a failing tier gets them when it is
        reopened."""
        tier = self._tier
        if tier is not None:
            try:
                self._apply(tier, accepted)
            except BaseException as error:
                self._lose_tier(tier, broken(error))
                if not isinstance(error, TierBrokenError):
                    raise

    def _apply(self, tier: HotTier, accepted: Accepted) -> None:
        """Hook: put rows into the tier."""
        time_segments = self._forms.time_segments(self._forms.times(accepted.row_keys))
        windowing = self.spec.windowing
        first_live = 0 if windowing is None else windowing.first_live_time_segment(self._ost)
        apply_rows(tier, accepted.row_keys, accepted.values, time_segments, first_live)

    def _overwriting(self, accepted: Accepted) -> Accepted:
        """Hook: return the rows together with deletes of all others."""
        return self._read(lambda tier: overwritten(tier, accepted))

    def _take_written(self, operation: str, written: Accepted) -> None:
        """Hook: put the rows that ``write`` has committed into the tier."""
        self._into_tier(written)

    def _accept(self, data: Any) -> Accepted:
        """Return the rows of a table that the kind's rules accept, in the form of the changelog."""
        accepted, self._sequence = live_table(self._forms, data, self._ost, self._sequence)
        return accepted

    def _change(
        self,
        operation: str,
        base: LogState,
        accepted: Accepted,
        transaction: tuple[str, int] | None,
        changelogs: tuple[tuple[str, int], ...],
    ) -> Change:
        if self.spec.kind == "key_value":
            # A key-value store has no time of its own: each commit has one moment, later than that of every commit
            # before.
            stream_time = max(commit_time(base), base.stream_time_us + TICK)
            times = np.full(len(accepted.row_keys), stream_time)
        else:
            stream_time = accepted.stream_time * TICK
            times = accepted.times_of(self._forms) * TICK
        records = self._forms.records(accepted.row_keys, accepted.values, times)
        return Change(
            operation, records, stream_time, accepted.dropped, transaction, changelogs, expiring=self.spec.windowing
        )

    def _after_commit(self, log_state: LogState) -> None:
        """Continue from the published version; a failure here must not fail the commit.

        The table has the changelog's records, so the changelog can be removed although the tier is not flushed: a tier
        whose position is older than the commit is not used. The log names a changelog that cannot be removed, so that
        its records are never applied again.
        """
        self._advance(log_state)
        self._changelogs.version = log_state.version
        self._append = None
        self._changelogs.discard_sealed()
        self._save_tier()

    def _version_of(self, transaction: tuple[str, int] | None) -> int | None:
        """Return the version that a transaction has in the log; None if it is new."""
        self.refresh()
        return None if transaction is None else self._log_state.versions.find_transaction(*transaction)

    def _discard_own(self) -> None:
        """Forget the acknowledged writes of this handle, in the tier, too."""
        remove_position(self._root / TIER)  # the next owner must not find discarded rows in the tier
        self._append = None
        self._changelogs.discard_own()
        self._ost, self._dropped = NO_TIME_MS, 0
        self._make_anew()
