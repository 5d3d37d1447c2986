"""State of real checkpoints, cell by cell what Spark's own state source read from them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import (
    QUICK,
    answer,
    checkpoint_path,
    index,
    multiset,
    opened,
    truth,
    unpacked,
    view_of,
)
from support.parameters import mostly_slow

from statestore.formats.errors import NotFoundError
from statestore.formats.spark.checkpoint.spark_schema import arrow_type, parse_schema
from statestore.formats.spark.feed_source import feed_schema

NAMES = sorted(index())
SPARK_READS_WRONG = "join__rkj4"  # with joinSide: the last field of the key holds bytes of another one


def test_every_checkpoint_of_the_archive_is_read() -> None:
    assert {path.name for path in (unpacked() / "checkpoints").iterdir()} == set(NAMES)
    assert len(NAMES) == 41


@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK))
def test_state_equals_what_spark_read(name: str) -> None:
    """And reading leaves the checkpoint as it was."""
    reads = {key: read for key, read in index()[name]["reads"].items() if "error" not in read}
    assert reads
    before = digests(checkpoint_path(name))
    for key, read in reads.items():
        whole = SPARK_READS_WRONG not in name or "joinSide" not in read["options"]
        found, expected = answer(name, read["options"]), truth(read)
        assert found.num_rows == read["rows"], key
        assert multiset(found, last_key_field=whole) == multiset(expected, last_key_field=whole), key
    assert digests(checkpoint_path(name)) == before


@pytest.mark.parametrize("name", NAMES)
def test_names_and_types_are_those_of_spark(name: str) -> None:
    for key, read in index()[name]["reads"].items():
        if "error" not in read:
            checkpoint = opened(name, read["options"].get("batchId"))
            found = view_of(checkpoint, read["options"])
            schema = feed_schema(found) if "readChangeFeed" in read["options"] else found.schema
            expected = parse_schema(json.dumps(read["schema"]))
            assert schema.names == list(expected.names), key
            assert schema.types == [arrow_type(field.type) for field in expected.fields], key


@pytest.mark.parametrize("name", [n for n in NAMES if any("error" in r for r in index()[n]["reads"].values())])
def test_what_spark_can_not_read_is_refused(name: str) -> None:
    """Change feeds of RocksDB without changelogs: there is nothing to read them from."""
    for read in index()[name]["reads"].values():
        if "error" in read:
            with pytest.raises(NotFoundError, match="no changelog of version 2"):
                answer(name, read["options"])


@pytest.mark.parametrize("name", NAMES)
def test_operators_are_those_of_spark(name: str) -> None:
    checkpoint = opened(name)
    found = {
        (operator.operator_id, operator.name, store.name): (checkpoint.batches[0], checkpoint.batches[-1])
        for operator in checkpoint.operators
        for store in operator.stores
    }
    assert found == {
        (row["operatorId"], row["operatorName"], row["stateStoreName"]): (row["minBatchId"], row["maxBatchId"])
        for row in index()[name]["metadata"]
    }


def digests(folder: Path) -> dict[str, Any]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def test_a_batch_without_rows_still_has_its_columns() -> None:
    found = answer("spark4.3.0-twsttl__rkcl", {"operatorId": 0, "stateVarName": "val", "batchId": 0})
    assert found.schema.names == ["key", "value", "partition_id"]
    assert pa.types.is_struct(found.schema.field("key").type)
