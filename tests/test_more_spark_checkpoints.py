"""Checkpoints of Spark 3.5.9, 4.0.5, 4.1.4 and 4.3.0 with types, encodings and histories that the other archive lacks:
cell by cell what Spark 4.3.0 read from them, or where it reads them wrongly or not at all, what the same query keeps
where it can be read.

``data/spark/more_checkpoints.tar.xz`` is laid out as ``spark_state_fixtures`` says. In a name, "3.5.9to4.3.0" is a
query that another version went on with, and a 1 after the operation is an old format of its state.
"""

from __future__ import annotations

import atexit
import json
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_state_fixtures import multiset

from statestore.catalog.discovery import open_table
from statestore.connector.options import query_of
from statestore.connector.state_options import selection_of

ARCHIVE = Path(__file__).parent / "data" / "spark" / "more_checkpoints.tar.xz"


@cache
def unpacked() -> Path:
    folder = TemporaryDirectory(prefix="statestore-test-")
    atexit.register(folder.cleanup)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder.name, filter="data")
    return Path(folder.name)


@cache
def index() -> dict[str, Any]:
    with tarfile.open(ARCHIVE) as archive:
        member = archive.extractfile("index.json")
        assert member is not None
        found: dict[str, Any] = json.load(member)
    return found


def truth(name: str, key: str) -> pa.Table:
    return pq.read_table(unpacked() / index()[name]["reads"][key]["file"])


def answer(name: str, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table = open_table(unpacked() / "checkpoints" / name, selection_of(given))
    query = query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


def test_the_archive_has_what_these_tests_are_of() -> None:
    assert {path.name for path in (unpacked() / "checkpoints").iterdir()} == set(index())
    assert len(index()) == 24
    assert sum(len(found["reads"]) for found in index().values()) == 179


@pytest.mark.parametrize("name", sorted(name for name in index() if index()[name]["reads"]))
def test_state_equals_what_spark_read(name: str) -> None:
    for key, read in index()[name]["reads"].items():
        found, expected = answer(name, read["options"]), truth(name, key)
        assert found.num_rows == read["rows"], key
        assert found.column_names == expected.column_names, key
        assert multiset(found) == multiset(expected), key


def test_a_session_of_3_5_in_rocksdb_is_that_of_the_other_provider() -> None:
    """Spark 3.5 does not write how many columns of the key are its prefix; later readers fail, or show other bytes."""
    for key, read in index()["spark3.5.9-session__hdfs"]["reads"].items():
        expected = multiset(truth("spark3.5.9-session__hdfs", key))
        assert expected == multiset(answer("spark3.5.9-session__rkcl", read["options"])), key


@pytest.mark.parametrize("name", ["spark4.0.5-groups{}__hdfs", "spark4.1.4-scalagroups{}__hdfs"])
def test_timeouts_of_groups_in_format_1_are_whole(name: str) -> None:
    """Spark calls them integers but writes longs, and reads the lower half of each, or fails. Format 2 has the same
    state, one struct deeper."""
    for key, read in index()[name.format("")]["reads"].items():
        expected = truth(name.format(""), key)
        old = answer(name.format("1"), read["options"])
        assert old.schema.field("value").type[-1].type == pa.int64()
        assert multiset(old) == Counter({flattened(row): count for row, count in multiset(expected).items()}), key


def flattened(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of groupState, then the timeout, in one struct."""
    value = row[-2]
    return (*row[:-2], None if value is None else (*value[0], value[1]), row[-1])


def test_intervals_that_spark_does_not_validate() -> None:
    """It reads them in the change feed only: state is the last that was written for each key."""
    last = {row[2]: row for row in sorted(multiset(truth("spark4.1.4-interval__hdfs", "op0~feed")), key=lambda r: r[0])}
    state = multiset(answer("spark4.1.4-interval__hdfs", {"batchId": 5}))
    assert state == Counter(row[2:] for row in last.values())
    assert any("-2 days" in str(row) for row in state)
