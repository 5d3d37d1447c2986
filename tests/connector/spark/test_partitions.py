"""Partitions that Spark reads in other processes keep their files, as long as the planner lives or for a time.

A query that was planned before a type was widened reads the values that its type holds, and refuses others.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, FloatType, IntegerType, LongType, StructField, StructType
from support.stores.versioned_checks import as_table, create

import statestore
from statestore.catalog.log.leases import FOLDER, leased_versions
from statestore.catalog.reads.segment_files import _shared
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.connector.options import StreamStart
from statestore.connector.spark.partitions import TablePartition, read_partition
from statestore.connector.spark.schema import spark_schema
from statestore.connector.spark.source import StateStoreStreamReader, TableReader
from statestore.formats.state_table import Query, StateTable

STATE, CHANGES = Query(columns=("k", "v")), Query(mode="changes", columns=("k", "v"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VersionedStore]:
    create(statestore.connect(tmp_path)).close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as found:
        found.write(as_table([("a", 1, 2), ("b", 2, 3)]))
        found.write(as_table([("a", 4, 8), ("b", None, 9)]))
        yield found


def root(store: VersionedStore) -> Path:
    return Path(store._storage.root)  # type: ignore[attr-defined]


def replace_all(store: VersionedStore) -> None:
    store.write(as_table([("a", 7, 20)]))
    store.compact(full=True)
    store.vacuum()
    _shared.clear()


def rows_in_tasks(reader: Any, partitions: Any) -> list[tuple[Any, ...]]:
    """What tasks in other processes read, sorted."""
    found = []
    for sent in [pickle.dumps((reader, partition)) for partition in partitions]:
        there, partition = pickle.loads(sent)
        found += [tuple(row.values()) for batch in there.read(partition) for row in batch.to_pylist()]
    return sorted(found)


def test_a_batch_read_planned_by_a_process_that_ends(store: VersionedStore) -> None:
    schema = spark_schema(store.table.schema(STATE))
    partitions = pickle.loads(pickle.dumps(TableReader(store.table, STATE, schema).partitions()))
    assert leased_versions(root(store)) == {2} and len(list((root(store) / FOLDER).iterdir())) == 1
    replace_all(store)
    assert rows_in_tasks(TableReader(store.table, STATE, schema), partitions) == [("a", 4)]


def test_batches_are_bounded_in_rows_and_in_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows of any width, also where the wide ones stand together, and one row that alone is wider than a batch."""
    monkeypatch.setattr("statestore.connector.spark.partitions.BATCH_ROWS", 100)
    monkeypatch.setattr("statestore.connector.spark.partitions.BATCH_BYTES", 4_000)
    texts = ["x"] * 500 + ["y" * 500] * 60 + ["z" * 9_000] + ["x"] * 250
    wide = statestore.connect(tmp_path).create_store("wide", key={"k": "bigint"}, value={"v": "string"})
    wide.put_all(pa.table({"k": range(len(texts)), "v": texts, "timestamp": [1] * len(texts)}))
    wide.commit()
    table, query = wide.table, Query(columns=("k", "v"))
    schema = spark_schema(table.schema(query))
    (split,) = table.splits(query)
    found = list(read_partition(table, TablePartition((split,), query), schema))
    assert max(batch.num_rows for batch in found) == 100
    assert [batch.num_rows for batch in found if batch.nbytes > 4_000] == [1]
    assert [tuple(row.values()) for batch in found for row in batch.to_pylist()] == list(enumerate(texts))
    wide.close()


def test_a_stream_keeps_the_files_of_its_last_two_batches(store: VersionedStore) -> None:
    reader = StateStoreStreamReader(store.table, CHANGES, spark_schema(store.table.schema(CHANGES)), StreamStart())
    offsets = [{"version": version, "store": store.table.identity} for version in range(7)]
    batches = []
    for number in range(2, 5):
        batches.append(pickle.loads(pickle.dumps(reader.partitions(offsets[number - 1], offsets[number]))))
        store.write(as_table([("c", number, 30 + number)]))
    assert leased_versions(root(store)) == {3, 4}
    replace_all(store)
    expected = [[("a", 1), ("a", 4), ("b", 2)], [("c", 2)], [("c", 2), ("c", 3)]]
    for batch, rows in list(zip(batches, expected, strict=True))[1:]:
        assert rows_in_tasks(reader, batch) == rows
    assert pickle.loads(pickle.dumps(reader))._held == ()
    del reader
    assert leased_versions(root(store)) == set()
    with pytest.raises(Exception, match="FILES_REPLACED"):
        store.vacuum()
        rows_in_tasks(TableReader(store.table, CHANGES, spark_schema(store.table.schema(CHANGES))), batches[0])


@dataclass(frozen=True)
class Widened:
    """A table of one column."""

    values: pa.Array

    def read(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([self.values], names=["v"])


def read_as(values: pa.Array, kind: DataType, nullable: bool = True) -> list[Any]:
    partition = TablePartition(("split",), Query())
    schema = StructType([StructField("v", kind, nullable)])
    table = cast(StateTable, Widened(values))
    return [cell for batch in read_partition(table, partition, schema) for cell in batch.column(0).to_pylist()]


def test_values_that_fit_a_narrower_type_are_read() -> None:
    """The type was widened after the query was planned."""
    assert read_as(pa.array([1, None], pa.int64()), IntegerType()) == [1, None]
    assert read_as(pa.array([0.5, None, float("inf")]), FloatType()) == [0.5, None, float("inf")]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1 << 40]), IntegerType()),
        (pa.array([0.1]), FloatType()),
        (pa.array([[0.5, 0.1]]), ArrayType(FloatType())),
        (pa.array(["x"]), IntegerType()),
    ],
    ids=str,
)
def test_values_that_do_not_fit_a_narrower_type_are_refused(values: pa.Array, kind: DataType) -> None:
    with pytest.raises(Exception, match="SCHEMA_CHANGED"):
        read_as(values, kind)


def test_a_null_where_the_given_schema_promises_none_is_refused() -> None:
    assert read_as(pa.array([1, 2]), LongType(), nullable=False) == [1, 2]
    with pytest.raises(Exception, match=r"NULL_NOT_EXPECTED.*'v'"):
        read_as(pa.array([1, None]), LongType(), nullable=False)
