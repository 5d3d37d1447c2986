"""Checkpoints of Flink's changelog backend, and savepoints of as many entries, for ``benchmarks/engine_forms.py``.

A checkpoint has ``rows`` materialized entries, each key once, and as many changes in several sets: each change is of
another key, most of them of one that was materialized. Windows that are merged are those of sessions, which grow.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.flink import metadata_bytes as meta
from support.flink import snapshot_bytes as types

from benchmarks.engines.flink_forms import FORMS, framed, listed, pojo, tags, text, write_metadata
from benchmarks.engines.flink_snapshots import FIRST_KEY, GROUPS, group_of

SETS = 8
CLEAR, SET, ADD_ALL, MERGE, ADD, PUT, REMOVE = 0, 1, 3, 4, 5, 6, 7
_STREAMING = "org.apache.flink.streaming.api."
_WINDOW = types.snapshot(f"{_STREAMING}windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot")
_TIMER = types.composite(f"{_STREAMING}operators.TimerSerializerSnapshot", types.LONG, types.VOID, version=2)
Change = tuple[int, bytes]
"""An operation, and what stands behind the number of the state."""


@dataclass(frozen=True)
class Logged:
    """A state: its serializer, the entry that is materialized for a number, and the changes of a number.

    An entry is a stored key without the key group, and a value.
    """

    serializer: bytes
    kind: str | None
    entry: Callable[[int], tuple[bytes, bytes]]
    changes: Callable[[int], Sequence[Change]]
    namespace: bytes | None = types.VOID


def _key(number: int) -> bytes:
    return struct.pack(">qB", FIRST_KEY + number, 0)


def _window(number: int, first: int) -> bytes:
    return struct.pack(">qqq", FIRST_KEY + number, first, first + 10)


def _timer(number: int) -> bytes:
    return struct.pack(">Qq", (1 << 63) + 1_000_000 + number % 1000, FIRST_KEY + number) + b"\0"


def _map_entry(number: int, value: int) -> tuple[bytes, bytes]:
    return text(f"item {number % 7}"), struct.pack(">i", value)


def _put(number: int) -> bytes:
    map_key, value = _map_entry(number, number + 1)
    return _key(number) + map_key + value


def _elements(number: int) -> bytes:
    return b",".join(map(text, tags(number) or ["none"]))


def _merges(number: int) -> Sequence[Change]:
    """An element of a session in a window of its own, and its merge into the window that the session had."""
    scope = _window(number, 50)
    behind = struct.pack(">qqi", 0, 10, 1) + scope[8:]
    return (ADD, scope + text(f"event {number}")), (MERGE, _window(number, 0) + behind)


LOGGED = {
    "value": Logged(
        FORMS["POJO"].serializer, "VALUE", lambda n: (_key(n), pojo(n)), lambda n: [(SET, _key(n) + pojo(n + 1))]
    ),
    "number": Logged(
        types.LONG,
        "VALUE",
        lambda n: (_key(n), struct.pack(">q", n)),
        lambda n: [(SET, _key(n) + struct.pack(">q", n + 1))],
    ),
    "map": Logged(
        types.mapped(types.STRING, types.INT),
        "MAP",
        lambda n: (_key(n) + _map_entry(n, n)[0], b"\0" + _map_entry(n, n)[1]),
        lambda n: [(PUT, _put(n))],
    ),
    "list, set": Logged(
        types.listed(types.STRING),
        "LIST",
        lambda n: (_key(n), _elements(n)),
        lambda n: [(SET, _key(n) + listed(n + 1))],
    ),
    "list, added": Logged(
        types.listed(types.STRING),
        "LIST",
        lambda n: (_key(n), _elements(n)),
        lambda n: [(ADD, _key(n) + text(f"event {n}"))],
    ),
    "timers": Logged(
        _TIMER,
        None,
        lambda n: (_timer(n), b""),
        lambda n: [(REMOVE, _timer(n)) if n % 2 else (ADD, struct.pack(">i", 1) + _timer(n + (1 << 32)))],
        None,
    ),
    "merged windows": Logged(
        types.listed(types.STRING),
        "LIST",
        lambda n: (_window(n, 0), _elements(n)),
        _merges,
        _WINDOW,
    ),
}


def _described(form: Logged) -> bytes:
    return types.state("measured", form.serializer, form.kind, form.namespace, 3 if form.kind is None else 0)


def write_stream(file: Path, form: Logged, rows: int) -> bytes:
    """Write a canonical stream of so many entries; return where each key group begins and the file."""
    groups: list[list[int]] = [[] for _ in range(GROUPS)]
    for number in range(rows):
        groups[group_of(FIRST_KEY + number)].append(number)
    offsets = []
    with file.open("wb") as out:
        out.write(types.header(types.LONG, _described(form)))
        for group, numbers in enumerate(groups):
            offsets.append(out.tell())
            for place, number in enumerate(numbers):
                key, value = form.entry(number)
                mark = 0x80 if place == len(numbers) - 1 else 0
                head = b"\0\0" if not place else b""
                out.write(head + framed(bytes((group | mark,)) + key) + framed(value))
            out.write(b"\xff\xff")
    return struct.pack(f">ii{GROUPS}q", 0, GROUPS, *offsets) + meta.relative(file.name, file.stat().st_size)


def savepoint(folder: Path, form: Logged, rows: int) -> Path:
    folder.mkdir(parents=True)
    return write_metadata(folder, b"\7" + write_stream(folder / "state", form, rows))


def checkpoint(
    folder: Path, form: Logged, rows: int, changes: int, first: int = 0, sets: int = SETS, times: int = 1
) -> Path:
    """Write a checkpoint of so many materialized entries, and the changes of so many numbers from the ``first`` on.

    The changes are made so many ``times``, each time by all of the sets.
    """
    folder.mkdir(parents=True)
    base = b"\7" + write_stream(folder / "state", form, rows)
    kind = 3 if form.kind is None else 0
    defaults = b"" if form.kind is None else b"\0\0"
    described = bytes((9 if form.kind is None else 8,)) + struct.pack(">i", 6) + _described(form) + defaults
    starts = []
    with (folder / "changes").open("wb") as out:
        out.write(b"\0")
        for number in range(sets):
            groups: list[list[bytes]] = [[] for _ in range(GROUPS)]
            for each in range(first + number, first + changes, sets):
                into = groups[group_of(FIRST_KEY + each)]
                into += [framed(bytes((operation, 0, 0)) + body) for operation, body in form.changes(each)]
            filled = [(group, found) for group, found in enumerate(groups) if found]
            written = struct.pack(">i", len(filled) + 1)
            written += struct.pack(">ii", 1, -1) + framed(described + struct.pack(">hB", 0, kind))
            written += b"".join(struct.pack(">ii", len(found), group) + b"".join(found) for group, found in filled)
            for _ in range(times):
                starts.append(out.tell() - 1)
                out.write(written)
        size = out.tell()
    range_of = struct.pack(">ii", 0, GROUPS)
    files = b"\x0a" + range_of + struct.pack(">i", len(starts))
    files += b"".join(struct.pack(">q", start) + meta.relative("changes", size) for start in starts)
    files += struct.pack(">qq", size - 1, size - 1) + meta.utf("handle")
    handle = b"\x08" + range_of + struct.pack(">q", size) + struct.pack(">i", 1) + base + struct.pack(">i", 1) + files
    return write_metadata(folder, handle + struct.pack(">q", 1) + meta.utf("handle"))
