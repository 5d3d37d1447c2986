"""Ctrl-C, which is KeyboardInterrupt for the caller, whichever library was running.

Python raises KeyboardInterrupt in the main thread, at the next step of whatever Python code runs there. Where that code
was called by a library in C, such as DuckDB's scan of one of our tables, the library makes an error of its own of it.
Code of other threads is never interrupted. So there are three ways:

- `stoppable`: the work runs in another thread, and Ctrl-C stops it there.
- `held_back`: Ctrl-C waits for the end of a short piece of work, such as the import of a library.
- `raise_in_callers_of_duckdb`: for a connection that the user has. Ctrl-C is raised once more in his own code.

All leave Ctrl-C to a handler that the program has set itself, where it has one. The handler of PySpark, which each
session of Spark sets, is none of these: it cancels Spark's jobs and raises KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

SECONDS_BETWEEN = 0.05

Answer = TypeVar("Answer")


def stoppable(work: Callable[[], Answer], stop: Callable[[], object]) -> Answer:
    """Run ``work`` in another thread, and return or raise what comes of it.

    At Ctrl-C ``stop`` is called, again and again because it may come too early, until the work ends, and
    KeyboardInterrupt is raised; at a second Ctrl-C it is raised without waiting for the end. Outside of the main
    thread, where no Ctrl-C arrives, ``work`` is called directly.
    """
    if not _comes_here():
        return work()
    found: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            found.put((context.run(work), None))
        except BaseException as error:
            found.put((None, error))

    # A daemon, so that work that does not stop cannot keep the process.
    thread = threading.Thread(target=run, daemon=True)
    with _ctrl_c_counted() as pressed:
        thread.start()
        while True:
            with contextlib.suppress(queue.Empty):
                answer, error = found.get(timeout=SECONDS_BETWEEN)
                break
            if pressed:
                stop()
            if len(pressed) > 1:
                raise KeyboardInterrupt
        thread.join()
    if pressed:
        raise KeyboardInterrupt
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block for a Ctrl-C that comes inside, whatever the block raises."""
    if not _comes_here():
        yield
        return
    with _ctrl_c_counted() as pressed:
        try:
            yield
        except BaseException:
            if pressed:
                raise KeyboardInterrupt from None
            raise
    if pressed:
        raise KeyboardInterrupt


def raise_in_callers_of_duckdb() -> None:
    """From now on, raise KeyboardInterrupt in the user's code also where DuckDB, which he calls himself, calls ours.

    DuckDB ends the query with an error of its own, and the step of the user's code to which it returns raises
    KeyboardInterrupt in its place. A handler of the program and the tracing of a debugger stay as they are.
    """
    global _replaced
    before = signal.getsignal(signal.SIGINT)
    if _comes_here() and callable(before) and before is not _raised_in_caller:
        _replaced = before
        signal.signal(signal.SIGINT, _raised_in_caller)


_replaced: Callable[[int, FrameType | None], object] = signal.default_int_handler
"""The handler in whose place `_raised_in_caller` stands; it raises KeyboardInterrupt."""
_OF_SPARK = "SparkContext._do_init.<locals>.signal_handler"
_LIBRARIES = ("duckdb.", "_duckdb.", "statestore.")


def _raised_in_caller(number: int, frame: FrameType | None) -> None:
    caller = _caller(frame)
    if caller is not None and sys.gettrace() is None:
        _raise_in(caller)
    _replaced(number, frame)


def _caller(frame: FrameType | None) -> FrameType | None:
    """The frame that called the library whose code runs; None where none runs."""
    found = None
    while frame is not None:
        if f"{frame.f_globals.get('__name__', '')}.".startswith(_LIBRARIES):
            found = frame.f_back
        frame = frame.f_back
    return found


def _raise_in(caller: FrameType) -> None:
    """Raise KeyboardInterrupt at the next step of a frame of this thread, also in place of an exception."""

    def at_next_step(frame: FrameType, event: str, argument: object) -> None:
        sys.settrace(None)
        frame.f_trace_opcodes = False
        raise KeyboardInterrupt

    caller.f_trace, caller.f_trace_opcodes = at_next_step, True
    sys.settrace(lambda frame, event, argument: None)  # calls are not traced; a frame is only where tracing is on


def _comes_here() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in this thread: in the main one, unless a handler of the program takes
    it."""
    handler = signal.getsignal(signal.SIGINT)
    raises = handler in (signal.default_int_handler, _raised_in_caller) or _is_of_spark(handler)
    return raises and threading.current_thread() is threading.main_thread()


def _is_of_spark(handler: object) -> bool:
    return getattr(handler, "__qualname__", "") == _OF_SPARK


@contextlib.contextmanager
def _ctrl_c_counted() -> Iterator[list[int]]:
    """Yield a list that grows with each Ctrl-C, which raises nothing meanwhile.

    An exception could come at any step, such as the start of the thread of a statement, which would then run on unseen.
    """
    pressed: list[int] = []

    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
