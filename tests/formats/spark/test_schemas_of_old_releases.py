"""Schema files that say more than the rows hold, and releases that wrote none.

``data/spark/deduplication_3.3.0.tar.xz`` has a checkpoint of Spark 3.3.0 for each provider: three batches of
``dropDuplicates(["k", "n"])`` over rows of k, n and v. Its schema file calls the whole row the value; stored is a null.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import LOCAL, checkpoint_path, multiset, unpacked
from support.paths import DATA

import statestore
from statestore.formats.errors import NotFoundError, UnsupportedError
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.state_views import find_state_view
from statestore.formats.spark.state_columns import may_lack_values
from statestore.formats.spark.unsafe_state import unsafe_columns

ARCHIVE = DATA / "spark" / "deduplication_3.3.0.tar.xz"
NEW_KEYS = ([("a", 1), ("b", 2)], [("c", None), ("d", 4)], [(None, 5)])  # of each batch
EVERY_KEY = [key for keys in NEW_KEYS for key in keys]


def root(provider: str) -> Path:
    return unpacked(ARCHIVE) / "deduplication" / provider


def keys_of(rows: list[dict[str, object]]) -> list[str]:
    return sorted(str(tuple(row["key"].values())) for row in rows if isinstance(row["key"], dict))


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_keys_are_whole_where_no_values_were_stored(provider: str) -> None:
    table = statestore.inspect(root(provider)).table("state")
    for batch in range(3):
        rows = table.scan(version=batch).read_all().to_pylist()
        assert keys_of(rows) == sorted(map(str, EVERY_KEY[: 2 * (batch + 1)]))
        assert all(row["value"] is None for row in rows)  # not a row of nulls, which a row could be
    history = table.history().read_all().to_pylist()
    assert keys_of(history) == sorted(map(str, EVERY_KEY))
    changes = table.changes().read_all().to_pylist()
    assert [row["_commit_version"] for row in sorted(changes, key=lambda row: row["_commit_version"])] == [
        0,
        0,
        1,
        1,
        2,
    ]
    assert table.get({"k": "a", "n": 1}) == {"key": {"k": "a", "n": 1}, "value": None, "partition_id": 0}


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_spark_gets_no_row_that_is_shorter_than_its_schema(provider: str) -> None:
    checkpoint = open_checkpoint(LOCAL, str(root(provider)))
    assert "value" not in unsafe_columns(checkpoint, find_state_view(checkpoint, 0))


def test_other_operators_have_their_values() -> None:
    for name in ("spark4.3.0-agg__hdfs", "spark4.3.0-dedup__hdfs", "spark4.3.0-sess__rkcl", "spark4.3.0-fmgws__hdfs"):
        checkpoint = open_checkpoint(LOCAL, str(checkpoint_path(name)))
        assert not may_lack_values(find_state_view(checkpoint, 0))


def test_a_release_without_schema_files_is_named(tmp_path: Path) -> None:
    path = shutil.copytree(root("hdfs"), tmp_path / "checkpoint")
    (path / "state/0/0/_metadata/schema").unlink()
    with pytest.raises(NotFoundError, match=r"schema: no such file; Spark 3\.0 and earlier wrote none"):
        statestore.inspect(path)


@pytest.mark.parametrize(
    ("name", "said"), [("spark4.3.0-twsttl__rk", None), ("spark4.3.0-twsttl__rkav", "Avro rows without ids")]
)
def test_a_preview_of_spark_4_wrote_schemas_without_ids(name: str, said: str | None, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    for file in (path / "state/0/_stateSchema/default").iterdir():
        # Cut at each id, which is 0, before one chunk of JSON.
        parts = re.split(rb"\x00\x00(?=\x00\x00\x00\x01..\{)", file.read_bytes(), flags=re.DOTALL)
        assert len(parts) > 2 and len(parts) % 2 == 1
        file.write_bytes(b"".join(parts))
    expected, found = statestore.inspect(checkpoint_path(name)), statestore.inspect(path)
    assert found.tables() == expected.tables()
    for table in expected.tables():
        if said is None:
            assert multiset(found.table(table).scan().read_all()) == multiset(expected.table(table).scan().read_all())
        else:
            with pytest.raises(UnsupportedError, match=said):
                found.table(table).scan().read_all()
