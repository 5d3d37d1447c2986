"""Questions about single keys beside Delta and Iceberg: a row by version, a row as of a moment, the history of a key.

    python benchmarks/key_questions.py [--keys 20000] [--factor 10] [--commit-rows 10000] [--runs 9]

All get the same commits. A lake has a table for each question, as its users build them: one that each commit merges,
for rows by version, and one to which each commit appends, for moments and histories. A reader of Python asks each, with
the table open: deltalake's own SQL and PyIceberg's scan, both with the key as a filter. Every answer is compared with
ours before it is timed. Printed are medians of the processor time of one question, ratios to ours, and bytes on disk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import statestore  # noqa: E402
from benchmarks.loads.stream import Shape, Stream  # noqa: E402
from benchmarks.measures.workbench import STORE, bytes_in, open_reader, open_writer  # noqa: E402
from benchmarks.peers.peer import open_peer  # noqa: E402
from benchmarks.results.costs import alternate  # noqa: E402

ASKED = 20
Ask = Callable[[str], Any]


@dataclass(frozen=True)
class Question:
    """A question, ours and those of the peers, each of which answers for one key."""

    name: str
    ours: Ask
    peers: Mapping[str, Ask]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("--keys", 20_000), ("--factor", 10), ("--commit-rows", 10_000), ("--runs", 9)):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args(arguments)
    stream = Stream(Shape(given.keys, given.factor, given.commit_rows), 1)
    with tempfile.TemporaryDirectory() as folder:
        for line in measured(stream, Path(folder), given.runs):
            print(line)


def measured(stream: Stream, folder: Path, runs: int) -> list[str]:
    """Write everything, and return the lines of two tables."""
    store = open_writer(folder / "ours")
    merges = {name: open_peer(name, folder / f"{name}-merged") for name in ("Delta", "Iceberg")}
    logs = {name: LOGS[name](folder / f"{name}-appended") for name in merges}
    versions = []
    for number in range(stream.shape.commits):
        store.put_all(stream.commit(number))
        versions.append(store.commit())
        merged, appended = stream.merged(number), with_deletes(stream, number)
        for name, peer in merges.items():
            peer.commit(merged)
            logs[name].append(appended)
    store.close()
    middle = len(versions) // 2
    table, reader = statestore.inspect(folder / "ours")[STORE], open_reader(folder / "ours")
    random = np.random.default_rng(2)
    keys = stream.names.take(pa.array(stream.key[random.integers(0, stream.shape.events, ASKED)])).to_pylist()
    questions = [
        Question(
            "row of a key, by version",
            lambda key: cells(table.get(key, version=versions[middle - 1])),
            {"Delta": delta_row(merges["Delta"], middle), "Iceberg": iceberg_row(merges["Iceberg"], middle)},
        ),
        Question(
            "row of a key as of a moment",
            lambda key: values(reader.get(key, as_of=stream.moment(0.5))),
            {name: as_of(log, stream.moment(0.5)) for name, log in logs.items()},
        ),
        Question(
            "history of a key", lambda key: starts(reader, key), {name: history(log) for name, log in logs.items()}
        ),
    ]
    return [*timed(questions, keys, runs), "", *sizes(folder)]


def timed(questions: Sequence[Question], keys: Sequence[str], runs: int) -> list[str]:
    lines = ["| question | statestore, ms | Delta, ms | Iceberg, ms | Delta / statestore | Iceberg / statestore |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for each in questions:
        for key in keys:
            for name, ask in each.peers.items():
                if ask(key) != each.ours(key):
                    raise AssertionError(f"{each.name} {key}: {name} {ask(key)}, ours {each.ours(key)}")
        sides = {"ours": each.ours, **each.peers}
        costs = alternate({name: partial(asked, ask, keys) for name, ask in sides.items()}, runs)
        ms = {name: cost.summary()["cpu_median"] / len(keys) for name, cost in costs.items()}
        shown = [f"{ms[name]:.3g}" for name in ("ours", "Delta", "Iceberg")]
        ratios = [f"{ms[name] / ms['ours']:.0f}" for name in ("Delta", "Iceberg")]
        lines.append(f"| {' | '.join((each.name, *shown, *ratios))} |")
    return lines


def asked(ask: Ask, keys: Sequence[str]) -> list[Any]:
    return [ask(key) for key in keys]


def sizes(folder: Path) -> list[str]:
    found = {path.name: bytes_in(path) for path in sorted(folder.iterdir())}
    ours = found.pop("ours")
    lines = ["| on disk | MB | / statestore |", "| --- | --- | --- |", f"| statestore | {ours / 1e6:.1f} | 1 |"]
    return [*lines, *(f"| {name} | {size / 1e6:.1f} | {size / ours:.1f} |" for name, size in found.items())]


def with_deletes(stream: Stream, number: int) -> pa.Table:
    """Return all changes of a commit with a column ``deleted``."""
    changes = stream.commit(number)
    deleted = pa.array([kind == "delete" for kind in changes["_change_type"].to_pylist()])
    return changes.drop_columns(["_change_type"]).append_column("deleted", deleted)


def cells(row: Mapping[str, Any] | None) -> Any:
    """Return the cells that are compared; None where no row is valid."""
    return None if row is None or row.get("deleted") else (row["price"], row["stock"], row["note"])


def values(record: Any) -> Any:
    """Return the cells of a record of a store that are compared; None where no row is valid."""
    return None if record is None else (record.value["price"], record.value["stock"], record.value["note"])


def starts(store: Any, key: str) -> list[int]:
    """Return the distinct moments at which versions of a key begin."""
    return sorted({record.valid_from for record in store.get_versions(key)})


def newest(rows: pa.Table) -> Any:
    """Return the cells of the row with the greatest time; of equal times, the last."""
    if not rows.num_rows:
        return None
    times = rows["timestamp"].to_numpy()
    return cells(rows.slice(int(np.flatnonzero(times == times.max())[-1]), 1).to_pylist()[0])


class DeltaLog:
    """A Delta table to which each commit appends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ask: Any = None

    def append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self.folder), rows, mode="append")

    def rows(self, key: str, until: int | None) -> pa.Table:
        from deltalake import DeltaTable

        if self.ask is None:
            self.ask = asked_of(DeltaTable(str(self.folder)))
        return self.ask(f"item = '{key}'" + ("" if until is None else f" AND timestamp <= {until}"))


class IcebergLog:
    """An Iceberg table to which each commit appends."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir()
        self.catalog = SqlCatalog("logs", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("logs")
        self.table: Any = None

    def append(self, rows: pa.Table) -> None:
        if self.table is None:
            self.table = self.catalog.create_table("logs.prices", schema=rows.schema)
        self.table.append(rows)

    def rows(self, key: str, until: int | None) -> pa.Table:
        return self.table.scan(f"item = '{key}'" + ("" if until is None else f" AND timestamp <= {until}")).to_arrow()


LOGS: dict[str, Callable[[Path], Any]] = {"Delta": DeltaLog, "Iceberg": IcebergLog}


def delta_row(peer: Any, commits: int) -> Ask:
    from deltalake import DeltaTable

    ask = asked_of(DeltaTable(str(peer.path), version=commits - 1))
    return lambda key: newest(ask(f"item = '{key}'"))


def asked_of(table: Any) -> Callable[[str], pa.Table]:
    """Return a call that reads the rows of a Delta table for which a condition holds.

    deltalake's own engine reads them: its MERGE writes views of texts, which PyArrow's data sets cannot compare.
    """
    from deltalake import QueryBuilder

    opened = QueryBuilder().register("prices", table)
    return lambda condition: pa.table(opened.execute(f"SELECT * FROM prices WHERE {condition}"))


def iceberg_row(peer: Any, commits: int) -> Ask:
    snapshot = peer.snapshots[commits - 1]
    return lambda key: newest(peer.table.scan(f"item = '{key}'", snapshot_id=snapshot).to_arrow())


def as_of(log: Any, moment: int) -> Ask:
    return lambda key: newest(log.rows(key, moment))


def history(log: Any) -> Ask:
    def ask(key: str) -> list[int]:
        """Moments of a deletion begin no version; one of a moment's changes counts, the last to come."""
        rows = log.rows(key, None)
        last = dict(zip(rows["timestamp"].to_pylist(), rows["deleted"].to_pylist(), strict=True))
        return sorted(moment for moment, deleted in last.items() if not deleted)

    return ask


if __name__ == "__main__":
    main()
