"""A text that `filter=` compares with a column of times or dates is a time or a date, in every read of Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

import statestore

MOMENTS = [datetime(2024, 5, day, 9, 30, tzinfo=UTC) for day in (1, 2, 3)]
TEXTS = [
    (("z", "=", "2024-05-02 11:30 Europe/Berlin"), ["k1"]),
    (("z", ">", "2024-05-02T09:30Z"), ["k2"]),
    (("z", "in", ["2024-05-01T09:30Z", "2024-05-03T09:30Z"]), ["k0", "k2"]),
    (("l", "=", "2024-05-02 09:30"), ["k1"]),
    (("l", "in", ["2024-05-02T09:30:00"]), ["k1"]),
    (("d", "<", "2024-05-02"), ["k0"]),
    ([("d", ">=", "2024-05-02"), ("z", "<", "2024-05-03T00:00Z")], ["k1"]),
]
REFUSED = [
    (("z", "=", "2024-05-02 09:30"), "without a time zone"),
    (("z", "=", "2024-05-02"), "without a time zone"),
    (("l", "=", "2024-05-02 09:30Z"), "whose times have no zone"),
    (("l", "=", "soon"), "expected one like 2024-05-01 09:30"),
    (("d", "=", "2024-05-02T09:30Z"), "expected one like 2024-05-01"),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A table of three rows, and one of none."""
    root = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(root)
    for name in ("full", "empty"):
        columns = {"z": "timestamp", "l": "timestamp_ntz", "d": "date"}
        with catalog.create_store(name, key={"k": "string"}, value=columns) as store:
            for number, moment in enumerate(MOMENTS if name == "full" else ()):
                local = moment.replace(tzinfo=None)
                store.put(f"k{number}", (moment, local, date(2024, 5, local.day)), timestamp=moment)
            store.commit()
    found = statestore.inspect(root)
    return found["full"], found["empty"]


def reads(full: Any, empty: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        "scan": lambda given: full.scan(filter=given),
        "history": lambda given: full.history(filter=given),
        "changes": lambda given: full.changes(filter=given),
        "compare": lambda given: empty.compare(full, filter=given),
    }


@pytest.mark.parametrize("read", ["scan", "history", "changes", "compare"])
def test_texts_are_times(tables: tuple[Any, Any], read: str) -> None:
    for given, keys in TEXTS:
        assert sorted(reads(*tables)[read](given).to_arrow()["k"].to_pylist()) == keys, given


@pytest.mark.parametrize("read", ["scan", "history", "changes", "compare"])
@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_no_zone_is_assumed(tables: tuple[Any, Any], read: str, given: Any, said: str) -> None:
    with pytest.raises(statestore.InvalidInputError, match=said):
        reads(*tables)[read](given).to_arrow()
