"""The change feed of one commit, of five, and of a tenth of the history, and the memory of one of most of it.

What it costs to copy the rows is what it costs to copy the same rows out of a plain Arrow file, and DuckDB's read of
them as Parquet stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import statestore
from benchmarks.loads.oracle import WrongAnswerError
from benchmarks.loads.stream import COLUMNS, Stream
from benchmarks.measures import child
from benchmarks.measures.plain_file import copy, mapped
from benchmarks.measures.workbench import COMPACTED, DELIVERED, STORE, History, Workbench, open_reader, write_arrow
from benchmarks.results.costs import alternate
from benchmarks.results.figure import Figure, compared

GOALS = {"one commit": 4.0, "five commits": 2.0, "a tenth": 2.0}
MEMORY_GOAL = 256.0


def measure(bench: Workbench) -> Iterator[Figure]:
    for state in (DELIVERED, COMPACTED):
        yield from measure_store(bench, bench.history(bench.size.long[10], state), f"10x, {state}")


def measure_store(bench: Workbench, history: History, load: str) -> Iterator[Figure]:
    store = open_reader(history.path)
    commits = versions_of_commits(history.path)
    middle = len(commits) // 2
    plain, parquet = (bench.new_folder("plain").with_suffix(suffix) for suffix in (".arrow", ".parquet"))
    for name, count in (("one commit", 1), ("five commits", 5), ("a tenth", max(len(commits) // 10, 1))):
        count = min(count, len(commits) - middle)
        first, last = commits[middle], commits[middle + count - 1]
        answer = store.changes(start_version=first, end_version=last).read_all()
        check_changes(history.stream, range(middle, middle + count), answer, f"{name}, {load}")
        write_arrow(plain, answer)
        pq.write_table(answer, parquet)
        sides: dict[str, Callable[[], Any]] = {
            "ours": partial(feed, store, first, last),
            "plain": lambda: copy(mapped(plain)),
            "parquet": partial(query, parquet),
        }
        costs = alternate(sides, bench.runs)
        details = {"rows": answer.num_rows, "parquet_ms": costs["parquet"].summary()}
        fields: dict[str, Any] = {"load": load, "details": details}
        against = "copy of a plain Arrow file of these changes"
        yield compared(
            "changes", f"changes, {name}", costs["ours"], costs["plain"], goal=GOALS[name], against=against, **fields
        )
        yield compared(
            "changes", f"changes, {name}, DuckDB", costs["parquet"], costs["plain"], against=against, load=load
        )
    store.close()
    for file in (plain, parquet):
        file.unlink()
    ended = child.run("changes", history.path)
    yield Figure(
        "changes",
        "memory of changes",
        round(ended.grown / (1 << 20), 1),
        goal=MEMORY_GOAL,
        load=load,
        unit="MiB",
        details=ended.said or {},
    )


def feed(store: statestore.VersionedStore, first: int, last: int) -> int:
    changes = store.changes(start_version=first, end_version=last)
    return copy(pa.RecordBatchReader.from_batches(changes.schema, changes))


def query(file: Path) -> int:
    found = duckdb.sql(f"SELECT * FROM read_parquet('{file}')")
    assert found is not None
    return int(found.to_arrow_table().num_rows)


def versions_of_commits(path: Path) -> list[int]:
    """The versions that added rows, in the order of the commits."""
    found = statestore.sql(str(path), f'SELECT version FROM "{STORE}$versions" WHERE rows > 0 ORDER BY version')
    return [int(version) for version in found["version"].to_pylist()]


def check_changes(stream: Stream, commits: range, answer: pa.Table, what: str) -> None:
    """Compare the values that a feed adds with those of the stream: of each key and time of a commit the last to
    come."""
    found = answer.filter(pc.is_in(answer["_change_type"], pa.array(["insert", "update_postimage"])))
    expected = []
    for number in commits:
        first = number * stream.shape.commit_rows
        events = np.arange(first, first + stream.shape.commit_rows)[::-1]
        _, last = np.unique(np.stack([stream.key[events], stream.time[events]]), axis=1, return_index=True)
        events = events[last]
        expected.append(stream.rows(events[~stream.deleted[events]]))
    truth = pa.concat_tables(expected)
    found = found.append_column("timestamp", pc.divide(found["valid_from"].cast(pa.int64()), 1_000))
    order = [("timestamp", "ascending"), ("item", "ascending"), ("price", "ascending")]
    names = [*COLUMNS, "timestamp"]
    ours, theirs = (table.select(names).sort_by(order).combine_chunks() for table in (found, truth))
    if not ours.cast(theirs.schema).equals(theirs):
        raise WrongAnswerError(f"changes, {what}: {ours.num_rows} values were added, {theirs.num_rows} in the stream")
