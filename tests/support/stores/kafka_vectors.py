"""Runs the cases of ``data/kafka-semantics`` against anything with their operations: a model or a store.

It knows no store. What is driven is an adapter with a method for each operation of its kind of case; keys and values
go in and come out as Python's (int, str, bytes). Where a method returns rows, these have the named fields, any type
and more fields are welcome: named tuples of a store can be passed on as they are.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from support.paths import DATA

FORMAT = "kafka-semantics/1"

Case = dict[str, Any]
Rows = Iterable[Any]

# Kafka's serializers, by the names that cases use.
SERIALIZERS: dict[str, Callable[[Any], bytes]] = {
    "integer": struct.Struct(">i").pack,
    "long": struct.Struct(">q").pack,
    "string": lambda text: str(text).encode(),
    "bytes": bytes,
}


def cases(name: str) -> list[Case]:
    """The cases of a category: ``window``, ``session``, ``keyvalue``, ``versioned``, …"""
    paths = [DATA / "kafka-semantics" / f"{name}.json.gz", DATA / f"{name}.json.gz"]
    found = json.loads(gzip.decompress(next(path for path in paths if path.exists()).read_bytes()))
    assert found["format"] == FORMAT, f"{name}: format {found['format']}, expected {FORMAT}"
    loaded: list[Case] = found["cases"]
    return loaded


def encodings(*kinds: str) -> list[dict[str, Any]]:
    """The cases of ``encodings.json`` whose kind begins with one of these texts."""
    found = [case for case in cases("encodings") if case["kind"].startswith(kinds)]
    assert found
    return found


def key_serializer(store: dict[str, Any]) -> Callable[[Any], bytes]:
    """The serializer of keys in a case's ``store``. The cases of 2016 name none: their keys are integers."""
    return SERIALIZERS[store.get("key_serde", "integer")]


def value_serializer(store: dict[str, Any]) -> Callable[[Any], bytes]:
    return SERIALIZERS[store.get("value_serde", "string")]


class KeyValueAdapter(Protocol):
    """Rows have ``key, value``. ``key_from`` and ``key_to`` may be None: open ends."""

    def put(self, key: Any, value: Any) -> object: ...
    def put_all(self, entries: list[tuple[Any, Any]]) -> object: ...
    def get(self, key: Any) -> Any: ...
    def put_if_absent(self, key: Any, value: Any) -> Any: ...
    def delete(self, key: Any) -> Any: ...
    def range(self, key_from: Any, key_to: Any) -> Rows: ...
    def reverse_range(self, key_from: Any, key_to: Any) -> Rows: ...
    def all(self) -> Rows: ...
    def reverse_all(self) -> Rows: ...
    def prefix_scan(self, prefix: bytes) -> Rows: ...
    def approximate_num_entries(self) -> int: ...
    def restore(self, records: list[tuple[Any, Any]]) -> object: ...


class WindowAdapter(Protocol):
    """Rows of ``fetch`` have ``start, value``, others ``key, start, value``.

    Those of the changelog have ``key, value`` in bytes, physical ones ``segment`` too.
    """

    def put(self, key: Any, value: Any, ts: int) -> object: ...
    def fetch_one(self, key: Any, ts: int) -> Any: ...
    def fetch(self, key: Any, start: int, end: int) -> Rows: ...
    def backward_fetch(self, key: Any, start: int, end: int) -> Rows: ...
    def fetch_range(self, key_from: Any, key_to: Any, start: int, end: int) -> Rows: ...
    def backward_fetch_range(self, key_from: Any, key_to: Any, start: int, end: int) -> Rows: ...
    def all(self) -> Rows: ...
    def backward_all(self) -> Rows: ...
    def fetch_all(self, start: int, end: int) -> Rows: ...
    def backward_fetch_all(self, start: int, end: int) -> Rows: ...
    def dropped(self) -> int: ...
    def segments(self) -> list[str]: ...
    def changelog(self) -> Rows: ...
    def physical(self) -> Rows: ...
    def wipe_and_restore(self) -> object: ...


class JoinWindowAdapter(Protocol):
    """The store of 2016. ``put`` gives the bytes of the row's key, or None; ``fetch`` gives values."""

    def put(self, key: Any, value: Any, ts: int) -> bytes | None: ...
    def fetch(self, key: Any, ts: int) -> Iterable[Any]: ...
    def flush(self) -> object: ...
    def segment_ids(self) -> list[int]: ...
    def segments(self) -> list[str]: ...
    def changelog(self) -> Rows: ...
    def changelog_size(self) -> int: ...
    def config(self) -> dict[str, int]: ...
    def wipe_and_restore(self) -> object: ...


class SessionAdapter(Protocol):
    """Rows have ``key, start, end, value``; physical rows as in :class:`WindowAdapter`."""

    def put(self, key: Any, start: int, end: int, value: Any) -> object: ...
    def remove(self, key: Any, start: int, end: int) -> object: ...
    def fetch_session(self, key: Any, start: int, end: int) -> Any: ...
    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows: ...
    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows: ...
    def find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int) -> Rows: ...
    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int
    ) -> Rows: ...
    def fetch(self, key: Any) -> Rows: ...
    def backward_fetch(self, key: Any) -> Rows: ...
    def fetch_range(self, key_from: Any, key_to: Any) -> Rows: ...
    def backward_fetch_range(self, key_from: Any, key_to: Any) -> Rows: ...
    def dropped(self) -> int: ...
    def segments(self) -> list[str]: ...
    def physical(self) -> Rows: ...
    def wipe_and_restore(self) -> object: ...


Adapter = KeyValueAdapter | WindowAdapter | JoinWindowAdapter | SessionAdapter


@dataclass(frozen=True)
class Operation:
    """``arguments`` are the operation's fields in the order of the method's arguments.

    ``rows`` are the fields of the rows it gives, if it does; ``plain_list``: it gives a list of something else.
    """

    arguments: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    plain_list: bool = False


LOGGED = ("key_hex", "value_hex")
PHYSICAL = ("segment", *LOGGED)
LIST = Operation(plain_list=True)


def _operations(rows: tuple[str, ...], *names: str, arguments: tuple[str, ...] = ()) -> dict[str, Operation]:
    return {name: Operation(arguments, rows) for name in names}


_KEYS = ("key_from", "key_to")
_TIMES = ("from", "to")
_SESSION = ("key", "start", "end")
_OVERLAP = ("earliest_end", "latest_start")

KEY_VALUE: dict[str, Operation] = {
    "put": Operation(("key", "value")),
    "put_all": Operation(("entries",)),
    "get": Operation(("key",)),
    "put_if_absent": Operation(("key", "value")),
    "delete": Operation(("key",)),
    **_operations(("key", "value"), "range", "reverse_range", arguments=_KEYS),
    **_operations(("key", "value"), "all", "reverse_all"),
    "prefix_scan": Operation(("prefix_hex",), ("key", "value")),
    "approximate_num_entries": Operation(),
    "restore": Operation(("records",)),
}
WINDOW: dict[str, Operation] = {
    "put": Operation(("key", "value", "ts")),
    "fetch_one": Operation(("key", "ts")),
    **_operations(("start", "value"), "fetch", "backward_fetch", arguments=("key", *_TIMES)),
    **_operations(("key", "start", "value"), "fetch_range", "backward_fetch_range", arguments=(*_KEYS, *_TIMES)),
    **_operations(("key", "start", "value"), "all", "backward_all"),
    **_operations(("key", "start", "value"), "fetch_all", "backward_fetch_all", arguments=_TIMES),
    "dropped": Operation(),
    "segments": LIST,
    "changelog": Operation(rows=LOGGED),
    "physical": Operation(rows=PHYSICAL),
    "wipe_and_restore": Operation(),
}
JOIN_WINDOW: dict[str, Operation] = {
    "put": Operation(("key", "value", "ts")),
    "fetch": Operation(("key", "ts"), plain_list=True),
    "flush": Operation(),
    "segment_ids": LIST,
    "segments": LIST,
    "changelog": Operation(rows=LOGGED),
    "changelog_size": Operation(),
    "config": Operation(),
    "wipe_and_restore": Operation(),
}
_SESSION_ROW = (*_SESSION, "value")
SESSION: dict[str, Operation] = {
    "put": Operation(_SESSION_ROW),
    "remove": Operation(_SESSION),
    "fetch_session": Operation(_SESSION),
    **_operations(_SESSION_ROW, "find_sessions", "backward_find_sessions", arguments=("key", *_OVERLAP)),
    **_operations(_SESSION_ROW, "find_sessions_range", "backward_find_sessions_range", arguments=(*_KEYS, *_OVERLAP)),
    **_operations(_SESSION_ROW, "fetch", "backward_fetch", arguments=("key",)),
    **_operations(_SESSION_ROW, "fetch_range", "backward_fetch_range", arguments=_KEYS),
    "dropped": Operation(),
    "segments": LIST,
    "physical": Operation(rows=PHYSICAL),
    "wipe_and_restore": Operation(),
}
KINDS = {"keyvalue": KEY_VALUE, "window": WINDOW, "window_original": JOIN_WINDOW, "session": SESSION}


def run_case(case: Case, adapter: Adapter, without: Collection[str] = ()) -> int:
    """Does every operation and compares every ``expect``; returns how many it compared.

    Where a fault of Kafka's decides its answer, ``expect_complete`` is compared: the answer without that fault.
    ``without`` names operations to leave out. AssertionError names the case, the operation, found and expected.
    """
    operations, store = KINDS[case["store"]["type"]], case["store"]
    compared = 0
    for number, op in enumerate(case["ops"]):
        if op["op"] in without:
            continue
        operation = operations[op["op"]]
        arguments = [_argument(store, name, op[name]) for name in operation.arguments]
        result = getattr(adapter, op["op"])(*arguments)
        if "expect" in op:
            found, expected = _found(operation, result), _expected(store, operation, op)
            assert found == expected, (
                f"{case['id']}, operation {number} {op['op']}{arguments}:\nfound    {found}\nexpected {expected}"
            )
            compared += 1
    return compared


def _argument(store: dict[str, Any], name: str, raw: Any) -> Any:
    if name in ("key", *_KEYS):
        return bytes.fromhex(raw) if store.get("key_serde") == "bytes" and raw is not None else raw
    if name == "prefix_hex":
        return bytes.fromhex(raw)
    if name == "entries":
        return [(_argument(store, "key", key), value) for key, value in raw]
    if name == "records":
        return [(_argument(store, "key", record["key"]), record["value"]) for record in raw]
    return raw


def _found(operation: Operation, result: Any) -> Any:
    if operation.rows:
        return [tuple(getattr(row, name.removesuffix("_hex")) for name in operation.rows) for row in result]
    return list(result) if operation.plain_list else result


def _expected(store: dict[str, Any], operation: Operation, op: dict[str, Any]) -> Any:
    raw = op.get("expect_complete", op["expect"])
    if operation.rows:
        return [tuple(_cells(store, operation.rows, row)) for row in raw]
    if store["type"] == "window_original" and op["op"] == "put":
        return None if raw is None else bytes.fromhex(raw)
    return raw


def _cells(store: dict[str, Any], fields: tuple[str, ...], row: Any) -> Iterator[Any]:
    """Rows are written as objects, or as lists in the order of the fields."""
    for name, raw in zip(fields, [row[name] for name in fields] if isinstance(row, dict) else row, strict=True):
        if name.endswith("_hex"):
            yield None if raw is None else bytes.fromhex(raw)
        else:
            yield _argument(store, name, raw)
