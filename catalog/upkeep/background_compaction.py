"""Compaction in the background of a writer: a thread that runs the steps that are due, one after the other.

A store has at most one such thread in a process. It lives while steps are due, and a little longer: when no commit came
for a while, it makes the open rows denser than a store under load has them. A handle that closes makes them denser
still, and leaves large merges of ended rows to the next writer. A commit only starts the thread; it waits for it, at
most `SLICE_SECONDS`, where compaction has fallen far behind the commits. Among processes, the holder of a lock on the
store's folder ``segments/`` compacts. The thread also vacuums: after its steps it removes the files that
they replaced and no reader has leased. When it first runs, and then once an hour, it also removes old remains of
writers that died, and trims the log. Removals of thousands of files take seconds, so it pauses between portions of
them, and runs the steps that became due meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial

from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import local_root
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_plan import Mode, Step, is_behind, is_idle_work, next_step
from statestore.catalog.upkeep.log_trimming import pack_limit, trim_log
from statestore.catalog.upkeep.publish_compaction import run_one_step
from statestore.catalog.upkeep.vacuum import KEPT_US, remove_replaced, run_vacuum
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.rocksdb_forks import leave_in_forks

LOGGER = logging.getLogger("statestore")
SLICE_SECONDS = 0.02
IDLE_SECONDS = 2.0
LOOK_SECONDS = 0.1
PAUSE_SECONDS = 0.03
VACUUM_SECONDS = 3_600.0
REMOVAL_PAUSE = 20.0  # between two removals of replaced files, in units of the CPU time that the first one took

_of_store: weakref.WeakKeyDictionary[SegmentFiles, Background] = weakref.WeakKeyDictionary()
_making = threading.Lock()


class Background:
    """The compaction of one store in this process. ``failed`` is the error of the last step in words; None if it
    succeeded. ``report`` is called after each step that was published, or failed.
    """

    def __init__(self, files: SegmentFiles, report: Callable[[], None] = lambda: None) -> None:
        self._files = weakref.ref(files)
        self._report = report
        self.failed: str | None = None
        self._rows = 0  # committed since the open rows were made dense
        self._judged = 0  # of these, when it was last asked whether a pause is worth while
        self._newest: LogState | None = None  # after the last step
        self._next_vacuum = self._next_removal = 0.0  # by the monotonic clock
        self._has_replaced = False  # steps were run since replaced files were last removed
        self._packed = 0  # version before which log entries were packed, or could not be
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._news = threading.Event()  # a commit was made, or the thread has to end
        self._stepped = threading.Event()
        self._finishing = 0  # handles that are being closed: no waiting for further commits
        self._giving_up = False
        self._due = False  # a commit made a step due
        leave_in_forks(self._reset)  # the thread does not exist in a forked child

    def committed(self, log_state: LogState, rows: int | None = None) -> None:
        """Take note of a commit, or of several with ``rows``: start the thread if a step is due, and wait a little if
        compaction is far behind."""
        self._rows += log_state.versions.rows_at(log_state.version) if rows is None else rows
        if next_step(log_state, compaction_rules.DEFAULT, "due") is None:
            if self._thread is not None:
                self._news.set()  # not a pause
            elif self._rows >= self._judged + compaction_rules.DEFAULT.small_idle // 4:
                self._start_if_worth(log_state)
            return
        self._due = True
        self._start(log_state)
        if is_behind(log_state, compaction_rules.DEFAULT):
            self._stepped.clear()
            self._stepped.wait(SLICE_SECONDS)

    def _start_if_worth(self, log_state: LogState) -> None:
        self._judged = self._rows
        if is_idle_work(log_state, compaction_rules.DEFAULT, self._rows):
            self._start(log_state)

    def finish(self, log_state: LogState | None = None) -> None:
        """Wait until the open rows are dense and no small step is due; called when a writer closes its handle.

        Large merges of ended rows are left to the next writer, and one that is under way is given up. Where other
        handles go on committing, wait only for the work that the versions up to ``log_state`` made.
        """
        through = None if log_state is None else log_state.version
        with self._lock:  # a thread that ends has either seen this, or is not there any more
            self._finishing += 1
            thread = self._thread
        try:
            if thread is None and log_state is not None and self._rows and self._is_closing_work(log_state):
                self._start(log_state)
                thread = self._thread
            if thread is None:
                return
            self._news.set()
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                if through is not None and self._is_done(through):
                    return
        finally:
            with self._lock:
                self._finishing -= 1

    @property
    def _stopping(self) -> bool:
        return self._finishing > 0

    def _is_closing_work(self, log_state: LogState) -> bool:
        """Return whether a step is due when a writer closes its handle.

        In an object store the open rows are made dense less often, because all of them would be sent.
        """
        files = self._files()
        if files is None or files.is_local:
            return next_step(log_state, compaction_rules.DEFAULT, "closing") is not None
        return is_idle_work(log_state, compaction_rules.DEFAULT, self._rows)

    def _is_done(self, through: int) -> bool:
        """Return whether others committed after version ``through``, and no step is due for what was there then."""
        newest = self._newest
        if newest is None or all(meta.min_added <= through for meta in newest.segments if meta.role == "delta"):
            return False
        return next_step(newest, compaction_rules.DEFAULT, "due", through) is None

    def stop(self) -> None:
        """End the thread; a step that is under way is given up."""
        self._giving_up = True
        self.finish()

    def _start(self, log_state: LogState) -> None:
        if sys.is_finalizing():  # a handle that is closed so late would wait for ever for a thread that cannot start
            return
        with self._lock:
            self._news.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, args=(self._files(), log_state), name="statestore-compaction", daemon=True
                )
                self._thread.start()

    def _run(self, files: SegmentFiles, log_state: LogState) -> None:
        try:
            while True:
                self._due = False
                self._news.clear()
                log_state = self._steps(files, log_state, "due")
                self._vacuum(files, log_state)
                self._pack(files, log_state)
                if self._is_interrupted():
                    continue
                log_state = load_log_state(files.storage, base=log_state)
                stopping = self._stopping
                mode: Mode = "closing" if stopping and files.is_local else "idle"
                if mode == "closing" or is_idle_work(log_state, compaction_rules.DEFAULT, self._rows):
                    log_state = self._steps(files, log_state, mode)
                    self._rows = self._judged = 0
                self._vacuum(files, log_state, at_once=True)
                with self._lock:
                    if stopping or not (self._news.is_set() or self._stopping):
                        self._thread = None
                        return
        except Exception as error:
            if "after interpreter shutdown" in str(error):  # no more threads for requests: the step is given up
                return
            self.failed = f"{type(error).__name__}: {error}"
            LOGGER.warning(
                "store %r: all commits are there; the compaction after version %d failed: %s",
                files.spec.name,
                log_state.version,
                self.failed,
            )
            self._report()
            with self._lock:
                self._thread = None

    def _is_interrupted(self) -> bool:
        """Wait until no commit has come for a while; return whether one came that made a step due."""
        while not self._stopping and not self._due:
            if not self._news.wait(IDLE_SECONDS):
                return False
            if not self._stopping:
                self._news.clear()
        due, self._due = self._due, False
        return due

    def _steps(self, files: SegmentFiles, log_state: LogState, mode: Mode) -> LogState:
        """Run the steps of a mode.

        Those of mode "idle" end when a commit comes, those of mode "due" when a writer closes its handle. Those of mode
        "closing" end after so many that the commits of others cannot keep them going.
        """
        most = 8 + len(log_state.segments)
        while not self._giving_up and not (mode == "due" and self._stopping and files.is_local):
            before = log_state.version
            with compaction_lock(files) as is_ours:
                if not is_ours:
                    return log_state
                stop = partial(self._is_given_up, files.is_local and mode != "closing")
                log_state = run_one_step(files, log_state, compaction_rules.DEFAULT, mode, stop=stop)
            self._newest = log_state
            self._has_replaced |= log_state.version != before
            self._stepped.set()
            self.failed = None
            self._report()
            if log_state.version == before or (mode == "idle" and self._news.is_set() and not self._stopping):
                return log_state
            most -= 1
            if mode == "closing" and not most:
                return log_state
        return log_state

    def _vacuum(self, files: SegmentFiles, log_state: LogState, at_once: bool = False) -> None:
        """Remove what the last steps replaced, not too often under load, and once an hour everything else."""
        if self._giving_up:
            return
        now, cpu = time.monotonic(), time.thread_time()
        pause = partial(self._pause, files, log_state)
        if now >= self._next_vacuum:
            self._next_vacuum = now + VACUUM_SECONDS
            self._packed = pack_limit(log_state)
            self._has_replaced = False
            run_vacuum(files, log_state, None, dry_run=False, pause=pause)
        elif self._has_replaced and (at_once or self._stopping or now >= self._next_removal):
            self._has_replaced = False
            remove_replaced(files, log_state, pause)
        else:
            return
        self._next_removal = time.monotonic() + REMOVAL_PAUSE * (time.thread_time() - cpu)

    def _pack(self, files: SegmentFiles, log_state: LogState) -> None:
        """Trim the log as soon as a run of entries can be packed: in an hour, small commits make tens of thousands."""
        if pack_limit(log_state) > self._packed:
            self._packed = pack_limit(log_state)
            pause = partial(self._pause, files, log_state)
            trim_log(files, log_state, time.time_ns() // 1000 - KEPT_US, dry_run=False, pause=pause)

    def _pause(self, files: SegmentFiles, log_state: LogState) -> None:
        """Let commits go on, and run the steps that they make due: a thread that never waits takes the interpreter at
        each of their system calls, and where no step is run for seconds, commits have to wait for compaction.
        """
        if self._stopping:
            return
        if self._due:
            self._due = False
            self._steps(files, self._newest or log_state, "due")
        time.sleep(PAUSE_SECONDS)

    def _is_given_up(self, is_left: bool, step: Step) -> bool:
        """Return whether a step is given up: its process ends, or it is a large merge that ``is_left`` when a writer
        closes its handle."""
        if self._giving_up or not (is_left and self._stopping):
            return self._giving_up
        return step.rows > compaction_rules.DEFAULT.closing_rows and not step.has_open_rows


def background_of(files: SegmentFiles) -> Background:
    """Return the background compaction of a store in this process."""
    with _making:
        found = _of_store.get(files)
        if found is None:
            found = _of_store[files] = Background(files)
        return found


def _after_fork() -> None:
    """Replace the lock, which a thread that the child does not have may have held."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """Let the steps that are under way end before the interpreter does."""
    for background in list(_of_store.values()):
        background.stop()


@contextlib.contextmanager
def compaction_lock(files: SegmentFiles) -> Iterator[bool]:
    """Hold the lock of compactions of a local store if it is free, and yield whether it was.

    Object stores have no locks.
    """
    root = local_root(files.storage)
    if root is None:
        yield True
        return
    path = root / "segments"
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # no segment, nothing to compact
        yield True
        return
    except OSError as error:
        raise storage_error(error, "lock the compaction of", path) from error
    try:
        yield _is_locked(folder)
    finally:
        os.close(folder)


def _is_locked(folder: int) -> bool:
    """Return whether the lock was free and is held now, or the file system has no locks."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
