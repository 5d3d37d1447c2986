"""Decision whether compiled loops pay: loading them takes a third of a second, and the first compilation several."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys

COMPILED = "statestore.formats.kernels.compiled"
_COLD_BYTES, _WARM_BYTES = 8 << 20, 1 << 20


def is_loaded() -> bool:
    """Return whether this process has loaded compiled loops."""
    return COMPILED in sys.modules


def pays(stored_bytes: int) -> bool:
    """Return whether compiled loops speed up a read of so many compressed bytes; false without numba."""
    least = _WARM_BYTES if is_loaded() else _COLD_BYTES
    return stored_bytes >= least and importlib.util.find_spec("numba") is not None


def load_if_it_pays(stored_bytes: int) -> None:
    """Load compiled loops if `pays` says so and numba works here; `is_loaded` then returns true."""
    if pays(stored_bytes):
        with contextlib.suppress(Exception):  # numba refuses versions of Python and numpy with errors of many kinds
            importlib.import_module(COMPILED)
