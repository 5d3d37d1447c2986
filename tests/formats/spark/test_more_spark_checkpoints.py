"""Checkpoints of Spark 3.5.9, 4.0.5, 4.1.4 and 4.3.0 with types, encodings and histories that the other archive lacks:
cell by cell what Spark 4.3.0 read from them, or where it reads them wrongly or not at all, what the same query keeps
where it can be read.

``data/spark/more_checkpoints.tar.xz`` is laid out as ``spark_state_fixtures`` says. In a name, "3.5.9to4.3.0" is a
query that another version went on with, and a 1 after the operation is an old format of its state.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import MORE, checkpoint_path, index, multiset, truth, unpacked
from support.parameters import mostly_slow

from statestore.catalog.warehouse import open_table
from statestore.connector.options import query_of
from statestore.formats.spark.checkpoint.spark_schema import renamed

NAMES = sorted(index(MORE))
QUICK = ("spark3.5.9-join1__hdfs", "spark4.0.5-tws__rkav", "spark4.1.4-scala__rkcl", "spark4.3.0-evolved__rkav")


def reads(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = index(MORE)[name]["reads"]
    return found


def answer(name: str, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table = open_table(checkpoint_path(name, MORE), given)
    query = query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def test_the_archive_has_what_these_tests_are_of() -> None:
    assert [path.name for path in sorted((unpacked(MORE) / "checkpoints").iterdir())] == NAMES
    assert len(NAMES) == 25
    assert sum(len(reads(name)) for name in NAMES) == 182


@pytest.mark.parametrize("name", mostly_slow([name for name in NAMES if reads(name)], QUICK))
def test_state_equals_what_spark_read(name: str) -> None:
    for key, read in reads(name).items():
        found, expected = answer(name, read["options"]), truth(read, MORE)
        assert found.num_rows == read["rows"], key
        assert found.column_names == expected.column_names, key
        assert multiset(found) == multiset(expected), key


def test_a_session_of_3_5_in_rocksdb_is_that_of_the_other_provider() -> None:
    """Spark 3.5 does not write how many columns of the key are its prefix; later readers fail, or show other bytes."""
    for key, read in reads("spark3.5.9-session__hdfs").items():
        found = answer("spark3.5.9-session__rkcl", read["options"])
        assert multiset(found) == multiset(truth(read, MORE)), key


@pytest.mark.parametrize("name", ["spark4.0.5-groups{}__hdfs", "spark4.1.4-scalagroups{}__hdfs"])
def test_timeouts_of_groups_in_format_1_are_whole(name: str) -> None:
    """Spark calls them integers but writes longs, and reads the lower half of each, or fails. Format 2 has the same
    state, one struct deeper."""
    for key, read in reads(name.format("")).items():
        old = answer(name.format("1"), read["options"])
        assert old.schema.field("value").type[-1].type == pa.int64()
        expected = {flattened(row): count for row, count in multiset(truth(read, MORE)).items()}
        assert multiset(old) == Counter(expected), key


def flattened(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of groupState, then the timeout, in one struct."""
    value = row[-2]
    return (*row[:-2], None if value is None else (*value[0], value[1]), row[-1])


def test_intervals_that_spark_does_not_validate() -> None:
    """Spark reads such intervals in the change feed only: state is the last that was written for each key."""
    feed = multiset(truth(reads("spark4.1.4-interval__hdfs")["op0~feed"], MORE))
    last = {row[2]: row for row in sorted(feed, key=lambda row: int(row[0]))}
    state = multiset(answer("spark4.1.4-interval__hdfs", {"batchId": 5}))
    assert state == Counter(row[2:] for row in last.values())
    assert any("-2 days" in str(row) for row in state)


def test_names_that_structs_have_twice_get_a_number_at_any_depth() -> None:
    twice = [pa.field("x", pa.int64()), pa.field("X", pa.string())]
    rows = pa.StructArray.from_arrays(
        [pa.array(range(6)), pa.array(list("abcdef"))], fields=twice, mask=pa.array([False, True] + [False] * 4)
    )
    lists = pa.ListArray.from_arrays(pa.array([0, None, 2, 2, 6], pa.int32()), rows)
    keys = pa.array(list("ghijkl"))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 2, 6], pa.int32()), keys, rows)
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), lists)
    batch = pa.RecordBatch.from_arrays([rows[:4], lists, maps, nested], names=list("abcd"))
    for part in (batch, batch.slice(1, 2), batch.slice(0, 0)):
        found = renamed(part)
        found.validate(full=True)
        assert multiset(pa.table(found)) == multiset(pa.table(part))
    inside = [found.schema.field("a").type, found.schema.field("b").type.value_type]
    inside += [found.schema.field("c").type.item_type, found.schema.field("d").type.value_type.value_type]
    assert [[field.name for field in kind] for kind in inside] == [["x", "X_1"]] * 4
