"""Queries of Spark go on from compacted copies of their checkpoints, and a person that was erased is in no file.

Spark makes a checkpoint in which one key and its values have bytes that nothing else has. It is deleted in a compacted
copy, from which the query goes on: its state is that of a plain model, by Spark's own reader and by ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import LAYOUTS, conf, content, opened, rows_of, run
from support.parameters import mostly_slow
from support.plain_files import files_with
from support.spark_release import skip_unknown

from statestore.catalog.edits.apply import apply_edit
from statestore.formats.edits import EditOptions, StateEdit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[str, int]]
PERSON, SECRET = "Zaphod Beeblebrox", 0x1122334455667788
TRACES = {PERSON.encode(), SECRET.to_bytes(8, "little"), SECRET.to_bytes(8, "big")}
BEFORE: list[Rows] = [
    [("a", 1), (PERSON, SECRET), ("b", 2), ("c", 3)],
    [("a", 10), ("d", 5), (PERSON, 0)],
    [("b", 20), ("e", 8), ("a", 100)],
]
AFTER: list[Rows] = [[("a", 1000), ("f", 9)], [("c", 30), ("f", 1)], [("a", 2), ("g", 40)]]
LAST: list[Rows] = [[("a", 5), ("d", 6), ("h", 7)]]
OTHERS = [{}, {"partitions": "5"}, {"provider": "rocksdb"}]
CASES = [(layout, {"compact": "true", **others}) for others in OTHERS for layout in LAYOUTS]
NAMED = {f"{layout}, {' '.join(settings)}": (layout, settings) for layout, settings in CASES}
QUICK = ["changelogs, compact partitions"]


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg({"*": "count", "n": "sum"})


def counts(batches: Iterable[Rows]) -> list[tuple[Any, ...]]:
    found: dict[str, tuple[int, int]] = {}
    for k, n in (row for batch in batches for row in batch):
        count, total = found.get(k, (0, 0))
        found[k] = count + 1, total + n
    return sorted((k, *values) for k, values in found.items())


def go(spark: SparkSession, folder: Path, checkpoint: Path, batches: list[Rows]) -> None:
    rows = [[{"k": k, "n": n} for k, n in batch] for batch in batches]
    run(spark, folder, checkpoint, "k string, n bigint", rows, counted)


def ours(checkpoint: Path) -> list[tuple[Any, ...]]:
    return sorted((*row["key"].values(), *row["value"].values()) for row in rows_of(opened(checkpoint)).to_pylist())


def theirs(spark: SparkSession, checkpoint: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.format("statestore").option("provider", "builtin").load(str(checkpoint)).collect()
    return sorted((row.key.k, *row.value) for row in rows)


@pytest.mark.parametrize("case", mostly_slow(list(NAMED), QUICK))
def test_a_query_goes_on_without_a_trace_of_a_person(spark: SparkSession, tmp_path: Path, case: str) -> None:
    layout, settings = NAMED[case]
    skip_unknown(layout)
    source, target = tmp_path / "source", tmp_path / "target"
    without = [[row for row in rows if row[0] != PERSON] for rows in BEFORE]
    with conf(spark, {**LAYOUTS[layout], "spark.sql.shuffle.partitions": "2"}):
        go(spark, tmp_path, source, BEFORE)
        assert ours(source) == counts(BEFORE) and files_with(source, TRACES)
        was, found = content(source), opened(source)
        rows = rows_of(found)
        person = rows.filter(pa.array([key["k"] == PERSON for key in rows["key"].to_pylist()]))
        edit = StateEdit("state", ("key",), person, person.slice(1))
        apply_edit(
            found, found.newest("state"), [edit], target, EditOptions(settings=settings), statements=(f"-- {PERSON}",)
        )
        assert files_with(target, TRACES) == set()
        assert ours(target) == counts(without) == theirs(spark, target)

        go(spark, tmp_path, target, AFTER)
        assert ours(target) == counts([*without, *AFTER]) == theirs(spark, target)
        go(spark, tmp_path, target, LAST)
        assert ours(target) == counts([*without, *AFTER, *LAST]) == theirs(spark, target)
        assert files_with(target, TRACES) == set() and content(source) == was
