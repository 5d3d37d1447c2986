"""Rows for keyed functions, a function over them, and its truth: a dict in plain Python that gets the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.formats.places.locations import parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = tuple[str, int]
OUTPUT = "user string, seen bigint, last bigint"


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # workers lack this file


def followed(backend: KeyedBackend) -> Callable[[str, pa.RecordBatch], Iterator[dict[str, Any]]]:
    """Counts a user's rows and remembers their amounts in order."""
    seen = backend.value_state("seen", "bigint", default=0)
    amounts = backend.list_state("amounts", "bigint")

    def process(key: str, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        seen.update(seen.value() + rows.num_rows)
        amounts.add_all(rows.column("amount").to_pylist())
        yield {"user": key, "seen": seen.value(), "last": amounts.get()[-1]}

    return process


class Model:
    """The truth: lists by user."""

    def __init__(self) -> None:
        self.amounts: dict[str, list[int]] = {}

    def batch(self, rows: list[Row]) -> list[tuple[str, int, int]]:
        for user, amount in rows:
            self.amounts.setdefault(user, []).append(amount)
        return sorted((user, len(self.amounts[user]), self.amounts[user][-1]) for user in {user for user, _ in rows})


def some_rows(batch: int, count: int = 300, users: int = 40) -> list[Row]:
    return [(f"user-{(number * 7 + batch) % users}", batch * 1000 + number) for number in range(count)]


def emitted(answer: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in answer.collect())


def state(store: str | Path, version: int | None = None) -> dict[str, list[int]]:
    """The contents of both states of the store, in the form of the model."""
    with opened(store) as handle:
        if "amounts" not in handle.states(version):
            return {}
        found: dict[str, list[int]] = {}
        rows = handle.scan("amounts", version=version).read_all().to_pylist()
        for row in sorted(rows, key=lambda row: row["position"]):
            found.setdefault(row["user"], []).append(row["value"])
        seen = {r["user"]: r["value"] for r in handle.scan("seen", version=version).read_all().to_pylist()}
    assert seen == {user: len(amounts) for user, amounts in found.items()}
    return found


def versions(store: str | Path) -> list[int]:
    with opened(store) as handle:
        found: list[int] = handle.retained()
        return found


def files(store: str | Path) -> set[str]:
    folders = ("shared", "private", "segments", "emitted")
    with opened(store) as handle:
        return {item.name for name in folders for item in handle.files().list(f"{name}/")}


def opened(store: str | Path) -> Any:
    """The store at a path or URI."""
    location = parse_location(store)
    return statestore.connect(location.parent.uri).open_store(location.name)
