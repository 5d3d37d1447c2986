"""The stored rows of variables of transformWithState, and what must hold between their families."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from statestore.formats.spark.checkpoint.state_views import find_state_view, state_views
from statestore.formats.spark.source import CheckpointSource
from statestore.formats.spark.state_rows import read_state

Row = dict[str, Any]


def view_rows(source: CheckpointSource, name: str) -> list[Row]:
    view = find_state_view(source.checkpoint, 0, name)
    return [
        row
        for partition in view.store.partitions
        for batch in read_state(source.checkpoint, view, partition)
        for row in batch.to_pylist()
    ]


def check_families(source: CheckpointSource) -> int:
    """Check that the families that no table shows have what follows from the others; return how many were checked."""
    operator = source.checkpoint.operators[0]
    views = {view.name: view for view in state_views(source.checkpoint, operator)}
    checked = 0
    for name, view in views.items():
        if not view.user:
            continue
        rows = view_rows(source, name)
        lists: dict[str, list[Any]] = defaultdict(list)
        if view.shape == "list":
            for row in rows:
                lists[repr(row["key"])].append(row["list_element"])
        expires = f"$ttl_{name}" in views
        counter = f"$count_{name}" if expires else f"$rowCounter_{name}"
        if view.shape == "list" and counter in views:
            counts = Counter({repr(row["key"]): row["value"]["count"] for row in view_rows(source, counter)})
            assert counts == Counter({key: len(each) for key, each in lists.items()})
            checked += 1
        ends: Counter[Any] = Counter()
        if view.shape == "timers":
            ends = Counter((row["expiration_timestamp_ms"], repr(row["key"]), row["partition_id"]) for row in rows)
            index = view.family.name.replace("keyToTimestamp", "timestampToKey")
        elif expires:
            index = f"$ttl_{name}"
            if view.shape == "list":
                least = {key: min(each["ttlExpirationMs"] for each in of_key) for key, of_key in lists.items()}
                assert least == {
                    repr(row["key"]): row["value"]["expirationMs"] for row in view_rows(source, f"$min_{name}")
                }
                places = {repr(row["key"]): row["partition_id"] for row in rows}
                ends = Counter((end, key, places[key]) for key, end in least.items())
            else:
                for row in rows:
                    value = row["user_map_value" if view.shape == "map" else "value"]
                    element = row["key"]
                    if view.shape == "map":
                        element = {"key": row["key"], "userKey": row["user_map_key"]}
                    ends[value["ttlExpirationMs"], repr(element), row["partition_id"]] += 1
        else:
            continue
        indexed: Counter[Any] = Counter()
        for row in view_rows(source, index):
            time, element = row["key"].values()
            indexed[time, repr(element), row["partition_id"]] += 1
        assert indexed == ends
        checked += 1
    return checked
