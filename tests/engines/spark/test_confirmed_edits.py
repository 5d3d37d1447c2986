"""Every checkpoint is the same state after an edit without statements, by our reader and by Spark's own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.archives import unpacked
from support.checkpoints.running_queries import content
from support.parameters import mostly_slow
from support.paths import DATA

import statestore
from statestore.formats.errors import StateStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert metadata_of(spark, target) == metadata_of(spark, copy_for_spark(source))
