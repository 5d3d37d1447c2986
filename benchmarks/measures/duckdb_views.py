"""Queries on an attached DuckDB connection, against DuckDB over a plain mapped file of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import statestore
from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.measures.plain_file import mapped
from benchmarks.measures.workbench import COMPACTED, DELIVERED, STORE, History, Workbench, write_arrow
from benchmarks.results.costs import alternate
from benchmarks.results.figure import Figure, compared

GOAL = 1.5
QUESTIONS = {
    "count": "SELECT count(*) FROM {}",
    "sum": "SELECT sum(price) FROM {}",
    "value filter": "SELECT count(*), sum(stock) FROM {} WHERE price > 9000",
}


def measure(bench: Workbench) -> Iterator[Figure]:
    shape = bench.size.long[10]
    for state in (DELIVERED, COMPACTED):
        yield from measure_store(bench, bench.history(shape, state), f"10x, middle, {state}")


def measure_store(bench: Workbench, history: History, load: str) -> Iterator[Figure]:
    stream = history.stream
    moment = stream.moment(0.5)
    connection = statestore.attach(str(history.path), as_of=moment)
    answer: pa.Table = connection.sql(f"SELECT * FROM {STORE}").to_arrow_table()
    check(stream, answer, live_events(stream, moment), load)
    plain = bench.new_folder("plain").with_suffix(".arrow")
    write_arrow(plain, answer)
    connection.register("plain", mapped(plain).read_all())
    for name, question in QUESTIONS.items():
        sides = {
            source: partial(ask, connection, question.format(table))
            for source, table in (("ours", STORE), ("plain", "plain"))
        }
        if not np.allclose(sides["ours"](), sides["plain"]()):
            raise WrongAnswerError(f"{name} through attach, {load}")
        costs = alternate(sides, bench.runs)
        yield compared(
            "duckdb_views",
            f"{name} through attach",
            costs["ours"],
            costs["plain"],
            goal=GOAL,
            load=load,
            against="plain mapped file",
            details={"live_rows": answer.num_rows},
        )
    connection.close()
    plain.unlink()


def ask(connection: duckdb.DuckDBPyConnection, question: str) -> list[Any]:
    return list(connection.execute(question).fetchall()[0])
