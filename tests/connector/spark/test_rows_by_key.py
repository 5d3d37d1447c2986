"""Bulk imports whose rows are moved by ranges of key groups: the same history, and no key in two tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import statestore
from statestore.catalog.commits.parts.publish_parts import commit_parts
from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.stores.versioned import task_writes
from statestore.connector.spark import frame_writer
from statestore.formats.values.key_hash import hash_keys, key_groups_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000


def made(warehouse: Path, name: str, retention: int | None = None) -> str:
    catalog = statestore.connect(warehouse)
    catalog.create_store(
        name, key={"k": "string", "n": "int"}, value={"v": "bigint"}, history_retention=retention
    ).close()
    return str(warehouse / name)


def history(path: str) -> list[str]:
    with statestore.connect(Path(path).parent).open_store(Path(path).name) as store:
        return sorted(map(repr, store.history().read_all().to_pylist()))


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Rows of which many have one key and one time, the last of which counts; some delete."""
    return spark.range(0, rows, 1, 3).selectExpr(
        "concat('k', id % 500) AS k",
        "CAST(id % 7 AS int) AS n",
        "id AS v",
        f"{T0} + id % 11 * 1000 AS timestamp",
        "IF(id % 13 = 5, 'delete', 'insert') AS _change_type",
    )


def append(rows: DataFrame, path: str, **options: str) -> None:
    rows.write.format("statestore").mode("append").options(**options).save(path)


@pytest.mark.slow
def test_the_history_is_that_of_a_plain_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[Sequence[StagedPart]] = []

    def counting(files: Any, base: Any, given: Sequence[StagedPart], *others: Any) -> Any:
        parts.append(given)
        return commit_parts(files, base, given, *others)

    monkeypatch.setattr("statestore.catalog.stores.versioned.natural_versioned.commit_parts", counting)
    monkeypatch.setattr(task_writes, "MIN_ROWS", 100)
    rows = frame(spark, 40_000)
    plain, moved = made(tmp_path, "plain"), made(tmp_path, "moved")
    append(rows, plain)
    append(rows, moved, byKeyGroups="true")
    assert history(moved) == history(plain) != []
    ranges = sorted(meta.key_groups for part in parts[-1] if (meta := part.values) is not None)
    assert len(ranges) > 1
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
    operations = statestore.inspect(moved).table("moved$versions").scan(columns=["operation"]).read_all()
    assert operations["operation"].to_pylist().count("write") == 1
    assert not (Path(moved) / "staging").exists()


def test_a_retention_judges_rows_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, 3_000)
    plain, moved = made(tmp_path, "plain", 5_000), made(tmp_path, "moved", 5_000)
    append(rows, plain)
    append(rows, moved, byKeyGroups="true")
    assert history(moved) == history(plain) != []


def test_wrong_options_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = made(tmp_path, "s"), frame(spark, 100)
    with pytest.raises(AnalysisException, match="byKeyGroups"):
        append(rows, path, byKeyGroups="yes")
    with pytest.raises(AnalysisException, match="NULL_KEY"):
        append(rows.selectExpr("null AS k", "n", "v", "timestamp"), path, byKeyGroups="true")
    assert history(path) == []


def test_each_task_has_a_range_of_key_groups() -> None:
    texts, numbers = [f"k{n}" for n in range(2_000)], list(range(2_000))
    batch = pa.record_batch({"N": pa.array(numbers, pa.int32()), "K": pa.array(texts, pa.large_string())})
    key = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int32())])
    tasks = frame_writer.task_numbers(batch, key, 128, 5)
    groups = key_groups_of(hash_keys([pa.array(texts), pa.array(numbers, pa.int32())]), 128)
    order = np.argsort(groups, kind="stable")
    assert (np.diff(tasks[order]) >= 0).all() and set(tasks.tolist()) == set(range(5))
    assert len(set(zip(groups.tolist(), tasks.tolist(), strict=True))) == len(set(groups.tolist()))
