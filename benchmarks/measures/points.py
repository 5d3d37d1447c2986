"""Point reads of any key at any moment, against rocksdict with one entry for each version.

The entries are key and time, so a read is one seek backwards and the decoding of a value with the same columns. The
same keys and moments are asked for again and again, as hot keys are, so both sides have their rows in memory. Then each
is asked for once, which both sides answer from the page cache. Many keys are read at one moment, and the history of a
key by both ways that there are.
"""

from __future__ import annotations

import itertools
import statistics
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.loads.oracle import WrongAnswerError
from benchmarks.loads.stream import START_MS, STEP_MS, Stream
from benchmarks.measures.workbench import COMPACTED, DELIVERED, Workbench, open_reader
from benchmarks.results.costs import alternate
from benchmarks.results.figure import Figure, compared

HEAD = struct.Struct("<dqb")  # price, stock, bytes of the label, or -1 - bytes where there is no note
BATCH = 50_000
GOALS = {"fresh iterator": 1.0, "reused iterator": 1.5}

Pairs = list[tuple[str, int]]


def measure(bench: Workbench) -> Iterator[Figure]:
    shape = bench.size.long[10]
    stream = bench.history(shape).stream
    database = filled(bench.new_folder("rocks"), stream)
    pairs = questions(stream, bench.size.points, bench.seed)
    theirs = {
        "fresh iterator": lambda: [rocks_get(database.iter(), *pair) for pair in pairs],
        "reused iterator": reused(database, pairs),
    }
    for state in (DELIVERED, COMPACTED):
        store = open_reader(bench.history(shape, state).path)

        def ours(store: Any = store) -> list[Any]:
            return [store.get(name, as_of=moment) for name, moment in pairs]

        expected = theirs["fresh iterator"]()
        check(ours(), expected, pairs)
        costs = alternate({"ours": ours, **theirs}, bench.runs)
        for name, goal in GOALS.items():
            yield compared(
                "points",
                "get as of T",
                costs["ours"],
                costs[name],
                goal=goal,
                load=f"10x, {state}",
                against=f"rocksdict, {name}",
                details={"gets": len(pairs), "found": sum(row is not None for row in expected)},
            )
        yield from once_each(bench, stream, store, database, state)
        yield from many_keys(bench, stream, store, database, state)
        yield histories(bench, pairs, store, state)
        store.close()
    database.close()


def once_each(bench: Workbench, stream: Stream, store: Any, database: Rdict, state: str) -> Iterator[Figure]:
    """Gets of keys and moments that were not asked for before."""
    ours, theirs = (fresh_questions(bench, stream) for _ in range(2))
    iterator = database.iter()
    costs = alternate(
        {
            "ours": lambda: [store.get(name, as_of=moment) for name, moment in next(ours)],
            "theirs": lambda: [rocks_get(iterator, *pair) for pair in next(theirs)],
        },
        bench.runs,
    )
    yield compared(
        "points",
        "get as of T, each key and moment once",
        costs["ours"],
        costs["theirs"],
        load=f"10x, {state}",
        against="rocksdict, reused iterator",
    )


def fresh_questions(bench: Workbench, stream: Stream) -> Iterator[Pairs]:
    return (questions(stream, bench.size.points, bench.seed + number) for number in itertools.count(1))


def many_keys(bench: Workbench, stream: Stream, store: Any, database: Rdict, state: str) -> Iterator[Figure]:
    """Microseconds for each of many keys at one moment, and its ratio to as many reads of rocksdict."""
    moment = stream.moment(0.5)
    pairs = [(name, moment) for name, _ in questions(stream, bench.size.points, bench.seed)]
    names, theirs = [name for name, _ in pairs], reused(database, pairs)
    check(store.get_many(names, as_of=moment), theirs(), pairs)
    costs = alternate({"ours": lambda: store.get_many(names, as_of=moment), "theirs": theirs}, bench.runs)
    us = statistics.median(costs["ours"].cpu) * 1000 / len(names)
    load, details = f"10x, {state}", {"keys": len(names), "cost_ms": costs["ours"].summary()}
    yield Figure("points", "many keys at one moment", round(us, 2), 2.0, load, unit="us a key", details=details)
    yield compared(
        "points",
        "many keys at one moment",
        costs["ours"],
        costs["theirs"],
        load=load,
        against="rocksdict, reused iterator",
    )


def histories(bench: Workbench, pairs: Pairs, store: Any, state: str) -> Figure:
    """The history of a key as a table, against its versions one by one."""
    names = [name for name, _ in pairs[: max(len(pairs) // 20, 5)]]
    costs = alternate(
        {
            "ours": lambda: [store.history(key=name).read_all() for name in names],
            "theirs": lambda: [list(store.get_versions(name)) for name in names],
        },
        bench.runs,
    )
    load = f"10x, {state}"
    return compared(
        "points", "history of a key", costs["ours"], costs["theirs"], goal=1.5, load=load, against="get_versions"
    )


def questions(stream: Stream, count: int, seed: int) -> Pairs:
    """Any key at any moment."""
    random = np.random.default_rng([seed, 3])
    names = stream.names.take(np.sort(random.integers(0, stream.shape.keys, count))).to_pylist()
    random.shuffle(names)
    moments = START_MS + random.integers(0, stream.shape.events * STEP_MS, count)
    return list(zip(names, moments.tolist(), strict=True))


def check(found: list[Any], expected: list[Any], pairs: Pairs) -> None:
    for record, values, pair in zip(found, expected, pairs, strict=True):
        mine = None if record is None else tuple(record.value.values())
        if mine != values:
            raise WrongAnswerError(f"get of {pair[0]} as of {pair[1]}: {mine}, and RocksDB has {values}.")


def filled(path: Path, stream: Stream) -> Rdict:
    """A database with all changes; the value of a delete is empty."""
    database = Rdict(str(path), Options(raw_mode=True))
    for first in range(0, stream.shape.events, BATCH):
        events = np.arange(first, min(first + BATCH, stream.shape.events))
        write = WriteBatch(raw_mode=True)
        rows = stream.rows(events).to_pydict()
        for name, price, stock, label, note, time, gone in zip(
            *rows.values(), stream.deleted[events].tolist(), strict=True
        ):
            write.put(name.encode() + time.to_bytes(8, "big"), b"" if gone else packed(price, stock, label, note))
        database.write(write)
    database.flush()
    database.compact_range(None, None)
    return database


def packed(price: float, stock: int, label: str, note: str | None) -> bytes:
    text = label.encode()
    length = len(text) if note is not None else -1 - len(text)
    return HEAD.pack(price, stock, length) + text + (note or "").encode()


def unpacked(value: bytes) -> tuple[float, int, str, str | None]:
    price, stock, length = HEAD.unpack_from(value)
    missing = length < 0
    end = HEAD.size + (-1 - length if missing else length)
    return price, stock, value[HEAD.size : end].decode(), None if missing else value[end:].decode()


def rocks_get(iterator: Any, name: str, moment: int) -> tuple[float, int, str, str | None] | None:
    prefix = name.encode()
    iterator.seek_for_prev(prefix + moment.to_bytes(8, "big"))
    if not iterator.valid():
        return None
    key = iterator.key()
    if key[:-8] != prefix:
        return None
    value = iterator.value()
    return unpacked(value) if value else None


def reused(database: Rdict, pairs: Pairs) -> Callable[[], list[Any]]:
    iterator = database.iter()
    return lambda: [rocks_get(iterator, *pair) for pair in pairs]
