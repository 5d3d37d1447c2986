"""Decision whether compiled loops pay: loading them takes a third of a second, and the first compilation several.

Reads of one process are added up. A worker of Spark reads many small partitions, one task after another, and together
they are as large as one that would load the loops at once.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys

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


def is_loaded() -> bool:
    """Return whether this process has loaded compiled loops."""
    return COMPILED in sys.modules


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
        with contextlib.suppress(Exception):  # numba refuses versions of Python and numpy with errors of many kinds
            importlib.import_module(COMPILED)


def copies_pay(rows: int) -> bool:
    """Return whether compiled loops copy so many rows of a scan, which begins now; they are loaded if that pays."""
    global _copied_before
    _copied_before += rows
    if is_loaded():
        return _copied_before >= _COPIED_ROWS_WARM
    if _copied_before >= _COPIED_ROWS and importlib.util.find_spec("numba") is not None:
        _copied_before = 0  # numba may not work here, and is then tried seldom
        with contextlib.suppress(Exception):
            importlib.import_module(COMPILED)
            _copied_before = _COPIED_ROWS
    return is_loaded()


def rewrites_pay(rows: int) -> bool:
    """Return whether compiled loops copy so many rows of a compaction; they are loaded if that pays."""
    global _rewritten_before
    _rewritten_before += rows
    if not is_loaded() and _rewritten_before >= _REWRITTEN_ROWS and importlib.util.find_spec("numba") is not None:
        _rewritten_before = 0  # numba may not work here, and is then tried seldom
        with contextlib.suppress(Exception):
            importlib.import_module(COMPILED)
    return is_loaded()
