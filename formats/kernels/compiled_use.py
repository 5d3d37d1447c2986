"""Decision whether compiled loops pay: loading them takes a third of a second, and the first compilation several.

Reads of one process are added up. A worker of Spark reads many small partitions, one task after another, and together
they are as large as one that would load the loops at once.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator

COMPILED = "statestore.formats.kernels.compiled"
# Loops of smaller reads would take as long as the plain way, and in an installation that has not compiled them yet
# seconds: 12 s for the scan of a table file of 57 rows, which takes 16 ms either way later.
_COLD_BYTES, _WARM_BYTES = 8 << 20, 1 << 20
# Rows that Arrow copies before loops do. They take that much longer in Arrow as the loops take to load, those alone if
# numba is loaded: 25 ms, and 2.3 s where they have to be compiled, for a scan of 400,000 rows that takes 2 or 3 ms.
_COPIED_ROWS, _COPIED_ROWS_WARM = 10_000_000, 1_000_000
_REWRITTEN_ROWS = 4_000_000  # rows that compactions copy before loops do, which take a third of the time
_copied_before = 0
_rewritten_before = 0
_read_before = 0  # compressed bytes that were read without the loops; threads may lose a few, which only delays loading
_loader: threading.Thread | None = None  # which loads the loops now
_choosing_loader = threading.Lock()


def is_loaded() -> bool:
    """Return whether this process has loaded compiled loops. While it loads them, only the thread that does has them:
    another one would wait for it.
    """
    return COMPILED in sys.modules and (_loader is None or _loader is threading.current_thread())


def pays(stored_bytes: int) -> bool:
    """Return whether compiled loops speed up a read of so many compressed bytes, which begins now; false without
    numba."""
    global _read_before
    if is_loaded():
        return stored_bytes >= _WARM_BYTES
    _read_before += stored_bytes
    return _read_before >= _COLD_BYTES and importlib.util.find_spec("numba") is not None


def load_if_it_pays(stored_bytes: int) -> None:
    """Load compiled loops if `pays` says so and numba works here; `is_loaded` then returns true."""
    if pays(stored_bytes):
        _load()


def load_beside(stored_bytes: int, first_use: Callable[[], Iterator[None]]) -> None:
    """Load compiled loops in a thread if `pays` says so; the caller goes on without them until they are there.

    ``first_use`` calls those that the caller will need, because the first call of each loads it, too, or compiles it.
    It yields between them: the thread gives up there when the process ends, which waits for it.
    """
    global _read_before
    if is_loaded() or _loader is not None or not pays(stored_bytes):
        return
    _read_before = 0  # numba may not work here, and is then tried seldom
    # Not a daemon: these are stopped at any point, and numba's memory is released by then.
    threading.Thread(target=_load, args=(first_use,), name="statestore-loops").start()


def _load(first_use: Callable[[], Iterator[None]] | None = None) -> None:
    """Load the loops, unless another thread does: whoever cannot wait has a way without them.

    A forked child of a process that was loading them never does; locks of its imports may be held for ever.
    """
    global _loader
    with _choosing_loader:
        if _loader is not None:
            return
        _loader = threading.current_thread()
    try:
        with contextlib.suppress(Exception):  # numba refuses versions of Python and numpy with errors of many kinds
            importlib.import_module(COMPILED)
            for _ in first_use() if first_use is not None else ():
                if not threading.main_thread().is_alive():
                    return
    finally:
        _loader = None


def copies_pay(rows: int) -> bool:
    """Return whether compiled loops copy so many rows of a scan, which begins now; they are loaded if that pays."""
    global _copied_before
    _copied_before += rows
    if is_loaded():
        return _copied_before >= _COPIED_ROWS_WARM
    if _copied_before >= _COPIED_ROWS and importlib.util.find_spec("numba") is not None:
        _copied_before = 0  # numba may not work here, and is then tried seldom
        _load()
        if is_loaded():
            _copied_before = _COPIED_ROWS
    return is_loaded()


def rewrites_pay(rows: int) -> bool:
    """Return whether compiled loops copy so many rows of a compaction; they are loaded if that pays."""
    global _rewritten_before
    _rewritten_before += rows
    if not is_loaded() and _rewritten_before >= _REWRITTEN_ROWS and importlib.util.find_spec("numba") is not None:
        _rewritten_before = 0  # numba may not work here, and is then tried seldom
        _load()
    return is_loaded()
