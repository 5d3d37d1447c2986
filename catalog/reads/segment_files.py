"""Opened segments of one store: mapped once per process, checked once, shared by every read.

Files are immutable and have unique names, so the caches cannot go stale; they are only bounded in size. Touching a
mapping beyond the end of a file that was truncated meanwhile ends the process. Therefore the length of a mapped file is
checked again at each use.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_log import StoreLog
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.carried_states import (
    BlockStatistics,
    BoundedCache,
    OpenMarks,
    PendingClosures,
    Slices,
    begins_with,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.kernels.arrays import Ints, U32s
from statestore.formats.places.object_cache import CachedObject
from statestore.formats.places.rocksdb_forks import leave_in_forks
from statestore.formats.segments.closures import ClosureFile
from statestore.formats.segments.decoded_columns import DecodedColumns
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.segments.regions import check_length, corrupt
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef, SegmentMeta
from statestore.formats.values.key_hash import hash_keys

Found = TypeVar("Found")

MAX_OPEN_FILES = 1024
# Bytes of one store: closures by row, whole columns of newest ends, and closure files; and marks of open rows, which
# are small and have a budget of their own, so that reads of the past do not displace them.
CARRIED_BYTES = 128 << 20
MARKS_BYTES = 32 << 20
# Of closure files that are mapped. Were all copied, those of a store of ten million versions would take 60 MB.
MAPPED_BYTES = 1 << 18


class SegmentFiles:
    """Segments, key indexes and closure lists of one store, opened on demand and kept open."""

    def __init__(self, storage: Storage, spec: StoreSpec) -> None:
        self.storage = storage
        self.spec = spec
        root = local_root(storage)
        self._folder = None if root is None else f"{root}/"
        self._lock = threading.RLock()
        self._opened: OrderedDict[tuple[str, str], object] = OrderedDict()
        self._carried = BoundedCache(CARRIED_BYTES)
        self._marks = BoundedCache(MARKS_BYTES)
        self._statistics = BlockStatistics()
        self._swept: LogState | None = None
        self._shared: Any = None
        self.log = StoreLog(storage, spec)
        leave_in_forks(self._in_fork)

    @property
    def is_local(self) -> bool:
        return self._folder is not None

    def _in_fork(self) -> None:
        """Replace the lock in a forked child: a thread that the child does not have may have held it."""
        self._lock = threading.RLock()
        leave_in_forks(self._in_fork)

    def block_statistics(self, segments: tuple[SegmentMeta, ...]) -> BlockStatistics:
        """Return the statistics of the blocks of these segments of a log state; those of the last ones are kept."""
        known = self._statistics
        if known.segments is not segments:
            known = self._statistics = known.of(segments)
        return known

    def open_segment(self, meta: SegmentMeta) -> Segment:
        return self._once(("segment", meta.name), meta.file, lambda: self._map_segment(meta))

    def open_apart(self, meta: SegmentMeta, kept: DecodedColumns) -> Segment:
        """Open a segment for one reader alone, who keeps the columns that have to be made in ``kept``.

        A segment of an object store, which is in memory, is shared.
        """
        if self._folder is None:
            return self.open_segment(meta)
        return Segment(meta, self.opened(meta.file), self._schema(meta), kept)

    def index(self, meta: SegmentMeta) -> KeyIndex:
        """Return the key index of a segment: its file if it has one, else an index built in memory from the key
        columns.
        """
        return self._once(("index", meta.name), meta.index, lambda: self._open_index(meta))

    def know_index(self, meta: SegmentMeta, index: KeyIndex) -> None:
        """Keep the index of a segment that this process has just written."""
        self._once(("index", meta.name), None, lambda: index)

    def match(self, meta: SegmentMeta, hashes: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Return (position in ``hashes``, row of the segment) of every row whose key has one of these hashes."""
        position, row = self.index(meta).match(hashes)
        return position.astype(np.int64, copy=False), row.astype(np.int64)

    def closures(self, piece: ClosureSlice, rows_of_segment: int) -> tuple[Ints, Ints]:
        """Return (rows ascending, new ends in epoch microseconds) of one closure list.

        Raises CorruptError SEGMENT_CORRUPT for a row beyond ``rows_of_segment``, and the errors of `ClosureFile`.
        """
        rows, ends = self._closure_slice(piece, rows_of_segment)
        return rows.astype(np.int64), ends.copy()

    def pending(self, meta: SegmentMeta, closures: Slices) -> PendingClosures:
        """Return these closures of a segment by row, perhaps with further ones of later commits."""
        key = ("pending", meta.name)
        with self._lock:
            state: PendingClosures | None = self._carried.get(key)
        if state is not None and begins_with(state.slices, closures):
            return state
        base = state if state is not None and begins_with(closures, state.slices) else PendingClosures()
        longer = base.extended(closures, lambda piece: self._closure_slice(piece, meta.rows))
        with self._lock:
            self._carried.put(key, longer, longer.nbytes)
        return longer

    def open_marks(self, meta: SegmentMeta, closures: Slices) -> OpenMarks:
        """Return the marks of the rows that are open after exactly these closures."""
        with self._lock:
            state: OpenMarks | None = self._marks.get(meta.name)
        if state is not None and len(state.slices) == len(closures) and begins_with(state.slices, closures):
            return state
        if state is None or not begins_with(closures, state.slices):
            state = OpenMarks.of(self.open_segment(meta).int64("valid_to"))
        if closures:
            state = state.extended(closures, lambda piece: self._closure_slice(piece, meta.rows))
        with self._lock:
            self._marks.put(meta.name, state, state.nbytes)
        return state

    def newest_ends(self, meta: SegmentMeta, closures: Slices) -> Ints:
        """Return the ends of all rows after these closures (in version order); read-only, cached."""
        stored = self.open_segment(meta).int64("valid_to")
        if not closures:
            return stored
        key = ("ends", meta.name)
        with self._lock:
            kept: tuple[Slices, Ints] | None = self._carried.get(key)
        if kept is not None and len(kept[0]) == len(closures) and begins_with(kept[0], closures):
            return kept[1]
        ends = stored.copy()
        self.pending(meta, closures).apply(ends, 0, len(closures))
        ends.flags.writeable = False
        with self._lock:
            self._carried.put(key, (closures, ends), ends.nbytes)
        return ends

    def _closure_slice(self, piece: ClosureSlice, rows_of_segment: int) -> tuple[U32s, Ints]:
        """Return what `closures` returns, as views that are not to be changed."""
        ref = piece.file
        with self._lock:
            file: ClosureFile | None = self._carried.get(ref)
        if file is None:
            data = self.opened(ref)
            # Copied where it is small, because a process can map some ten thousand files only.
            is_copied = not isinstance(data, pa.Buffer) or ref.bytes < MAPPED_BYTES
            if isinstance(data, pa.Buffer) and is_copied:
                data = pa.py_buffer(data.to_pybytes())
            file = ClosureFile(ref, data)
            with self._lock:
                self._carried.put(ref, file, 1024 + (ref.bytes if is_copied else 0))
        elif ref.bytes >= MAPPED_BYTES:
            self.check_length(ref)
        rows, ends = file.read(piece)
        if rows[-1] >= rows_of_segment:
            raise corrupt(ref, f"it closes row {rows[-1]} of {piece.segment}, which has {rows_of_segment} rows")
        return rows, ends

    def shared(self, follow: Callable[[Any], Any]) -> Any:
        """Return what ``follow`` makes of what it made last, None at first: all readers of the process share it."""
        with self._lock:
            self._shared = follow(self._shared)
            return self._shared

    def forget(self) -> None:
        """Drop every mapping and cached array."""
        self.log.forget()
        with self._lock:
            self._shared = None
            self._opened.clear()
            self._carried.clear()
            self._marks.clear()
            self._statistics = BlockStatistics()

    def close_replaced(self, log_state: LogState) -> None:
        """Close the files that a log state does not name: a removed file takes its space on the disk until then.

        Reads under way that still need one hold it, or open it again.
        """
        names = {meta.name for meta in log_state.segments}
        with self._lock:
            self._shared = None
            for key in [key for key in self._opened if key[1] not in names]:
                del self._opened[key]

    def _map_segment(self, meta: SegmentMeta) -> Segment:
        return Segment(meta, self.opened(meta.file), self._schema(meta))

    def opened(self, ref: FileRef) -> pa.Buffer | CachedObject:
        """Return the bytes of a data file. Raises NotFoundError FILES_REPLACED if a compaction replaced the file; of
        one in an object store, what fetches its bytes does.
        """
        try:
            found = self.storage.opened(ref)
        except NotFoundError as error:
            raise _explained(self.storage, self.spec, ref.name, error) from error
        if isinstance(found, CachedObject) and found.explain is None:
            found.explain = partial(_explained, self.storage, self.spec, ref.name)
        return found

    def fetch_ahead(self, wanted: Iterable[tuple[FileRef, Sequence[tuple[int, int]] | None]]) -> None:
        """Fetch what is read next of data files (`Storage.fetch_ahead`). Raises the errors of `opened`."""
        if self._folder is None:
            known = list(wanted)
            _opened = [self.opened(ref) for ref, _ in known]  # and so their errors say why a file is gone
            self.storage.fetch_ahead(known)

    def _schema(self, meta: SegmentMeta) -> pa.Schema:
        return self.spec.segment_schema(meta.tombstone, meta.role == "belief")

    def _open_index(self, meta: SegmentMeta) -> KeyIndex:
        ref: FileRef | None = meta.index
        if ref is not None:
            index = KeyIndex.open(ref, self.opened(ref))
            if index.entries != meta.rows:
                raise corrupt(ref, f"it has {index.entries} entries, the segment has {meta.rows} rows")
            return index
        file = self.open_segment(meta)
        return KeyIndex.build(hash_keys([file.column_array(name) for name in self.spec.key_names]))

    def _once(self, key: tuple[str, str], ref: FileRef | None, make: Callable[[], Found]) -> Found:
        """Return the object that was opened under ``key``, and open it now if it was not.

        ``ref``: the file of which it is a view, if it is one.
        """
        with self._lock:
            opened = self._opened.get(key)
            if opened is None:
                self._sweep()
                opened = self._opened[key] = make()
                while len(self._opened) > MAX_OPEN_FILES:
                    self._opened.popitem(last=False)
            else:
                self._opened.move_to_end(key)
        if ref is not None:
            self.check_length(ref)
        return opened  # type: ignore[return-value]

    def _sweep(self) -> None:
        """Close the files that the newest version has replaced, once for each version, where many files are open."""
        newest = self.log.known
        if self._folder is None or newest is None or newest is self._swept:
            return
        if len(self._opened) > 4 * len(newest.segments) + 16:  # two files a segment, and as many replaced
            self._swept = newest
            self.close_replaced(newest)

    def check_length(self, ref: FileRef) -> None:
        """Raise CorruptError SEGMENT_TRUNCATED if a mapped file no longer has the length that the commit recorded.

        A removed file does no harm: the mapping keeps its bytes.
        """
        if self._folder is None:
            return
        try:
            actual = os.stat(self._folder + ref.name).st_size  # noqa: PTH116 - a third of what a Path costs
        except OSError:
            return
        if actual != ref.bytes:
            check_length(ref, actual)


def _explained(storage: Storage, spec: StoreSpec, name: str, error: NotFoundError) -> NotFoundError:
    """Return the error for a data file that is gone: another one if the newest version does not need the file."""
    if error.code != ErrorCode.FILE_NOT_FOUND or name in file_names(shared_files(storage, spec).log.newest()):
        return error
    return NotFoundError(
        ErrorCode.FILES_REPLACED,
        f"{name} of store {spec.name!r} was replaced by a compaction after this read was planned, and vacuum removed "
        "it; run the read again, which finds the same rows in other files",
    )


_shared: OrderedDict[str, SegmentFiles] = OrderedDict()
_shared_lock = threading.Lock()
MAX_SHARED_STORES = 64


def _after_fork() -> None:
    """Replace the lock in a forked child: a thread that the child does not have may have held it."""
    global _shared_lock
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def shared_files(storage: Storage, spec: StoreSpec) -> SegmentFiles:
    """Return the one SegmentFiles of a store in this process, so that handles and doors share mappings."""
    with _shared_lock:
        files = _shared.get(spec.store_id)
        if files is None or files.storage != storage or files.spec != spec:
            files = _shared[spec.store_id] = SegmentFiles(storage, spec)
            while len(_shared) > MAX_SHARED_STORES:
                _shared.popitem(last=False)
        _shared.move_to_end(spec.store_id)
        return files
