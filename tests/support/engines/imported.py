"""Operators with a state of each kind, and the means to import them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.formats import engines
from support.engines.operator_engine import MadeState, write_operators

TIME = pa.timestamp("us", tz="UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
ACCUMULATOR = pa.struct([("count", pa.int64()), ("total", pa.int64())])


@contextmanager
def operator_engine() -> Iterator[None]:
    """The engine of operators is one of the engines within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "BUILT_IN", (*engines.BUILT_IN, "support.engines.operator_engine"))
        yield


def moment(minute: int) -> datetime:
    return datetime(2024, 5, 1, 12, minute, tzinfo=UTC)


def window(minute: int) -> dict[str, datetime]:
    return {"start": moment(minute), "end": moment(minute + 10)}


def every_kind(users: int = 40) -> list[MadeState]:
    """States of ``users`` users: some have no list, some several windows."""
    names = [f"user-{number}" for number in range(users)]
    elements = [(n, p, p * 10 + i) for i, n in enumerate(names) for p in range(i % 4)]
    entries = [(n, f"page {p}", None if p == 2 else i + p / 2) for i, n in enumerate(names) for p in range(i % 3 + 1)]
    windows = [(n, window(m * 10), i + m) for i, n in enumerate(names) for m in range(i % 3)]
    times = [1_000 * i for i in range(users)]
    return [
        made("count", "value", {"key": names, "value": list(range(users))}, value=pa.int64()),
        made("clicks", "list", _columns(elements, "key", "position", "value"), position=pa.int32(), value=pa.int32()),
        made(
            "seconds",
            "map",
            _columns(entries, "key", "map_key", "map_value"),
            map_key=pa.string(),
            map_value=pa.float64(),
        ),
        made("sums", "reducing", _columns(windows, "key", "namespace", "value"), namespace=WINDOW, value=pa.int64()),
        made(
            "means",
            "aggregating",
            {"key": names, "value": [{"count": i + 1, "total": i * 7} for i in range(users)]},
            value=ACCUMULATOR,
        ),
        made(
            "_timer_state/event_ends",
            "event timers",
            {"key": names, "namespace": [window(0)] * users, "timestamp_ms": times},
            namespace=WINDOW,
            timestamp_ms=pa.int64(),
        ),
        made("ticks", "processing timers", {"key": names, "timestamp_ms": times}, timestamp_ms=pa.int64()),
        made("nothing", "value", {"key": [], "value": []}, value=pa.list_(pa.string())),
    ]


def made(
    name: str, kind: str, columns: dict[str, Any], key: pa.DataType | None = None, **types: pa.DataType
) -> MadeState:
    """A state with these columns, whose keys are text if no type is given."""
    schema = pa.schema([(column, types.get(column, key or pa.string())) for column in columns])
    return MadeState(name, kind, pa.table(columns, schema=schema))


def _columns(rows: list[Any], *names: str) -> dict[str, list[Any]]:
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}


def one_operator(folder: Path, *states: MadeState, **options: Any) -> Path:
    return write_operators(folder / "savepoint", {"counter": states}, **options)
