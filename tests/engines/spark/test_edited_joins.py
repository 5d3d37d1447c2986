"""Stream-stream joins of Spark go on from edited copies of their checkpoints as if their state had always been so."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import CHANGELOGS, CHECKSUMS, ROCKSDB, SECOND_FORMAT, conf, opened, rows_of
from support.edited_copies import write_copy
from support.spark_release import skip_unknown

import statestore
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.spark.source import CheckpointSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEGAN = 1_780_000_000  # seconds


def join_format(version: int) -> dict[str, str]:
    return {"spark.sql.streaming.join.stateFormatVersion": str(version)}


LAYOUTS: dict[str, dict[str, str]] = {
    "format 2 in deltas": join_format(2),
    "format 2 in deltas with checksums": join_format(2) | CHECKSUMS,
    "format 2 in zips": join_format(2) | ROCKSDB,
    "format 2 in changelogs": join_format(2) | ROCKSDB | CHANGELOGS,
    "format 2 in changelogs of format 2": join_format(2) | ROCKSDB | CHANGELOGS | SECOND_FORMAT | CHECKSUMS,
    "format 3 in zips": join_format(3) | ROCKSDB,
    "format 3 in changelogs": join_format(3) | ROCKSDB | CHANGELOGS,
    "format 4 in zips": join_format(4) | ROCKSDB,
    "format 4 in changelogs": join_format(4) | ROCKSDB | CHANGELOGS,
    "format 4 in changelogs of format 2": join_format(4) | ROCKSDB | CHANGELOGS | SECOND_FORMAT | CHECKSUMS,
    "format 3 in changelogs of format 2": join_format(3) | ROCKSDB | CHANGELOGS | SECOND_FORMAT | CHECKSUMS,
}
FIRST_LAYOUT = "format 3 in changelogs"
"""The layout of inner joins that also a share of the slow cases has; outer joins have the first one."""
SIDES = ("left", "right")
Row = tuple[str, int, int]
"""The key, a number, the minute of its event."""
FIRST, LATE = 1_000_000, 100_000
"""Minutes from the epoch to the first events, and from these to the last ones."""
Batch = tuple[list[Row], list[Row]]
"""The rows of both sides."""

BEFORE: list[Batch] = [
    ([("a", 1, 0), ("a", 2, 1), ("b", 3, 2), ("c", 4, 3), ("lone", 5, 4)], [("a", 10, 20), ("z", 11, 21)]),
    (
        [("a", 6, 5), ("b", 7, 1), ("d", 8, 0), ("a", 9, 1), ("lone", 15, 4)],
        [("b", 12, 22), ("b", 13, 23), ("a", 14, 20)],
    ),
]
AFTER: list[Batch] = [
    ([("a", 20, 2), ("z", 21, 3), ("new", 22, 1)], [("a", 30, 24), ("c", 31, 20), ("new", 32, 21)]),
    ([("b", 23, 0), ("y", 24, 1)], [("d", 33, 22), ("b", 34, 23), ("y", 35, 24), ("new", 36, 22)]),
]


class Model:
    """The rows of both sides with whether they were matched, and the pairs that were emitted."""

    def __init__(self) -> None:
        self.sides: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.emitted: Counter[tuple[Any, ...]] = Counter()

    def run(self, batches: list[Batch]) -> None:
        for rows in batches:
            for mine, row in [(side, row) for side in range(2) for row in rows[side]]:
                kept = [row, False]
                for other in self.sides[1 - mine]:
                    if other[0][0] == row[0]:
                        kept[1] = other[1] = True
                        pair = (row, other[0]) if mine == 0 else (other[0], row)
                        self.emitted[pair[0][:2] + pair[1][1:2]] += 1
                self.sides[mine].append(kept)

    def state(self) -> list[Counter[Any]]:
        return [Counter((row, matched) for row, matched in rows) for rows in self.sides]

    def pass_watermark(self, *, outer: bool) -> None:
        """All rows are removed, and an outer join emits those of the left that were not matched."""
        for (k, n, _), matched in self.sides[0] if outer else ():
            if not matched:
                self.emitted[k, n, None] += 1
        for rows in self.sides:
            rows.clear()

    def edit(self) -> None:
        """The same as `edits_of`."""
        left, right = self.sides
        left[:] = [each for each in left if each[0] != ("a", 1, 0) and each[0][0] != "d"]
        for each in left:
            if each[0][0] in ("b", "lone"):
                each[0] = (each[0][0], each[0][1] + 1000, each[0][2])
        left += [[("new", 99, 2), False], [("a", 98, 3), False]]
        right[:] = [each for each in right if each[0] != ("b", 12, 22)]
        right += [[("z", 97, 25), False]]


def edits_of(source: CheckpointSource) -> list[StateEdit]:
    def left(rows: list[Row]) -> list[Row]:
        kept = [row for row in rows if row != ("a", 1, 0) and row[0] != "d"]
        changed = [(k, n + 1000, t) if k in ("b", "lone") else (k, n, t) for k, n, t in kept]
        return [*changed, ("new", 99, 2), ("a", 98, 3)]

    def right(rows: list[Row]) -> list[Row]:
        return [*(row for row in rows if row != ("b", 12, 22)), ("z", 97, 25)]

    return [edit_of(source, "left", left), edit_of(source, "right", right)]


def edit_of(source: CheckpointSource, side: str, change: Any) -> StateEdit:
    """An edit of all rows of a side."""
    table = rows_of(source, side)
    keys = [field.name for field in table.schema.field("key").type]
    is_timed = any(row["key"].get("__event_time", 0) >= 1024 for row in table.to_pylist())
    names = [field.name for field in table.schema.field("value").type]
    rows = [tuple(row["value"].values()) for row in table.to_pylist()]
    values = [(k, n, moment(t)) for k, n, t in change([(k, n, minute(t)) for k, n, t in rows])]
    key_values = [(k, int(t.timestamp()) * 1_000_000 if is_timed else 5)[: len(keys)] for k, _, t in values]
    added = [
        {"key": dict(zip(keys, key, strict=True)), "value": dict(zip(names, value, strict=True))}
        for key, value in zip(key_values, values, strict=True)
    ]
    return StateEdit(side, ("key",), table, pa.Table.from_pylist(added, table.schema))


def moment(minutes: int) -> Any:
    return pa.scalar((FIRST + minutes) * 60_000_000, pa.timestamp("us", "UTC")).as_py()


def minute(time: Any) -> int:
    return int(time.timestamp()) // 60 - FIRST


def run(spark: SparkSession, folder: Path, checkpoint: Path, batches: Sequence[Batch], how: str) -> None:
    """Run a join over further files of rows, one file of each side a batch."""
    for batch in batches:
        for side, rows in zip(SIDES, batch, strict=True):
            inputs = folder / side
            inputs.mkdir(exist_ok=True)
            text = "".join(json.dumps({"k": k, "n": n, "t": moment(t).isoformat()}) + "\n" for k, n, t in rows)
            number = len(list(inputs.iterdir()))
            (inputs / f"{number:03d}.json").write_text(text)
            os.utime(inputs / f"{number:03d}.json", (_BEGAN + number, _BEGAN + number))  # the order of batches
    left, right = (_stream(spark, folder / side, side[0], how) for side in SIDES)
    condition = "lk = rk"
    if how != "inner":
        condition += " AND rt >= lt AND rt <= lt + interval 2 hours"
    from pyspark.sql.functions import expr

    joined = left.join(right, expr(condition), how).select("lk", "ln", "lt", "rn", "rt")  # all are in the state
    writer = joined.writeStream.outputMode("append").format("json").option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def _stream(spark: SparkSession, inputs: Path, side: str, how: str) -> DataFrame:
    schema = "k string, n bigint, t timestamp"
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(inputs))
    rows = rows.toDF(f"{side}k", f"{side}n", f"{side}t")
    return rows if how == "inner" else rows.withWatermark(f"{side}t", "1 hour")


def emitted(folder: Path) -> Counter[tuple[Any, ...]]:
    rows = [json.loads(line) for file in (folder / "out").glob("*.json") for line in file.open()]
    return Counter((row["lk"], row["ln"], row.get("rn")) for row in rows)


def ours(checkpoint: Path) -> list[Counter[Any]]:
    """The rows of both sides, without whether they were matched."""
    found = []
    for side in SIDES:
        rows = statestore.inspect(checkpoint).table(side).scan().read_all().to_pylist()
        found.append(Counter((k, n, minute(t)) for k, n, t in (row["value"].values() for row in rows)))
    return found


def theirs(spark: SparkSession, checkpoint: Path) -> list[Counter[Any]]:
    found = []
    for side in SIDES:
        reader = spark.read.format("statestore").option("provider", "builtin").option("joinSide", side)
        rows = [tuple(row.value) for row in reader.load(str(checkpoint)).collect()]
        epoch = moment(0).replace(tzinfo=None)
        found.append(Counter((k, n, int((t - epoch).total_seconds()) // 60) for k, n, t in rows))
    return found


def without_flags(state: list[Counter[Any]]) -> list[Counter[Any]]:
    return [Counter(row for row, _ in rows.elements()) for rows in state]


def copy_with_edits(folder: Path) -> None:
    source = opened(folder / "source")
    plan = source.edit_plan(source.newest("left"), edits_of(source), EditOptions())
    write_copy(plan, folder / "target")


@pytest.mark.slow
@pytest.mark.parametrize("layout", sorted(LAYOUTS, key=FIRST_LAYOUT.__ne__))
def test_an_inner_join_goes_on_from_the_edited_state(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout] | {"spark.sql.session.timeZone": "UTC"}):
        model = Model()
        model.run(BEFORE)
        run(spark, tmp_path, tmp_path / "source", BEFORE, "inner")
        assert ours(tmp_path / "source") == without_flags(model.state())
        model.edit()
        copy_with_edits(tmp_path)
        assert ours(tmp_path / "target") == without_flags(model.state()) == theirs(spark, tmp_path / "target")
        model.run(AFTER)
        run(spark, tmp_path, tmp_path / "target", AFTER, "inner")
        assert ours(tmp_path / "target") == without_flags(model.state()) == theirs(spark, tmp_path / "target")
        assert emitted(tmp_path) == model.emitted


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_outer_join_emits_what_was_never_matched(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    """Rows that were changed stay matched; those that were added are matched by later rows only."""
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout] | {"spark.sql.session.timeZone": "UTC"}):
        model = Model()
        model.run(BEFORE)
        run(spark, tmp_path, tmp_path / "source", BEFORE, "left_outer")
        assert ours(tmp_path / "source") == without_flags(model.state())
        model.edit()
        copy_with_edits(tmp_path)
        model.run(AFTER)
        run(spark, tmp_path, tmp_path / "target", AFTER, "left_outer")
        assert ours(tmp_path / "target") == without_flags(model.state())
        assert emitted(tmp_path) == model.emitted
        model.pass_watermark(outer=True)
        last: list[Batch] = [([("last", 1, LATE)], [("last", 2, LATE)])]
        model.run(last)
        run(spark, tmp_path, tmp_path / "target", last, "left_outer")
        assert ours(tmp_path / "target") == without_flags(model.state())
        assert emitted(tmp_path) == model.emitted
