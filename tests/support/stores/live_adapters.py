"""Live stores as adapters of Kafka's cases: the operations that are not verbs of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import statestore

TYPES = {"string": "string", "integer": "int", "long": "bigint", "bytes": "binary"}


class LoggedRow(NamedTuple):
    key: bytes
    value: bytes | None


class PhysicalRow(NamedTuple):
    segment: str
    key: bytes
    value: bytes


class LiveAdapter:
    """A store in a warehouse of its own, with Kafka's serdes; other operations are verbs of the same name."""

    def __init__(self, folder: Path, case: dict[str, Any], kind: str, **options: Any) -> None:
        self.catalog = statestore.connect(folder)
        self.name = case.get("name", "test")
        self.logged: list[tuple[Any, ...]] = []  # arguments of the writes, as `restore` takes them
        key, value = case.get("key_serde", "integer"), case.get("value_serde", "string")
        columns = {"key": {"k": TYPES[key]}, "value": {"v": TYPES[value]}}
        self.options = {"kind": kind, "serde": "kafka", **columns, **options}
        self.store: Any = self.make()

    def make(self) -> Any:
        return self.catalog.create_store(self.name, **self.options)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self.store, operation)

    def dropped(self) -> int:
        dropped: int = self.store.dropped_records
        return dropped

    def segments(self) -> list[str]:
        return [Path(name).name for name in self.store.segments]

    def changelog(self) -> list[LoggedRow]:
        return [LoggedRow(key, value) for key, value, _ in self.store.changelog()]

    def physical(self) -> Iterator[PhysicalRow]:
        return (PhysicalRow(Path(name).name, key, value) for name, key, value in self.store.physical())

    def wipe_and_restore(self) -> None:
        """Another store, restored from the changelog of this one as one batch."""
        self.store.close()
        self.catalog.drop_store(self.name)
        self.store = self.make()
        self.store.restore(self.logged)


class KeyValueAdapter(LiveAdapter):
    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        super().__init__(folder, {**case, "key_serde": case.get("key_serde", "string")}, "key_value")


class WindowAdapter(LiveAdapter):
    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        super().__init__(
            folder,
            case,
            "window",
            retention=case["retention_ms"],
            window_size=case["window_size_ms"],
            segment_interval=case["segment_interval_ms"],
            retain_duplicates=case["retain_duplicates"],
            time_ordered=case.get("time_ordered"),
        )

    def put(self, key: Any, value: Any, start: int) -> None:
        self.logged.append((key, value, start))
        self.store.put(key, value, start)

    def fetch_one(self, key: Any, start: int) -> Any:
        return self.store.fetch(key, start)


class JoinWindowAdapter(LiveAdapter):
    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        super().__init__(
            folder,
            {"name": "window", **case},
            "join_window",
            window_before=case["window_before_ms"],
            window_after=case["window_after_ms"],
            retention=case["retention_ms"],
            num_segments=case["num_segments"],
            batched_changelog=True,
        )

    def fetch(self, key: Any, time: int) -> list[Any]:
        return [row.value for row in self.store.fetch(key, time)]

    def segment_ids(self) -> list[int]:
        interval = self.store.spec.windowing.segment_interval
        starts = (datetime.strptime(name[-12:] + "+0000", "%Y%m%d%H%M%z") for name in self.segments())
        return [int(start.timestamp() * 1000) // interval for start in starts]

    def changelog_size(self) -> int:
        return len(self.changelog())

    def config(self) -> dict[str, int]:
        rule = self.store.spec.windowing
        return {"retention_ms": rule.retention, "segment_interval_ms": rule.segment_interval}

    def wipe_and_restore(self) -> None:
        logged = [(key, value) for key, value, _ in self.store.changelog()]
        serde = self.store._forms.serde
        self.logged = [
            (
                serde.key_of(key[:-12]),
                None if value is None else serde.value_of(value),
                int.from_bytes(key[-12:-4], "big"),
            )
            for key, value in logged
        ]
        super().wipe_and_restore()


class SessionAdapter(LiveAdapter):
    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        super().__init__(
            folder, case, "session", retention=case["retention_ms"], segment_interval=case["segment_interval_ms"]
        )

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        self.logged.append((key, start, end, value))
        self.store.put(key, start, end, value)

    def remove(self, key: Any, start: int, end: int) -> None:
        self.logged.append((key, start, end, None))
        self.store.remove(key, start, end)


ADAPTERS = {
    "keyvalue": KeyValueAdapter,
    "window": WindowAdapter,
    "window_original": JoinWindowAdapter,
    "session": SessionAdapter,
}
