"""Every checkpoint is the same state after an edit without statements, by our reader and by Spark's own.

Where it is known which query wrote a checkpoint, the query goes on from the copy as from the original.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.archives import unpacked
from support.checkpoints.running_queries import content, run
from support.parameters import mostly_slow
from support.paths import DATA
from support.spark_release import since

import statestore
from statestore.formats.errors import StateStoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = since(4, 1, "the engine's own reader of edits")
ARCHIVES = (
    "checkpoints", "more_checkpoints", "repartitioned_checkpoints", "evolved_checkpoints", "types", "zeros",
    "deduplication_3.3.0",
)  # fmt: skip
UNREAD = {
    "deduplication_3.3.0/deduplication/hdfs": {"state"},
    "deduplication_3.3.0/deduplication/rocksdb": {"state"},
    "repartitioned_checkpoints/checkpoints/keyless__cl": {"state"},
    "repartitioned_checkpoints/checkpoints/keyless__f2": {"state"},
    "more_checkpoints/checkpoints/spark3.5.9-session__rkcl": {"state"},
    "more_checkpoints/checkpoints/spark4.1.4-scalagroups1__hdfs": {"state"},
    "more_checkpoints/checkpoints/spark4.1.4-time__hdfs": {"state"},
    "more_checkpoints/checkpoints/spark4.1.4-types__rkav": {"l_by"},
}
"""States that Spark's own reader does not read: of releases, schemas and types that it does not know."""
OF_AVRO = "more_checkpoints/checkpoints/spark4.1.4-types__rkav"
"""Spark does not read back all types that it writes in Avro."""
FIRST = "checkpoints/checkpoints/spark4.3.0-dedup__hdfs"
COLUMNS = "k string, id bigint, ts timestamp, n bigint, x double, s string, rk string, rid bigint, rts timestamp"


def _aggregated(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(*_expressions("count(*) c", "sum(n) n", "avg(x) x", "max(s) s"))


def _in_windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import window

    timed = rows.withWatermark("ts", "10 minutes")
    return timed.groupBy(window("ts", "5 minutes"), "k").agg(*_expressions("count(*) c", "sum(n) n"))


def _in_two_windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import window

    timed = rows.withWatermark("ts", "10 minutes").groupBy(window("ts", "2 minutes"), "k")
    counted = timed.agg(*_expressions("count(*) c", "sum(n) n"))
    return counted.groupBy(window("window", "10 minutes")).agg(*_expressions("sum(c) c", "max(n) n"))


def _in_sessions(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import session_window

    timed = rows.withWatermark("ts", "10 minutes").groupBy(session_window("ts", "2 minutes"), "k")
    return timed.agg(*_expressions("count(*) c", "sum(n) n"))


def _deduplicated(rows: DataFrame) -> DataFrame:
    return rows.select("k", "ts").withWatermark("ts", "15 minutes").dropDuplicates(["k", "ts"])


def _deduplicated_within(rows: DataFrame) -> DataFrame:
    return rows.select("k", "id", "ts").withWatermark("ts", "15 minutes").dropDuplicatesWithinWatermark(["k", "id"])


def _joined(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import expr

    left = rows.where("rk IS NULL").select("k", "id", "ts", expr("n AS v")).withWatermark("ts", "10 minutes")
    right = rows.where("rk IS NOT NULL").select("rk", "rid", "rts", expr("x AS rv")).withWatermark("rts", "10 minutes")
    near = "k = rk AND id = rid AND rts BETWEEN ts - INTERVAL 5 MINUTES AND ts + INTERVAL 5 MINUTES"
    return left.join(right, expr(near), "left_outer")


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "agg": (_aggregated, "update"),
    "chain": (_in_two_windows, "append"),
    "dedup": (_deduplicated, "append"),
    "dedupw": (_deduplicated_within, "append"),
    "join": (_joined, "append"),
    "sess": (_in_sessions, "append"),
    "win": (_in_windows, "append"),
}
"""The queries that wrote checkpoints, by the first word of their names, and the modes of their output."""


def checkpoints() -> dict[str, Path]:
    """All checkpoints of the archives with committed state."""
    found: dict[str, Path] = {}
    for archive in ARCHIVES:
        root = unpacked(DATA / "spark" / f"{archive}.tar.xz")
        places = {each.parent for each in root.rglob("commits") if (each.parent / "state").is_dir()}
        found |= {f"{archive}/{place.relative_to(root)}": place for place in sorted(places)}
    return {FIRST: found[FIRST]} | found


PLACES = checkpoints()


def rows_of(path: Path) -> dict[str, Counter[str] | str]:
    """The rows of all states; the code of the error of those that cannot be read."""
    found: dict[str, Counter[str] | str] = {}
    opened = statestore.inspect(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of states without schemas
        for name in opened.tables():
            try:
                found[name] = Counter(map(repr, opened.table(name).scan().read_all().to_pylist()))
            except StateStoreError as error:
                found[name] = error.code
    return found


def metadata_of(spark: SparkSession, path: Path | str) -> list[Any]:
    """What Spark's own source says of the stores of a checkpoint."""
    return sorted(map(repr, spark.read.format("state-metadata").load(str(path)).collect()))


def restarted(spark: SparkSession, folder: Path, checkpoint: Path, job: str) -> dict[str, Counter[str] | str]:
    """The rows of all states after the query went on with two batches, of known and of new keys."""
    table = statestore.inspect(checkpoint)
    keys = sorted({key for name in table.tables() for key in _keys(table.table(name).scan().read_all().to_pylist())})
    known = [*keys[:: max(1, len(keys) // 5)], ("new", 7)]
    batches = []
    for minute in ("00:58", "02:10"):
        rows = []
        for number, (k, ident) in enumerate(known):
            time = f"2024-01-01T{minute}:{number:02d}Z"
            rows.append({"k": k, "id": ident, "ts": time, "n": number, "x": 0.5, "s": "z"})
            rows.append({"rk": k, "rid": ident, "rts": time, "x": 1.5, "ts": time} if job == "join" else rows[-1])
        batches.append(rows)
    result, mode = QUERIES[job]
    folder.mkdir()
    for log in checkpoint.glob("sources/*/[0-9]*"):  # Spark looks where the last files were, and does not read them
        log.write_text(log.read_text().replace("file:///data/src/main", (folder / "rows").as_uri()))
    run(spark, folder, checkpoint, COLUMNS, batches, result, mode)
    return rows_of(checkpoint)


def _keys(rows: list[dict[str, Any]]) -> Iterable[tuple[str, int]]:
    """The key and the number of each row that has one."""
    for row in rows:
        fields = {**row["key"], **(row["value"] if "k" in row["value"] else {})}
        if fields.get("k") is not None:
            yield fields["k"], fields.get("id", 0)


def test_every_archive_is_named() -> None:
    assert {path.name for path in (DATA / "spark").glob("*.xz")} == {f"{name}.tar.xz" for name in ARCHIVES}


@pytest.mark.parametrize("name", mostly_slow(list(PLACES), []))
def test_a_copy_without_statements_is_the_same_state(
    spark: SparkSession, tmp_path: Path, copy_for_spark: Callable[[str | Path], str], name: str
) -> None:
    source, target = PLACES[name], tmp_path / "target"
    before = content(source)
    with statestore.edit(source, target, with_engine=True) as edit:
        pass
    assert content(source) == before
    assert rows_of(target) == rows_of(source) and rows_of(target)
    assert edit.receipt is not None
    files = {path: digest for path, digest in content(target).items() if path != "edit.json"}
    assert {*files} <= {*before}, "Spark's reader left something"
    notes = edit.receipt.notes
    unread = {note.split()[3] for note in notes if "are unconfirmed by Spark" in note}
    expected = UNREAD.get(name, set())
    assert unread >= expected and (unread == expected or name == OF_AVRO), notes
    told = [note for note in notes if ": confirmed by Spark" in note]
    named = {state for note in told for state in note.partition(":")[0].split(", ")}
    assert named | unread == {*statestore.inspect(source).tables()}, notes
    original = Path(copy_for_spark(source))
    assert metadata_of(spark, target) == metadata_of(spark, original)
    job = source.name.partition("-")[2].partition("__")[0]
    if name.startswith("checkpoints/") and job in QUERIES:
        after = restarted(spark, tmp_path / "from the original", original, job)
        assert restarted(spark, tmp_path / "from the copy", target, job) == after
        assert any(rows != after[state] for state, rows in rows_of(source).items())
