"""Compaction in a process of its own, so that it shares no interpreter with the commits.

The process (``python -m statestore.catalog.upkeep.compaction_process FOLDER``) opens the store by itself, compacts it
as a writer's own thread does (`Background`), and is bound by the rules of all compactions: the lock on the store's
folder, and publication as versions. It is started when a step is first due, ends when the handle is closed or the
writer's process ends, and is started again at the next commit with due work if it died. It is a new program and no
fork: a fork of a process with threads may find their locks held for ever.

Lines that the process reads: ``commit ROWS`` after a commit of so many rows, and ``finish`` when the writer closes its
handle. Lines that it writes are JSON: ``{"failed": …}`` after each step, null if it succeeded, and ``{"finished":
true}``. It ends when its input does: after the step that is under way, which is given up.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage, local_root
from statestore.catalog.log.store_spec import decode_spec
from statestore.catalog.reads.segment_files import SegmentFiles, shared_files
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.background_compaction import SLICE_SECONDS, Background
from statestore.catalog.upkeep.compaction_plan import is_behind, is_idle_work, next_step
from statestore.formats.errors import StateStoreError
from statestore.formats.places.rocksdb_forks import leave_in_forks

LOGGER = logging.getLogger("statestore")
PROGRAM = "statestore.catalog.upkeep.compaction_process"
END_SECONDS = 5.0  # for the step that is under way; the process is killed then, which harms nothing

_of_store: weakref.WeakKeyDictionary[SegmentFiles, CompactionProcess] = weakref.WeakKeyDictionary()
_making = threading.Lock()
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class _Worker:
    """A process that was started. ``finished``: it said that nothing is due, or its output has ended."""

    process: subprocess.Popen[bytes]
    finished: threading.Event = field(default_factory=threading.Event)


class CompactionProcess:
    """The process that compacts one store for the writers of this one. ``failed`` is that of `Background`, or says that
    the process ended before it was told to.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = weakref.ref(files)
        self.failed: str | None = None
        self._rows = 0  # committed since the process was last told
        self._judged = 0  # of these, when it was last asked whether a pause is worth while
        self._worker: _Worker | None = None
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._stepped = threading.Event()
        leave_in_forks(self._in_fork)

    def _in_fork(self) -> None:
        """Leave the process to the parent: it has to notice when the parent ends."""
        worker, self._worker = self._worker, None
        if worker is not None:
            nothing = os.open(os.devnull, os.O_RDWR)
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    os.dup2(nothing, pipe.fileno())
            os.close(nothing)
        self._reset()

    def committed(self, log_state: LogState) -> None:
        """Take note of a commit: start the process if a step is due, and wait a little if it is far behind."""
        self._rows += log_state.versions.rows_at(log_state.version)
        if self._worker is None and not self._is_due(log_state):
            return
        self._tell()
        if is_behind(log_state, compaction_rules.DEFAULT):
            self._stepped.clear()
            self._stepped.wait(SLICE_SECONDS)

    def finish(self, log_state: LogState | None = None) -> None:
        """Wait until no step is due for the versions up to ``log_state``, and end the process; called when a writer
        closes its handle.
        """
        if self._worker is None and (log_state is None or not self._is_due(log_state, at_end=True)):
            return
        worker = self._tell(b"finish\n")
        if worker is not None:
            worker.finished.wait()
            self.stop()

    def stop(self) -> None:
        """End the process; a step that is under way is given up."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is None:
            return
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        try:
            worker.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()

    def _is_due(self, log_state: LogState, at_end: bool = False) -> bool:
        rules = compaction_rules.DEFAULT
        if next_step(log_state, rules, "due") is not None:
            return True
        if self._rows < self._judged + (1 if at_end else rules.small_idle // 4):
            return False
        self._judged = self._rows
        if at_end:
            return next_step(log_state, rules, "closing") is not None
        return is_idle_work(log_state, rules, self._rows)

    def _tell(self, more: bytes = b"") -> _Worker | None:
        """Tell the process how many rows were committed, and start it if there is none; return it."""
        with self._lock:
            worker = self._worker = self._worker or self._started()
            if worker is not None:
                assert worker.process.stdin is not None
                with contextlib.suppress(OSError):  # it has died, which the thread that listens reports
                    worker.process.stdin.write(b"commit %d\n" % self._rows + more)
                self._rows = self._judged = 0
            return worker

    def _started(self) -> _Worker | None:
        files = self._files()
        root = None if files is None else local_root(files.storage)
        if files is None or root is None:
            return None
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109 - where this one imports from
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # the keyboard interrupts the writer alone
            )
        except OSError as error:
            self._report(files.spec.name, f"the process that compacts cannot be started: {error}")
            return None
        worker = _Worker(process)
        arguments = worker, files.spec.name
        threading.Thread(target=self._listen, args=arguments, name="statestore-compaction", daemon=True).start()
        return worker

    def _listen(self, worker: _Worker, name: str) -> None:
        """Take note of what a process says until its output ends."""
        assert worker.process.stdout is not None
        failed: str | None = None
        with worker.process.stdout as output:
            for line in output:
                message = json.loads(line) if line.startswith(b"{") else {}
                if "failed" in message:
                    failed = message["failed"]
                    self._report(name, failed)
                    self._stepped.set()
                if "finished" in message:
                    worker.finished.set()
        status = worker.process.wait()
        with self._lock:
            was_told = self._worker is not worker
            if not was_told:
                self._worker = None
            assert worker.process.stdin is not None
            worker.process.stdin.close()
        if not was_told and (failed is None or status < 0):
            self._report(name, f"the process that compacts ended with status {status}")
        self._stepped.set()
        worker.finished.set()

    def _report(self, name: str, failed: str | None) -> None:
        self.failed = failed
        if failed is not None:
            LOGGER.warning("store %r: all commits are there; the compaction failed: %s", name, failed)


def compaction_process_of(files: SegmentFiles) -> CompactionProcess:
    """Return the process that compacts a store for this one; it runs while there is work."""
    with _making:
        found = _of_store.get(files)
        if found is None:
            found = _of_store[files] = CompactionProcess(files)
        return found


def _after_fork() -> None:
    """Replace the lock, which a thread that the child does not have may have held."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """End the processes with this one."""
    for process in list(_of_store.values()):
        process.stop()


def _compact(folder: Path) -> None:
    """Compact the store of a folder until the input ends."""
    logging.getLogger("statestore").addHandler(logging.NullHandler())  # the writer logs what fails
    storage = LocalStorage(folder)
    files = shared_files(storage, decode_spec(storage.read(STORE_FILE), str(folder / STORE_FILE)))
    background = Background(files, report=lambda: _say(failed=background.failed))
    log_state = files.log.newest()
    for rows, finishes in _messages():
        try:
            log_state = load_log_state(storage, base=log_state)
            if rows:
                background.committed(log_state, rows)
            if finishes:
                background.finish(log_state)
        except StateStoreError as error:
            _say(failed=f"{type(error).__name__}: {error}")
        if finishes:
            _say(finished=True)
    background.stop()


def _messages() -> Iterator[tuple[int, bool]]:
    """Yield (rows committed, whether to finish) of all lines that have come since the last look."""
    rest = b""
    while data := os.read(sys.stdin.fileno(), READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        words = [line.split() for line in lines]
        yield sum(int(word[1]) for word in words if word[0] == b"commit"), [b"finish"] in words


def _say(**message: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    try:
        _compact(Path(sys.argv[1]))
    except StateStoreError as error:
        _say(failed=f"{type(error).__name__}: {error}")
        sys.exit(1)
