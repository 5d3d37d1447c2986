"""Storages of other libraries: pyarrow's and fsspec's file systems, whose failures and silences become errors here.

A library may raise any exception, and may wait for ever: for a server that never answers, or for credentials that
nobody gives. So a storage is opened, and asked for one folder, in a thread that is given up after `CONTACT_SECONDS`.
Later requests fail with one of `STORAGE_ERRORS`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

CONTACT_SECONDS = 15.0
"""Time for the first answer of a storage, the search for credentials included."""

STORAGE_ERRORS = (OSError, pa.ArrowException)
"""The exceptions with which a storage fails. pyarrow raises a bare ArrowException for what Azure's client reports."""

Answer = TypeVar("Answer")


def within_contact_time(work: Callable[[], Answer]) -> Answer:
    """Return the answer of ``work``, which contacts a storage. Raises its errors, and TimeoutError where it takes
    longer than `CONTACT_SECONDS`. Ctrl-C ends the wait at once."""
    found: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            found.put((work(), None))
        except BaseException as error:
            found.put((None, error))

    # A daemon, so that a storage that never answers cannot keep the process.
    threading.Thread(target=run, daemon=True, name="statestore contact").start()
    try:
        answer, error = found.get(timeout=CONTACT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer in {CONTACT_SECONDS:.0f} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]
