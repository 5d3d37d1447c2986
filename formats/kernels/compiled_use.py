"""Whether compiled loops are worth the wait: to load them takes a third of a second, to compile them several, once."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys

COMPILED = "statestore.formats.kernels.compiled"
_COLD_BYTES, _WARM_BYTES = 8 << 20, 1 << 20


def is_loaded() -> bool:
    """Whether this process has loaded them already."""
    return COMPILED in sys.modules


def pays(stored_bytes: int) -> bool:
    """Whether a read of so many compressed bytes is faster with compiled loops; false where numba is not installed."""
    least = _WARM_BYTES if is_loaded() else _COLD_BYTES
    return stored_bytes >= least and importlib.util.find_spec("numba") is not None


def load_if_it_pays(stored_bytes: int) -> None:
    """From here on `is_loaded`, if `pays` and numba is fit for use here."""
    if pays(stored_bytes):
        with contextlib.suppress(Exception):  # numba refuses versions of Python and numpy with errors of many kinds
            importlib.import_module(COMPILED)
