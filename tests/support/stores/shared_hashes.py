"""Keys that share hashes, so that only the keys themselves tell them apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh64_intdigest

from statestore.formats.values import key_codec, key_hash

POINT_LOOKUP = "statestore.catalog.reads.lookup.point_lookup"
_SHARED = {"now": False}


def share_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all keys one of two hashes, for columns and for single keys."""
    original, single = key_hash.hash_keys, key_codec.KeyCodec.hash

    def of_columns(columns: Sequence[pa.Array]) -> Any:
        # A module that is imported meanwhile keeps this function for good.
        return original(columns) % np.uint64(2) if _SHARED["now"] else original(columns)

    monkeypatch.setitem(_SHARED, "now", True)

    for module in list(sys.modules.values()):
        if module.__name__.startswith("statestore.") and getattr(module, "hash_keys", None) is original:
            monkeypatch.setattr(module, "hash_keys", of_columns)
    monkeypatch.setattr(key_codec.KeyCodec, "hash", lambda codec, key: single(codec, key) % 2)
    monkeypatch.setattr(f"{POINT_LOOKUP}.xxh64_intdigest", lambda data: xxh64_intdigest(data) % 2)
