"""The operations of Kafka's cases as verbs of stores, for the models and for anything else with these verbs.

A store that keeps segments or a changelog in another way overrides the methods that read them.
"""

from __future__ import annotations

from typing import Any


class KeyValueVerbs:
    """Every operation is a verb of the same name."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, operation: str) -> Any:
        return getattr(self.store, operation)


class WindowVerbs(KeyValueVerbs):
    def fetch_one(self, key: Any, ts: int) -> Any:
        return self.store.fetch(key, ts)

    def dropped(self) -> int:
        dropped: int = self.store.dropped_records
        return dropped


class SessionVerbs(KeyValueVerbs):
    def dropped(self) -> int:
        dropped: int = self.store.dropped_records
        return dropped
