"""The common part of all open stores: table reads, upkeep, versions, closing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import pyarrow as pa

from statestore.catalog.commits.store_owners import APPLICATION as OWNERS
from statestore.catalog.log.entries import was_committed
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.log.version_chunks import NO_TIME
from statestore.catalog.reads.segment_files import SegmentFiles, shared_files
from statestore.catalog.reads.shown import Facts, columns_of, contents_of, store_title
from statestore.catalog.reads.table import Reads
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.background_compaction import Background, background_of, compaction_lock
from statestore.catalog.upkeep.compaction_process import CompactionProcess, compaction_process_of
from statestore.catalog.upkeep.expiry import check_horizon, run_expiry
from statestore.catalog.upkeep.publish_compaction import run_compaction
from statestore.catalog.upkeep.ranges.compact_ranges import (
    Choice,
    compact_ranges,
    due,
    everything,
    expired,
    waiting_for_turn,
)
from statestore.catalog.upkeep.ranges.task_runs import runs_of
from statestore.catalog.upkeep.vacuum import Unneeded, remove_replaced, run_vacuum
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, ReadOnlyError, StateStoreError, shown
from statestore.formats.state_table import StateTable
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.times import Time, duration_ms, from_us, to_us

Answer = TypeVar("Answer")

AutoCompact = bool | Literal["process"]


class PutAllResult(NamedTuple):
    """Rows accepted, and rows refused because they were older than the retention."""

    accepted: int
    refused: int


class StoreHandle(Reads):
    """A handle on a store of any kind, with the reads of its table. Times are epoch milliseconds, aware
    datetimes or texts like 2024-05-01T09:30Z.

    The handle is a context manager: leaving it closes the handle. Puts that were not committed stay acknowledged in the
    changelog and belong to the next handle that opens the store.
    """

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        self.spec = spec
        self.table = VersionedTable(storage, spec)
        self.auto_compact = auto_compact
        self.read_only = read_only
        self._storage = storage
        self._files = shared_files(storage, spec)
        _compaction_of(self._files, auto_compact)  # refuses what is no choice
        self._log_state = self._files.log.newest()
        self._dropped = 0  # refused since the last commit
        self._stream_time = NO_TIME  # of this handle's own writes
        self._wrote = False
        self._closed = False

    def was_committed(self, commit: str) -> bool:
        """Return whether the commit with this id took place; the id is the ``commit`` attribute of a
        `CommitUnknownError`.

        A True is durable. Any handle on the store can be asked, in any process. Raises InvalidInputError INVALID_COMMIT
        for a value that is not such an id, StorageError while the disk still fails.
        """
        self._check_open()
        self._files.log.check_identity()
        return was_committed(self._storage, commit)

    # Upkeep

    def compact(self, full: bool = False, *, spark: Any = None) -> int:
        """Run the compaction that is due (``full``: fold everything that can be folded); return the newest version.

        Compaction changes no answer at any kept version and time. Files that it replaced are removed as soon as no read
        under way needs them, by this call or a later one (with ``auto_compact=False``: by `vacuum`).

        With ``spark``, a SparkSession, its tasks compact ranges of keys, and the result is one commit. Other writers go
        on meanwhile. Raises ConflictError COMPACTION_OVERTAKEN if other compactions or expiries keep removing the same
        segments.
        """
        self._check_writable()
        self._files.log.check_identity()
        if spark is not None:
            return self._compact_ranges(spark, everything if full else due)
        with compaction_lock(self._files):  # held or not: a thread or process that compacts too can only be overtaken
            version = self._advance(run_compaction(self._files, self._log_state, full))
        if self.auto_compact:
            remove_replaced(self._files, self._log_state)
        return version

    def expire(self, before: Time | None = None, *, spark: Any = None) -> int:
        """Expire history older than the retention (or ``before``): refuse these moments and drop files that hold only
        them.

        Returns the newest version. With ``spark``, a SparkSession, its tasks then write the files anew that hold such
        rows beside others, by ranges of keys, as `compact` does. What is valid at ``before`` stays.

        Raises InvalidInputError NO_RETENTION, or INVALID_OPTION for a moment in the future.
        """
        self._check_writable()
        if spark is not None:
            runs_of(spark)  # refuses what is no session before anything expires
        if before is not None:
            horizon = to_us(before, "before")
            check_horizon(self._log_state, self.spec.name, horizon)
        elif self.spec.history_retention is None:
            raise InvalidInputError(
                ErrorCode.NO_RETENTION,
                f"store {self.spec.name!r} keeps history for ever (history_retention=None); use "
                "expire(before=…) to drop older history",
            )
        else:
            horizon = self._observed_us - self.spec.history_retention * 1000
        self._files.log.check_identity()
        version = self._advance(run_expiry(self._files, self._log_state, horizon))
        return version if spark is None else self._compact_ranges(spark, expired)

    def vacuum(self, older_than: int | timedelta | str | None = None, dry_run: bool = False) -> list[Unneeded]:
        """Remove files that are no longer needed and return them; ``dry_run`` only lists them.

        Data files go as soon as neither the newest version nor a read that is under way needs them, in any process.
        What else writers left behind goes when it is seven days old. With ``older_than``, all files that a version of
        that time needs stay, and all that are younger. In an object store, what rebuilds left goes when it
        is as old, too, by its name below the store's.
        """
        self._check_writable()
        milliseconds = None if older_than is None else duration_ms(older_than, "older_than") or 0
        return run_vacuum(self._files, self._log_state, None if milliseconds is None else milliseconds * 1000, dry_run)

    @contextlib.contextmanager
    def hold(self) -> Iterator[int]:
        """Keep vacuum from removing any file of the newest version and later ones in the block; yield that version.

        A folder that is copied meanwhile, ``log/`` first, is a whole store. Another process may write, compact and
        vacuum.
        """
        self._check_open()
        log_state, _hold = self._files.log.hold()
        yield log_state.version

    def refresh(self) -> int:
        """Look for commits of other writers; return the newest version."""
        self._check_open()
        return self._advance(self._files.log.newest())

    def close(self) -> None:
        """Close the handle; safe to call twice.

        A handle that committed makes the newest rows dense, at about half a second for a million of them, if one in a
        hundred has ended. It leaves large merges of older rows to the next writer, or to `compact`.
        """
        if not self._closed:
            self._closed = True
            compaction = _compaction_of(self._files, self.auto_compact) if self._wrote else None
            if compaction is not None:
                compaction.finish(self._log_state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The newest version that this handle has seen."""
        return self._log_state.version

    @property
    def dropped_records(self) -> int:
        """The number of puts refused because they were older than the retention, over the life of the store."""
        return self._log_state.versions.dropped_total + self._dropped

    @property
    def observed_stream_time(self) -> int:
        """The greatest timestamp put so far, epoch milliseconds; -1 before the first."""
        return from_us(self._observed_us)

    # Internals

    def _table_metrics(self) -> dict[str, Any]:
        """Counts of the newest version this handle has seen."""
        segments = self._log_state.segments
        compaction = _compaction_of(self._files, self.auto_compact)
        return {
            "version": self._log_state.version,
            "segments": len(segments),
            "rows": sum(m.rows for m in segments if not m.tombstone and m.role != "belief"),
            "bytes": sum(m.file.bytes + (m.index.bytes if m.index else 0) for m in segments),
            "dropped_records": self.dropped_records,
            "observed_stream_time": self.observed_stream_time,
            "failed_compaction": None if compaction is None else compaction.failed,
        }

    def _compact_ranges(self, spark: Any, choose: Choice) -> int:
        runs, rules = runs_of(spark), compaction_rules.DEFAULT
        with waiting_for_turn(self._files):
            version = self._advance(compact_ranges(self._files, self._log_state, runs, choose, rules))
        if self.auto_compact:
            remove_replaced(self._files, self._log_state)
        return version

    @property
    def _observed_us(self) -> int:
        return max(self._stream_time, self._log_state.stream_time_us)

    def _stream_time_of(self) -> int | None:
        return None if self._stream_time == NO_TIME else self._stream_time

    def _advance(self, log_state: LogState) -> int:
        """Continue from another log state; return its version."""
        self._log_state = log_state
        return log_state.version

    def _committed(self, log_state: LogState) -> int:
        """Continue from a commit, and start the compaction that is due; return the version.

        The commit exists. Therefore a failing compaction raises nothing here, is reported (`metrics`, and the log), and
        is due again after the next commit.
        """
        version = self._advance(log_state)
        self._wrote = True
        compaction = _compaction_of(self._files, self.auto_compact)
        if compaction is not None:
            compaction.committed(log_state)
        return version

    def _repeated(self, read: Callable[[], Answer]) -> Answer:
        """Return what a read of keys returns. It is repeated if files were replaced which it had not opened yet."""
        while True:
            try:
                return read()
            except NotFoundError as error:
                if error.code != ErrorCode.FILES_REPLACED:
                    raise
                known = self._log_state.version
                if self.refresh() == known:
                    raise

    def _about(self) -> tuple[str, Facts]:
        """Return the facts of the newest version: one look at the log, and in an object store only whether it is
        there."""
        title = store_title(self.spec, self._storage)
        if self._closed:
            return title, [("closed", "open it again with open_store")]
        facts = columns_of(self.spec)
        try:
            if self._files.is_local:
                facts = [*facts, *contents_of(self._files.log.newest())]
            else:
                self._files.log.check_identity()
                facts = [*facts, *contents_of(self._log_state)]
        except StateStoreError as error:
            facts = [*facts, ("cannot be read", str(error))]
        return title, [*facts, ("read only", "yes")] if self.read_only else facts

    def _asked(self) -> StateTable:
        self._check_open()
        return self.table

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"store {self.spec.name!r} was opened with read_only=True; to write, open it without read_only",
            )

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError(
                ErrorCode.STORE_CLOSED,
                f"this handle on store {self.spec.name!r} was closed; open it again with open_store",
            )


def check_transaction(transaction: Any) -> tuple[str, int] | None:
    """Return (application, batch) as given. Raises InvalidInputError INVALID_TRANSACTION for other values."""
    if transaction is None:
        return None
    if (
        isinstance(transaction, tuple | list)
        and len(transaction) == 2
        and isinstance(transaction[0], str)
        and isinstance(transaction[1], int)
        and not isinstance(transaction[1], bool)
        and transaction[0] != OWNERS  # the log's own, by which an owner knows that it was overtaken
    ):
        return (transaction[0], transaction[1])
    raise InvalidInputError(
        ErrorCode.INVALID_TRANSACTION,
        f"transaction is {shown(transaction)}; expected (application: str, batch: int), the former not {OWNERS!r}",
    )


def many_keys(keys: Any) -> Iterable[Any]:
    """Return the keys of `get_many`, one by one; of a frame each row is a key, by the names of its columns.

    Raises InvalidInputError WRONG_KEY for what is not several keys.
    """
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()  # type: ignore[no-any-return]
    if type(keys).__module__.partition(".")[0] == "pandas" and hasattr(keys, "columns"):
        return pa.Table.from_pandas(keys, preserve_index=False).to_pylist()  # type: ignore[no-any-return]
    if hasattr(keys, "__arrow_c_stream__"):
        return pa.chunked_array(keys).to_pylist()  # type: ignore[no-any-return]
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidInputError(
            ErrorCode.WRONG_KEY,
            f"keys is {shown(keys)} ({type(keys).__name__}); expected a list or another iterable of keys, or an Arrow "
            "array; for one key call get",
        )
    return keys


def key_columns(keys: Sequence[Any], codec: KeyCodec) -> list[pa.Array]:
    """Return keys as users give them as Arrow columns. Raises InvalidInputError as `KeyCodec.normalize` does."""
    if len(codec.schema) == 1 and codec.schema.field(0).type == pa.string() and set(map(type, keys)) == {str}:
        try:
            return [pa.array(keys, pa.string())]
        except UnicodeEncodeError:  # a lone surrogate, which is refused with its name below
            pass
    return codec.to_columns(list(map(codec.normalize, keys)))


def _compaction_of(files: SegmentFiles, chosen: Any) -> Background | CompactionProcess | None:
    """Return what compacts a store for the writers of this process; None if nothing does.

    Raises InvalidInputError INVALID_OPTION for another choice, or for a process and a store that is not local.
    """
    if chosen is True:
        return background_of(files)
    if chosen is False:
        return None
    if chosen != "process":
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'auto_compact={shown(chosen)}: expected True (a thread), "process" or False',
        )
    if local_root(files.storage) is None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'store {files.spec.name!r}: auto_compact="process" needs a store in a local directory; use True',
        )
    return compaction_process_of(files)
