"""Who holds the hot tier of a live store: the one writer, by its lock, or a reader with a tier of its own.

One handle at a time writes to a store, and owns its directory by a lock that the system takes back from a process that
dies. It is taken at the first use of a live verb, not by opening: table reads need none. While another handle
holds it, a store opened here answers what is committed and refuses writes (``STORE_LOCKED``). Handles may be shared by
threads: writes take turns.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from statestore.catalog.storage import Storage, local_root
from statestore.catalog.store_spec import StoreSpec
from statestore.catalog.stores.acknowledged import Changelogs
from statestore.catalog.stores.consumed import consumed_ends
from statestore.catalog.stores.handle import StoreHandle
from statestore.catalog.stores.hot_tier import HotTier, Row, TierBrokenError
from statestore.catalog.stores.latency import Latencies
from statestore.catalog.stores.live_recovery import NO_TIME, Content, catch_up, follow_commits, rebuild, rows_content
from statestore.catalog.stores.live_rows import row_forms
from statestore.catalog.stores.segment_names import segment_name_of
from statestore.catalog.stores.tier_checkpoint import TierCheckpoint, this_boot, write_checkpoint
from statestore.catalog.stores.writer_lock import take_writer_lock
from statestore.formats.changelog import ROW_SCHEMA
from statestore.formats.errors import ConflictError, UnsupportedError
from statestore.formats.times import MAX_MS, MIN_MS, to_us

Answer = TypeVar("Answer")

FOLDER = "live"
MAX_TIME = 2**63 - 1


class TierHandle(StoreHandle):
    """A handle on a store with a hot tier, which it owns or reads; `LiveStore` adds the writing."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: bool = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        root = local_root(storage)
        if root is None:
            raise UnsupportedError(
                "NOT_LOCAL",
                f"store {spec.name!r} is not on a local disk; a {spec.kind} store needs one for its hot tier",
            )
        self._root: Path = root
        self._forms = row_forms(spec)
        self._mutex = threading.RLock()
        self._lock: int | None = None
        self._changelogs = Changelogs(root, ROW_SCHEMA)
        self._tier: HotTier | None = None
        self._private: tempfile.TemporaryDirectory[str] | None = None
        self._tier_version = -1  # of a private tier
        self._ost = NO_TIME  # observed stream time, epoch milliseconds
        self._sequence = 0
        self._latencies = Latencies()
        self._segment_name = segment_name_of(spec)
        # Bound methods of others only: a handle in a cycle would keep its lock until the collector comes by.
        self._append: Callable[[bytes, bytes | None, int], Any] | None = None

    def __del__(self) -> None:
        """A handle that is dropped without being closed gives up its lock, too."""
        with contextlib.suppress(Exception):
            self.close()

    def close(self) -> None:
        """Give up the handle and the store's lock; safe to call twice."""
        with self._mutex:
            if self._closed:
                return
            try:
                if self._lock is not None:
                    self._before_commit()
                    self._changelogs.sync()
                    self._save_tier()
            finally:
                try:
                    self._changelogs.close()
                finally:
                    self._append = None
                    self._drop_tier()
                    super().close()

    def metrics(self) -> dict[str, Any]:
        """Counts as of now, and for each kind of call its count and, in microseconds, mean and 99th percentile of a
        sample of the calls."""
        with self._mutex:
            tier = self._tier
            rows = 0 if tier is None else tier.estimated_rows()
            segments = 0 if tier is None else len(tier.segments())
        table = self._table_metrics()
        return {
            **table,
            "rows": rows or table["rows"],
            "hot_segments": segments,
            "latencies": self._latencies.report(),
        }

    def physical(self) -> Iterator[tuple[str, bytes, bytes]]:
        """(directory, row key, value) of every row in the hot tier, as stored."""
        tier = self._readable()
        for segment in tier.segments():
            name = self._segment_name(segment) if self._segment_name else f"rocksdb/{self.name}"
            for key, value in tier.scan(segment):
                yield name, key, value

    @property
    def dropped_records(self) -> int:
        """Records refused because their segment was too old, in the life of the store."""
        self._readable()
        return super().dropped_records

    @property
    def observed_stream_time(self) -> int:
        """The greatest time put so far, epoch milliseconds; -1 before the first."""
        self._readable()
        return self._ost

    # For the kinds

    def _observe(self, time: int) -> None:
        """Move the stream time on, and drop the segments that this ends."""
        if time > self._ost:
            self._ost = time
            windowing = self.spec.windowing
            if windowing is not None and self._tier is not None:
                dropped = self._tier.drop_before(windowing.first_live_segment(time))
                if dropped and self._lock is not None:
                    self._save_tier()  # the checkpoint must not tell of segments that are gone

    def _read(self, ask: Callable[[HotTier], Answer]) -> Answer:
        """The answer of the tier; of a new one, if it turns out to be damaged."""
        try:
            return ask(self._readable())
        except TierBrokenError:
            self._repair()
            return ask(self._readable())

    def _rows(self, segments: Iterable[int], low: bytes | None, high: bytes | None, backwards: bool) -> Iterator[Row]:
        """Rows with ``low`` <= key < ``high`` segment by segment; segments that are dropped meanwhile disappear.

        Damage that is met on the way is repaired, and the rows go on behind the last one that was given.
        """
        for segment in segments:
            first, last = low, high
            while True:
                try:
                    for row in self._readable().scan(segment, first, last, backwards):
                        yield row
                        if backwards:
                            last = row[0]
                        else:
                            first = row[0] + b"\0"
                    break
                except TierBrokenError:
                    self._repair()

    def _time(self, time: Any, what: str) -> int:
        """Epoch milliseconds of a time as users give it."""
        if type(time) is int and MIN_MS <= time <= MAX_MS:
            return time
        return to_us(time, what) // 1000

    def _bound(self, time: Any, what: str) -> int:
        """The same for an end of a range, which may lie before or after all times there are."""
        return time if type(time) is int and -MAX_TIME <= time <= MAX_TIME else self._time(time, what)

    def _before_commit(self) -> None:
        """Hook: what a kind holds back from the changelog is written now."""

    # Inside

    def _own(self) -> HotTier:
        """The tier of the store's own directory, held by its lock; opened and caught up at the first call."""
        if self._lock is not None and self._tier is not None:
            return self._tier
        self._check_writable()
        with self._mutex:
            if self._lock is None:
                lock = take_writer_lock(self._root, self.name)
                self._drop_tier()
                self._lock = lock
            try:
                self._changelogs.version = self._snapshot.version
                self._changelogs.take_over(self._committed_changelogs)
                self._open_tier()
            except BaseException:
                self._changelogs.close()
                self._drop_tier()
                raise
            assert self._tier is not None
            return self._tier

    def _open_tier(self) -> None:
        tier = HotTier(self._root / FOLDER, self.name, self._segment_name)
        with self._latencies.time("restore"):
            state = catch_up(self._content(), tier, self._files, self._snapshot, self._changelogs)
        self._tier = tier
        self._ost = max(self._ost, state.stream_time)
        self._sequence = max(self._sequence, state.sequence)
        self._dropped += state.dropped
        self._opened(tier)
        self._save_tier()

    def _content(self) -> Content:
        """How the kind's rows get into a tier."""
        return rows_content(self._files, self._forms)

    def _opened(self, tier: HotTier) -> None:
        """Hook: the tier is there, or was made anew."""

    def _readable(self) -> HotTier:
        """The own tier, or one of what is committed where another handle owns the store."""
        if self._tier is not None and self._lock is not None:
            return self._tier
        self._check_open()
        with self._mutex:
            if not self.read_only:
                try:
                    return self._own()
                except ConflictError:
                    pass
            return self._follow_commits()

    def _follow_commits(self) -> HotTier:
        """A private tier with the newest committed state."""
        snapshot = self._files.snapshot()
        if self._tier is None:
            self._private = tempfile.TemporaryDirectory(prefix="statestore-")
            self._tier = HotTier(Path(self._private.name), self.name, self._segment_name)
            self._tier_version = -1
        if self._tier_version != snapshot.version:
            state = follow_commits(self._content(), self._tier, snapshot, self._tier_version)
            self._tier_version = snapshot.version
            self._ost = state.stream_time
            self._opened(self._tier)
            self._advance(snapshot)
        return self._tier

    def _repair(self) -> None:
        """Make the tier anew."""
        with self._mutex:
            if self._tier is None:
                return
            if self._lock is None:
                self._tier.destroy()
                self._tier_version = -1
                return
            state = rebuild(self._content(), self._tier, self._snapshot, self._changelogs)
            self._ost = max(self._ost, state.stream_time)
            self._opened(self._tier)
            self._save_tier()

    def _save_tier(self) -> None:
        """Flush the tier and say how far it has come."""
        assert self._tier is not None
        self._tier.flush()
        name, end = self._changelogs.position()
        checkpoint = TierCheckpoint(
            store_id=self.spec.store_id,
            version=self._snapshot.version,
            changelog=name,
            offset=end,
            stream_time=self._ost,
            sequence=self._sequence,
            dropped=self._dropped,
            segments=tuple(self._tier.segments()),
            boot=this_boot(),
            held=self._changelogs.extents(),
        )
        write_checkpoint(self._root / FOLDER, checkpoint)

    def _drop_tier(self) -> None:
        if self._tier is not None:
            self._tier.close()
            self._tier = None
        if self._private is not None:
            self._private.cleanup()
            self._private = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _committed_changelogs(self, names: Collection[str]) -> Mapping[str, int]:
        self._advance(self._files.snapshot())
        return consumed_ends(self._storage, self._snapshot, names)
