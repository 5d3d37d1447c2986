"""A live store of each kind with one text key `k` and one bigint value `v`: made, written and read in the same way."""

from __future__ import annotations

from typing import Any

import statestore

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
KINDS: dict[str, dict[str, Any]] = {
    "key_value": {},
    "window": {"retention": "1 hour", "window_size": "1 minute"},
    "join_window": {"retention": "1 hour", "window_before": 10, "window_after": 10},
    "session": {"retention": "1 hour"},
}
WITH_VERSIONED = KINDS | {"versioned": {"serde": "kafka", "history_retention": "1 hour"}}


def create(catalog: statestore.Catalog, kind: str = "key_value", **more: Any) -> Any:
    """Store ``s`` of a kind, open."""
    return catalog.create_store("s", kind=kind, **COLUMNS, **WITH_VERSIONED[kind], **more)


def put(store: Any, key: str, value: int | None, time: int = 0) -> None:
    """One write of any kind."""
    match store.spec.kind:
        case "session":
            store.put(key, time, time, value)
        case _:
            store.put(key, value, time)


def rows(store: Any) -> list[tuple[str, int]]:
    """(key, value) of the rows in the store's table."""
    table = store.scan(columns=["k", "v"]).read_all()
    return sorted(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def live_rows(store: Any) -> list[tuple[str, int]]:
    """(key, value) of the rows that the store's live verbs show."""
    match store.spec.kind:
        case "key_value" | "window":
            return sorted((row.key, row.value) for row in store.all())
        case "join_window":
            return sorted((row.key, row.value) for key in "abcd" for row in store.fetch(key, 0))
        case _:
            return sorted((row.key, row.value) for row in store.fetch_range(None, None))
