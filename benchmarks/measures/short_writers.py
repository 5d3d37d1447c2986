"""Reads of the newest rows after each of several short-lived writers, and what closing their handles costs.

Each writer is a process of its own that opens the store, commits three changes for each hundred keys, and closes it:
``python -m benchmarks.measures.short_writers WAREHOUSE SIZE SEED COMMIT``. The figures are means over all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import statestore
from benchmarks.loads.sizes import SIZES, Size
from benchmarks.loads.stream import Shape, Stream
from benchmarks.measures.reads import Moment, over_stops
from benchmarks.measures.workbench import STORE, Workbench, open_writer, segments
from benchmarks.results.costs import Costs
from benchmarks.results.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
WRITERS = 12
CHANGED = 33  # keys for each change of a writer
COPY_GOAL, AGGREGATE_GOAL, CLOSE_GOAL = 1.2, 1.1, 500.0
LABEL = "after a short-lived writer"


def measure(bench: Workbench) -> Iterator[Figure]:
    stream = Stream(shape_of(bench.size), bench.seed)
    path, first = bench.new_folder("short"), stream.shape.commits - WRITERS
    store = open_writer(path)
    for number in range(first):
        store.put_all(stream.commit(number))
        store.commit()
    store.close()
    load = f"{stream.shape.keys:,} keys, commits of {stream.shape.commit_rows:,}"
    copies, aggregates, closings = [], [], []
    for number in range(first, stream.shape.commits):
        said = write_apart(path, bench, number)
        moment = Moment(bench, stream, path, LABEL, None, number + 1)
        copies.append(replace(moment.copy(load, COPY_GOAL), measure="short_writers"))
        aggregates.append(replace(moment.aggregate(load, AGGREGATE_GOAL), measure="short_writers"))
        closings.append(said["close_cpu"] / moment.rows * 1_000_000)
        moment.close()
    yield over_stops(copies)
    yield over_stops(aggregates)
    yield Figure(
        "short_writers",
        "close() of a short-lived writer, CPU for a million live rows",
        round(statistics.median(closings), 1),
        CLOSE_GOAL,
        load=load,
        unit="ms",
        details={"stops": [round(cost, 1) for cost in closings], "segments": segments(path)},
    )


def shape_of(size: Size) -> Shape:
    """The shape of the stream: as many keys as in the history that is read, two changes a key."""
    keys = size.long[10].keys
    return Shape(keys, 2, max(keys // CHANGED, 1))


def write_apart(path: Path, bench: Workbench, number: int) -> dict[str, float]:
    """Write one commit in a process of its own; return what that and closing cost."""
    words = [str(path), bench.size.name, str(bench.seed), str(number)]
    command = [sys.executable, "-m", "benchmarks.measures.short_writers", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def write(path: Path, size: str, seed: int, number: int) -> dict[str, float]:
    changes = Stream(shape_of(SIZES[size]), seed).commit(number)
    store = statestore.connect(path).open_store(STORE)
    commit, closing = Costs(), Costs()
    commit.add(lambda: (store.put_all(changes), store.commit()))
    closing.add(store.close)
    return {
        "commit": commit.wall[0],
        "commit_cpu": commit.cpu[0],
        "close": closing.wall[0],
        "close_cpu": closing.cpu[0],
    }


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
