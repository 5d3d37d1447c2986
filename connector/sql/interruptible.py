"""A statement that Ctrl-C stops. DuckDB notices Ctrl-C in no thread, so the main thread has another one interrupted."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa

from statestore.catalog.warehouse import Warehouse
from statestore.connector.sql.first_rows import FirstRows
from statestore.connector.sql.query import answer

SECONDS_BETWEEN = 0.05


def answer_or_stop(
    opened: Callable[[], Warehouse],
    text: str,
    allow_external_access: bool = False,
    first: FirstRows | None = None,
) -> pa.Table:
    """Run a statement as `answer` does, in another thread. At Ctrl-C it is stopped, and KeyboardInterrupt is raised;
    at a second one without waiting for its end."""
    running: list[duckdb.DuckDBPyConnection] = []
    return _in_thread(lambda: answer(opened, text, allow_external_access, running.append, first), running)


def _in_thread(work: Callable[[], pa.Table], running: list[duckdb.DuckDBPyConnection]) -> pa.Table:
    found: queue.SimpleQueue[tuple[pa.Table | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            found.put((work(), None))
        except BaseException as error:
            found.put((None, error))

    # A daemon, so that a statement that does not stop cannot keep the process.
    thread = threading.Thread(target=run, daemon=True)
    with _ctrl_c_counted() as pressed:
        thread.start()
        while True:
            with contextlib.suppress(queue.Empty):
                table, error = found.get(timeout=SECONDS_BETWEEN)
                break
            for connection in running if pressed else ():  # again: what is interrupted before it runs goes on
                with contextlib.suppress(duckdb.Error):  # closed meanwhile
                    connection.interrupt()
            if len(pressed) > 1:
                raise KeyboardInterrupt
        thread.join()
    if pressed:
        raise KeyboardInterrupt
    if error is not None:
        raise error
    return table


@contextlib.contextmanager
def _ctrl_c_counted() -> Iterator[list[int]]:
    """Yield a list that grows with each Ctrl-C, which raises nothing meanwhile.

    An exception could come at any step, such as the start of the thread of a statement, which would then run on unseen.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()  # which alone may set handlers, and is sent Ctrl-C
    if before == signal.SIG_IGN or not is_main:
        yield pressed
        return
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
