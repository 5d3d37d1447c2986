"""Delta, Iceberg, Lance and DuckDB beside the store: the same commits, reads by version, and the disk."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import statestore
from benchmarks.loads.oracle import check, live_events
from benchmarks.loads.stream import COLUMNS, Stream
from benchmarks.measures.plain_file import copy
from benchmarks.measures.workbench import (
    COMPACTED,
    DELIVERED,
    STORE,
    History,
    Workbench,
    bytes_in,
    compacted_copy,
    open_reader,
    open_writer,
    write_arrow,
)
from benchmarks.peers.peer import MODULES, Peer, absence, open_peer
from benchmarks.results.costs import Costs, alternate
from benchmarks.results.figure import Figure, compared

READ_GOAL, DISK_GOAL = 8.0, 0.2
OURS, BY_TIME = "statestore", "statestore, by state time"


@dataclass(frozen=True)
class Written:
    """The store and the peers after all commits: ``versions[n]`` is the store's version after n + 1 commits."""

    stream: Stream
    ours: Path
    versions: list[int]
    peers: dict[str, Peer]
    folders: dict[str, Path]
    costs: dict[str, Costs]


def measure(bench: Workbench) -> Iterator[Figure]:
    chosen = [name for name in MODULES if name in (bench.peers or MODULES)]
    reasons = {name: absence(name) for name in chosen}
    bench.absent += [reason for reason in reasons.values() if reason]
    written = write(bench, [name for name, reason in reasons.items() if reason is None])
    load = f"{bench.size.peers.factor}x, {len(written.versions)} commits of {bench.size.peers.commit_rows:,}"
    yield from commits(written, load)
    history = History(written.stream, written.ours, Costs(), Costs(), Costs(), 0.0)
    compacted = compacted_copy(history, bench.new_folder("compacted"))
    yield from disk(written, compacted.path, load, bench.new_folder("latest"))
    yield from reads(bench, written, compacted.path, load)
    for peer in written.peers.values():
        peer.close()


def write(bench: Workbench, names: list[str]) -> Written:
    """Give each commit to the store and all peers in turn."""
    stream = Stream(bench.size.peers, bench.seed)
    folder = bench.new_folder("peers")
    store = open_writer(folder / "ours")
    folders = {name: folder / name for name in names}
    peers = {name: open_peer(name, path) for name, path in folders.items()}
    costs = {name: Costs() for name in ("raw", OURS, *names)}
    versions: list[int] = []
    for number in range(stream.shape.commits):
        changes, upserts, merged = stream.commit(number), stream.raw(number), stream.merged(number)
        costs["raw"].add(partial(write_arrow, folder / "raw.arrow", upserts))
        versions.append(costs[OURS].add(partial(put_and_commit, store, changes)))
        for name, peer in peers.items():
            costs[name].add(partial(peer.commit, merged))
    store.close()
    return Written(stream, folder / "ours", versions, peers, folders, costs)


def put_and_commit(store: Any, changes: pa.Table) -> int:
    store.put_all(changes)
    return int(store.commit())


def commits(written: Written, load: str) -> Iterator[Figure]:
    for name, costs in written.costs.items():
        if name != "raw":
            raw = written.costs["raw"]
            yield compared("peers", f"commit, {name}", costs, raw, "wall", load=load, against="raw Arrow write")


def disk(written: Written, compacted: Path, load: str, folder: Path) -> Iterator[Figure]:
    """Compare bytes with those of the newest rows in Parquet with zstd, and ours with Delta's."""
    folder.mkdir()
    latest = folder / "latest.parquet"
    pq.write_table(written.stream.rows(live_events(written.stream)).select(COLUMNS), latest, compression="zstd")
    store = statestore.connect(compacted).open_store(STORE)
    store.vacuum(older_than=0)
    store.close()
    sizes = {
        OURS: bytes_in(written.ours),
        "statestore, compacted and vacuumed": bytes_in(compacted),
        **{name: bytes_in(path) for name, path in written.folders.items()},
    }
    for name, size in sizes.items():
        value = round(size / latest.stat().st_size, 2)
        details = {"bytes": size}
        yield Figure("peers", f"disk, {name}", value, load=load, against="newest rows, zstd Parquet", details=details)
    if "Delta" in sizes:
        for name in list(sizes)[:2]:
            value = round(sizes[name] / sizes["Delta"], 3)
            yield Figure("peers", f"disk, {name}", value, DISK_GOAL, load=load, against="Delta, MERGE")


def reads(bench: Workbench, written: Written, compacted: Path, load: str) -> Iterator[Figure]:
    """Read all rows of the state after some commits: ours and the peers', each open before.

    The compacted store is a copy of the other one, and a process keeps one log for both, so they take turns with the
    peers one after the other.
    """
    for state, path in ((DELIVERED, written.ours), (COMPACTED, compacted)):
        store = open_reader(path)
        count = len(written.versions)
        for label, number in (("old", max(count // 10, 1)), ("middle", max(count // 2, 1)), ("now", count)):
            expected = dict.fromkeys((OURS, *written.peers), live_events(written.stream, commits=number))
            moment = written.stream.moment(number / count)
            expected[BY_TIME] = live_events(written.stream, moment)
            sides: dict[str, Callable[[], pa.RecordBatchReader]] = {
                OURS: partial(store.scan, version=written.versions[number - 1], columns=COLUMNS),
                BY_TIME: partial(store.scan, as_of=moment, columns=COLUMNS),
                **{name: peer.at(number) for name, peer in written.peers.items()},
            }
            for name, read in sides.items():
                check(written.stream, read().read_all(), expected[name], f"{name}, {label}")
            costs = alternate({name: partial(copied, read) for name, read in sides.items()}, bench.runs)
            yield from beside_ours(costs, label, f"{load}, {state}", len(expected[OURS]))
        store.close()


def copied(read: Callable[[], pa.RecordBatchReader]) -> int:
    return copy(read())


def beside_ours(costs: dict[str, Costs], label: str, load: str, live: int) -> Iterator[Figure]:
    """Yield the cost of each peer beside ours, and the best of them with the goal."""
    ours, by_time = costs.pop(OURS), costs.pop(BY_TIME)
    details = {"live_rows": live}
    for name, side in costs.items():
        title = f"read by version, {label}, {name}"
        yield compared("peers", title, side, ours, load=load, against=OURS, details=details)
    if costs:
        best = min(costs, key=lambda name: statistics.median(costs[name].cpu))
        for title, side, against in (("by version", ours, OURS), ("as of a moment", by_time, BY_TIME)):
            yield compared(
                "peers",
                f"read {title}, {label}, the best peer",
                costs[best],
                side,
                goal=READ_GOAL,
                load=load,
                against=against,
                at_least=True,
                details={**details, "best": best},
            )
