"""What the reader of state directories finds, against the answers of the application itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import statestore
from statestore.catalog.warehouse import Warehouse
from support.kafka.real_applications import Row, plain_rows
from support.kafka.running.application import Application
from support.kafka.store_answers import expected, frozen, missing
from support.kafka.unpacked import is_on_disk, write_stores_file


def opened(application: Application, **options: Any) -> Warehouse:
    """The state directory through the public door, with all that is true of its stores."""
    return statestore.inspect(application.state_directory, stores_file=str(stores_file_of(application)), **options)


def stores_file_of(application: Application) -> Path:
    """Write what is true of the stores to a file for the doors."""
    file = application.state_directory.parent / "stores.toml"
    write_stores_file(application.description.stores, file)
    return file


def stores_on_disk(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Stores that have files."""
    return [store for store in truth["stores"] if is_on_disk(store)]


def wrong_stores(application: Application, truth: dict[str, Any]) -> list[str]:
    """Names of the stores whose rows in the state directory are not those that the application has answered.

    Beside these may lie rows that Kafka hides by its stream time, nothing else.
    """
    found = opened(application)
    assert sorted(found.tables()) == sorted(store["name"] for store in stores_on_disk(truth))
    return [store["name"] for store in stores_on_disk(truth) if not _is_right(found, store)]


def _is_right(found: Warehouse, store: dict[str, Any]) -> bool:
    rows = rows_of(found, store["name"])
    parts = {part.get("partition"): part for part in store["partitions"]}
    return {row["partition_id"] for row in rows} <= parts.keys() and all(
        _part_is_right([row for row in rows if row["partition_id"] == number], store, part)
        for number, part in parts.items()
    )


def _part_is_right(rows: list[Row], store: dict[str, Any], part: dict[str, Any]) -> bool:
    wanted = [expected(store, row) for row in part["rows"]]
    names = wanted[0].keys() if wanted else set()
    answered = Counter(map(frozen, wanted))
    more = [row for row in rows if frozen({name: row[name] for name in names}) not in answered]
    return (
        missing(rows, wanted) == Counter()
        and len(rows) == len(wanted) + len(more)
        and all(_is_hidden(row, store, part) for row in more)
    )


def _is_hidden(row: Row, store: dict[str, Any], part: dict[str, Any]) -> bool:
    if "retention_ms" not in store:
        return False
    time = row["session_end" if "session" in store["kind"] else "window_start"]
    return bool(time <= part["observed_stream_time"] - store["retention_ms"])


def rows_of(found: Warehouse, store: str) -> list[Row]:
    """All rows of a store, expired ones too, in the form of the truth."""
    return [row for batch in found.table(store).scan() for row in plain_rows(batch)]
