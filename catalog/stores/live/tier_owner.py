"""Ownership of a live store's hot tier: one writer holds it by its lock, and a reader has a tier of its own.

One handle at a time writes to a store. It owns the directory by a lock that the operating system releases when its
process dies. The lock is taken at the first call of a live method, not at opening, because table reads need none. While
another handle holds it, a store opened here answers from the committed state and refuses writes (``STORE_LOCKED``).
Threads may share a handle: writes take turns.

The lock keeps the processes of one machine apart. Where the commits are in an object store, the store has one owner
among machines, too (`statestore.catalog.commits.store_owners`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from statestore.catalog.commits.changelogs import Changelogs, consumed_ends
from statestore.catalog.commits.store_owners import MachineOwner
from statestore.catalog.commits.writer_lock import take_writer_lock
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder
from statestore.catalog.log.store_locations import TIER
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.group_commit import SharedCommits
from statestore.catalog.stores.latency import Latencies
from statestore.catalog.stores.live.hot_tier import HotTier, time_segment_name_of
from statestore.catalog.stores.live.live_recovery import NO_TIME_MS, Content, can_follow, catch_up, rows_content
from statestore.catalog.stores.live.live_rows import row_forms
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.catalog.stores.live.tier_position import TierPosition, remove_position, this_boot, write_position
from statestore.catalog.stores.store_handle import AutoCompact, StoreHandle
from statestore.formats.changelogs.changelog import ROW_SCHEMA
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.local_directory import take_directory
from statestore.formats.places.rocksdb_forks import leave_in_forks, writing_rocksdb

Answer = TypeVar("Answer")

ATTEMPTS = 3
"""A failing tier is reopened; if it fails again it is recreated; if that fails, too, the call fails."""
LOOK_SECONDS = 2.0
"""How long reads of a handle that another machine keeps from writing do not ask again who owns the store."""


class TierOwner(StoreHandle):
    """A handle that opens, holds, recreates and gives up a hot tier; `TierHandle` adds what is asked of the tier."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        root = own_folder(storage, make=not read_only)
        if root is None:
            raise UnsupportedError(
                ErrorCode.NOT_LOCAL,
                f"store {spec.name!r} is not on a local disk; a {spec.kind} store needs one for its hot tier",
            )
        self._root: Path = root
        self._forms = row_forms(spec)
        # Threads may share a handle. Writes and changes of the tier take turns by the mutex. A commit holds it only
        # when it begins and ends; commits take turns by a lock of their own, which is taken before the mutex.
        self._mutex = threading.RLock()
        self._commits: SharedCommits[tuple[str, int]] = SharedCommits()
        self._lock: int | None = None
        self._machine = MachineOwner(self._files, root, partial(remove_position, root / TIER))
        self._unsettled = False  # a commit that raised may still appear in the object store
        self._look_again = 0.0  # by the monotonic clock
        self._changelogs = Changelogs(root, ROW_SCHEMA, store=spec.store_id, check=self._files.log.check_identity)
        self._tier: HotTier | None = None
        self._anew = False  # the existing tier must not be reopened
        self._remove_private: Callable[[], Any] | None = None  # removes the directory of a private tier
        self._tier_version = -1  # of a private tier
        self._ost = NO_TIME_MS  # observed stream time, epoch milliseconds
        self._sequence = 0
        self._latencies = Latencies()
        self._time_segment_name = time_segment_name_of(spec)
        # Bound methods of other objects only: a handle in a cycle would keep its lock until the next garbage
        # collection.
        self._append: Callable[[bytes, bytes | None, int], Any] | None = None
        leave_in_forks(self._leave)

    def __del__(self) -> None:
        """Give up the lock of a handle that is dropped without being closed.

        This may run at any time and in any thread, also in one that holds a lock: no request is sent, and no compaction
        is waited for.
        """
        with contextlib.suppress(Exception):
            self._machine.forget()
            self._wrote = False
            self.close()

    def close(self) -> None:
        """Close the handle and give up the store's lock; safe to call twice.

        Raises StorageError DISK_FAILED if the end of the changelog cannot be forced to the disk. The handle and its
        lock are given up even then, and acknowledged writes belong to the next handle.
        """
        with self._commits.turn, self._mutex:
            if self._closed:
                return
            try:
                if self._lock is not None:
                    with disk_errors("close the changelog", self._root):
                        self._before_commit()
                        self._changelogs.sync()
                    self._save_tier()
                    self._end_ownership()
            finally:
                try:
                    self._release()
                finally:
                    super().close()

    def _leave(self) -> None:
        """Forget the parent's resources in a forked child; live methods are refused from now on, tables can be read."""
        self._mutex = threading.RLock()  # a thread that the child does not have may have held it
        self._commits = SharedCommits()
        self._changelogs.leave()
        if self._tier is not None:
            self._tier.leave()
        self._remove_private = None
        self._release()
        leave_in_forks(self._leave)

    # Hooks

    def _before_commit(self) -> None:
        """Hook: write the rows that a kind holds back from the changelog."""

    def _content(self) -> Content:
        """Return the functions that bring the kind's rows into a tier."""
        return rows_content(self._files, self._forms)

    def _opened(self, tier: HotTier) -> None:
        """Hook: the tier was opened or recreated."""

    def _tier_in(self, folder: Path) -> HotTier:
        """Hook: return a tier in a folder, not opened."""
        return HotTier(folder, self.name, self._time_segment_name)

    # Opening

    def _own(self, takeover: bool = False) -> HotTier:
        """Return the tier of the store's own directory, held by its lock; the first call opens it and catches up."""
        tier = self._tier
        if self._lock is not None and tier is not None:
            return tier
        self._check_writable()
        with self._mutex:
            if self._lock is not None:
                return self._tier or self._open_tier()
            writing_rocksdb()
            self._machine.raise_if_lost()
            with self._files.log.or_replaced():
                lock = take_writer_lock(self._root, self.name)
            self._drop_tier()
            self._lock = lock
            try:
                self._machine.own(takeover)
                self._unsettled = False
                with disk_errors("open the changelog", self._root):
                    log_state, _lease = self._files.log.leased()  # others may have committed while they held the lock
                    self._advance(log_state)
                    self._changelogs.version = self._log_state.version
                    self._changelogs.take_over(self._committed_changelogs)
                return self._open_tier(first=True)
            except BaseException:
                with contextlib.suppress(StateStoreError):
                    self._release()
                raise

    # Other machines

    def _check_owner(self, log_state: LogState) -> None:
        """Give the store up, and raise ConflictError STORE_LOCKED, if another machine has taken it over."""
        if not self._machine.is_over(log_state):
            return
        with self._mutex:
            with contextlib.suppress(StateStoreError, OSError):
                self._before_commit()
            with contextlib.suppress(StateStoreError, OSError):
                self._release()
            self._machine.lose(log_state)
        self._machine.raise_if_lost()

    @contextlib.contextmanager
    def _noting_unknown(self) -> Iterator[None]:
        """Take note of a commit whose outcome is unknown after the block."""
        try:
            yield
        except BaseException as error:  # an interrupt may come before or behind the put
            self._unsettled |= isinstance(error, CommitUnknownError) or not isinstance(error, StateStoreError)
            raise

    def _settle_outcome(self) -> None:
        """Make sure that a commit whose outcome is unknown is there, or never will be: an object store may yet carry
        it out."""
        if self._machine.is_owner and self._unsettled:
            log_state = self._machine.settle()
            self._check_owner(log_state)
            self._advance(log_state)
            if self._commits.attempt is None:  # rows that are in no changelog may have been committed
                self._make_anew()
            self._unsettled = False

    def _end_ownership(self) -> None:
        """Record that the store is closed; without the record, other machines have to take it over."""
        if self._machine.is_owner:
            self._machine.end(not self._unsettled and not self._count_uncommitted(most=1))

    def _count_uncommitted(self, most: int | None = None) -> int:
        count = 0
        for batch in self._changelogs.uncommitted():
            count += batch.num_rows
            if most is not None and count >= most:
                break
        return count

    # The tier

    def _open_tier(self, first: bool = False) -> HotTier:
        """Open the tier and bring it up to date, or recreate it. Raises StorageError DISK_FAILED if neither is
        possible.
        """
        for _ in range(ATTEMPTS):
            try:
                with self._latencies.time("restore"), disk_errors("open the hot tier", self._root / TIER):
                    # With a commit whose outcome was unknown, if it was made.
                    log_state, _lease = self._files.log.leased()
                    self._check_owner(log_state)
                    self._advance(log_state)
                    tier, state = catch_up(
                        self._content(), self._new_tier, self._files, self._log_state, self._changelogs, self._anew
                    )
                try:
                    self._opened(tier)  # first, because other threads use the tier once it is visible
                except BaseException:
                    tier.close()
                    raise
                self._tier = tier
                break
            except TierBrokenError as error:
                failure = error
                self._drop_tier()
                self._anew = True
        else:
            raise failure.as_storage_error(self._root / TIER)
        self._anew = False
        self._ost = max(self._ost, state.stream_time)
        self._sequence = max(self._sequence, state.sequence)
        if first:
            self._dropped += state.dropped
        self._drop_dead(tier)
        with contextlib.suppress(TierBrokenError):  # the tier answers now; the next call that fails recreates it
            self._write_position(tier)
        return tier

    def _new_tier(self) -> HotTier:
        return self._tier_in(self._root / TIER)

    def _drop_dead(self, tier: HotTier) -> bool:
        """Remove the segments that the stream time has ended; return whether there were any."""
        windowing = self.spec.windowing
        return windowing is not None and tier.drop_before(windowing.first_live_time_segment(self._ost))

    def _readable(self) -> HotTier:
        """Return the own tier, or a tier of the committed state where another handle owns the store."""
        tier = self._tier
        if tier is not None and self._lock is not None:
            return tier
        self._check_open()
        with self._mutex:
            if not self.read_only and time.monotonic() >= self._look_again:
                try:
                    return self._own()
                except ConflictError:
                    if self._machine.is_shared:
                        self._look_again = time.monotonic() + LOOK_SECONDS
            return self._follow_commits()

    def _follow_commits(self) -> HotTier:
        """Return a private tier with the newest committed state."""
        writing_rocksdb()
        log_state, _lease = self._files.log.leased()
        if self._tier is not None and self._tier_version == log_state.version:
            return self._tier
        for _ in range(ATTEMPTS):
            try:
                tier = self._brought_to(log_state)
                self._opened(tier)
                self._tier_version = log_state.version
                self._advance(log_state)
                return tier
            except TierBrokenError as error:
                failure = error
                self._drop_tier()
            except BaseException:
                self._drop_tier()
                raise
        raise failure.as_storage_error("the reader's own hot tier, in the folder for temporary files")

    def _brought_to(self, log_state: LogState) -> HotTier:
        """Return the private tier, or a new one, with exactly the rows of a log state."""
        content = self._content()
        if self._tier is not None and can_follow(content, log_state, self._tier_version):
            assert content.follow is not None
            state = content.follow(self._tier, log_state, self._tier_version)
        else:
            self._drop_tier()
            directory = take_directory()
            self._remove_private = weakref.finalize(self, directory.remove)
            self._tier = self._tier_in(directory.path / TIER)
            state = content.fill(self._tier, log_state)
        self._ost = state.stream_time
        return self._tier

    # Failing, saving, closing

    def _make_anew(self) -> None:
        """Recreate the tier from table and changelog, or leave that to the next call that needs the tier if it fails
        now.
        """
        self._lose_tier(self._tier, TierBrokenError("it holds rows that the store does not have"))
        self._anew = True
        with contextlib.suppress(StorageError):
            self._own()

    def _lose_tier(self, tier: HotTier | None, error: TierBrokenError, anew: bool = False) -> bool:
        """Close a failing tier; return False if another thread closed it before.

        The next call that needs a tier reopens it, or recreates it if it is damaged. After False the error does not
        concern the current tier.
        """
        with self._mutex:
            if tier is None or self._tier is not tier:
                return False
            self._anew = self._lock is not None and (anew or error.damaged)
            self._append = None
            self._drop_tier()
            return True

    def _save_tier(self) -> None:
        """Flush the tier and record its position.

        If the disk refuses, the tier continues to answer from memory, which a later flush may still write; it is
        reopened when it refuses a row.
        """
        tier = self._tier
        if tier is not None:
            try:
                self._write_position(tier)
            except TierBrokenError as error:
                if error.damaged:
                    self._lose_tier(tier, error)

    def _write_position(self, tier: HotTier) -> None:
        tier.flush()
        name, end = self._changelogs.position()
        position = TierPosition(
            store_id=self.spec.store_id,
            version=self._log_state.version,
            changelog=name,
            offset=end,
            stream_time=self._ost,
            sequence=self._sequence,
            dropped=self._dropped,
            segments=tier.marks(),
            boot=this_boot(),
            held=self._changelogs.extents(),
            time_ordered=self.spec.windowing is not None and self.spec.windowing.time_ordered,
        )
        with contextlib.suppress(OSError):  # the previous position is still true, but covers less
            write_position(self._root / TIER, position)

    def _drop_tier(self) -> None:
        """Close the tier, and remove a private one; never fails."""
        tier, self._tier = self._tier, None
        if tier is not None:
            tier.close()
        remove, self._remove_private = self._remove_private, None
        if remove is not None:
            remove()
        self._tier_version = -1

    def _release(self) -> None:
        """Give up tier, changelogs and lock."""
        self._append = None
        self._drop_tier()
        try:
            with disk_errors("close the changelog", self._root):
                self._changelogs.close()
        finally:
            self._machine.forget()
            lock, self._lock = self._lock, None
            if lock is not None:
                os.close(lock)

    def _advance(self, log_state: LogState) -> int:
        with self._mutex:
            if log_state.version >= self._log_state.version:  # another thread may have seen a later one already
                self._log_state = log_state
        return log_state.version

    def _committed_changelogs(self, names: Collection[str]) -> Mapping[str, int]:
        self._advance(self._files.log.newest())
        return consumed_ends(self._storage, self._log_state, names)
