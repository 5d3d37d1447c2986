"""A process that reads a store slowly: `waiting_reader.py WAREHOUSE KIND`.

It plans a read, prints "planned", waits for a line, and then opens the files and prints the rows as JSON. Started by
test_vacuum.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import statestore

Rows = Iterable[tuple[Any, ...]]


def scanned(store: statestore.VersionedStore) -> Callable[[], Rows]:
    reader = store.scan(columns=["k", "v"])
    return lambda: ((row["k"], row["v"]) for row in reader.read_all().to_pylist())


def changed(store: statestore.VersionedStore) -> Callable[[], Rows]:
    reader = store.changes(columns=["k", "v", "_change_type"])
    return lambda: ((row["k"], row["v"], row["_change_type"]) for row in reader.read_all().to_pylist())


def differing(store: statestore.VersionedStore) -> Callable[[], Rows]:
    reader = store.diff(start_version=1, end_version=2)
    return lambda: ((row["_change"], row["k"]) for row in reader.read_all().to_pylist())


def queried(store: statestore.VersionedStore) -> Callable[[], Rows]:
    """Read by an attached connection: the view has a plan of the version, and holds no file between two queries."""
    connection = statestore.attach(sys.argv[1])
    connection.execute("select count(*) from s").fetchall()
    return lambda: connection.execute("select k, v from s").fetchall()


def looked_up(store: statestore.VersionedStore) -> Callable[[], Rows]:
    """Read by keys: no segment is open yet."""
    return lambda: ((key, None if (found := store.get(key)) is None else found.value) for key in "abc")


def put_late(store: statestore.VersionedStore) -> Callable[[], Rows]:
    """Put late records, which look for committed rows in the version that the handle knows."""

    def put() -> Rows:
        for key in "abc":
            result = store.put(key, 0, timestamp=1)
            yield key, result.valid_to
        for key in "abc":
            found = store.get(key, as_of=1)
            yield key, None if found is None else found.value

    return put


KINDS = {
    "scan": scanned,
    "changes": changed,
    "diff": differing,
    "attach": queried,
    "get": looked_up,
    "put": put_late,
}

if __name__ == "__main__":
    with statestore.connect(sys.argv[1]).open_store("s", read_only=sys.argv[2] != "put") as store:
        assert isinstance(store, statestore.VersionedStore)
        read = KINDS[sys.argv[2]](store)
        print("planned", flush=True)
        sys.stdin.readline()
        print(json.dumps([list(row) for row in read()]), flush=True)
