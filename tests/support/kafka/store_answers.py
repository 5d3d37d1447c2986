"""The answers of the real stores in the form of columns, and their comparison with rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from struct import pack, unpack
from typing import Any

import pytest

from support.kafka.real_applications import APPLICATIONS, Row, application, form_of


def the_store(name: str, store: str) -> dict[str, Any]:
    return next(found for found in application(name).stores() if found["name"] == store)


def cases(chosen: Callable[[dict[str, Any]], bool], quick: Collection[str] | None = None) -> list[Any]:
    """A case (application, store) for each store that is chosen; with ``quick``, those with other names are slow."""
    return [
        pytest.param(
            name,
            store["name"],
            id=f"{name}-{store['name']}",
            marks=() if quick is None or store["name"] in quick else pytest.mark.slow,
        )
        for name in APPLICATIONS
        for store in application(name).stores()
        if chosen(store)
    ]


PRINTED_SUBSCRIPTION = re.compile(
    r"SubscriptionWrapper\{version=(\d+), primaryKey=(-?\d+), instruction=(\w+), hash=\[(-?\d+), (-?\d+)\], "
    r"primaryPartition=(\d+)\}"
)


def expected(store: dict[str, Any], row: Row) -> Row:
    """A row of the truth under the names of columns."""
    kind = store["kind"]
    if kind == "foreign-key-subscriptions":
        return subscription(row)
    found = dict(row)
    for bound in ("start", "end"):
        if bound in found:
            found[f"{'session' if 'session' in kind else 'window'}_{bound}"] = found.pop(bound)
    if found.get("timestamp") == -1:
        found["timestamp"] = None
    value = found.get("value")
    if store["value_serde"] == "float":
        found["value"] = unpack(">f", pack(">f", value))[0]
    if "/" in form_of(store).value_serde:
        found |= {"left_value": None, "right_value": None, f"{found['side']}_value": found.pop("value")}
    return found


def subscription(row: Row) -> Row:
    value = row["value"]
    if isinstance(value, str):  # the maker of one archive printed the object
        fields = PRINTED_SUBSCRIPTION.fullmatch(value)
        assert fields is not None
        value = {
            "version": int(fields[1]),
            "primary_key": int(fields[2]),
            "instruction": fields[3],
            "hash": [int(fields[4]), int(fields[5])],
            "primary_partition": int(fields[6]),
        }
    return {**value, "hash": pack(">qq", *value["hash"]).hex(), "timestamp": row["timestamp"]}


def frozen(row: Row) -> str:
    """A row that counts, doubles by their bits."""
    return repr(sorted(row.items()))


def missing(found: list[Row], wanted: list[Row]) -> Counter[str]:
    """The rows that are wanted and not found, as often as that is so; only the columns that are wanted count."""
    names = wanted[0].keys() if wanted else set()
    return Counter(map(frozen, wanted)) - Counter(frozen({name: row[name] for name in names}) for row in found)


BUFFERS = ("grace-join-buffer", "suppression-buffer")
ANSWERED = cases(
    lambda store: store["changelog"] is not None and store["kind"] not in (*BUFFERS, "window-duplicates", "versioned")
)


def assert_rows_are_the_stores(name: str, store: dict[str, Any], rows: list[Row]) -> None:
    """Each record gives a row, a tombstone where it has no value, and the newest of each key are what the store
    answered; timestamps and headers that an old release did not keep are left out."""
    records = application(name).changelogs[store["changelog"]]
    places = [(each["partition"], each["offset"]) for each in records]
    assert set(places) == {(row["partition"], row["offset"]) for row in rows}
    deleted = {place for place, each in zip(places, records, strict=True) if each["value"] is None}
    assert deleted == {(row["partition"], row["offset"]) for row in rows if row["tombstone"]}
    newest = {(each["partition"], each["key"]): place for place, each in zip(places, records, strict=True)}
    living = set(newest.values()) - deleted
    for part in store["partitions"]:
        wanted = [expected(store, row) for row in part["rows"]]
        if any(row.get("timestamp", 0) is None for row in wanted):
            wanted = [{n: cell for n, cell in row.items() if n not in ("timestamp", "headers")} for row in wanted]
        found = [
            row for row in rows if row["partition"] == part["partition"] and (row["partition"], row["offset"]) in living
        ]
        assert missing(found, wanted) == Counter()
