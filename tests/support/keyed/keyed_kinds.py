"""A keyed store with a state of each kind in which a key may have several rows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import statestore


def keyed(root: Path) -> tuple[Any, list[datetime]]:
    """Three snapshots of a value, a map, a list and a namespaced state."""
    store = statestore.connect(root).create_store("s", kind="keyed", key={"k": "string"})
    backend = store.backend()
    value, seen = backend.value_state("value", "bigint"), backend.map_state("map", "string", "bigint")
    listed = backend.list_state("list", "bigint")
    windows = backend.reducing_state("windows", "bigint", lambda a, b: a + b, namespace={"w": "int"})
    for number in range(3):
        for key in "ab"[: number + 1]:
            backend.set_current_key(key)
            value.update(number)
            for user_key in "xyz"[: number + 1]:
                seen.put(user_key, 10 * number + ord(user_key))
            listed.add(number)
            for window in range(number + 1):
                windows.set_current_namespace(window)
                windows.add(number + 1)
        store.commit([backend.snapshot().result()])
    backend.dispose()
    store.close()
    found = statestore.inspect(str(root)).table("s.value$versions").scan().read_all()
    return statestore.inspect(str(root)), found["timestamp"].to_pylist()
