"""The options of Spark's own state source, through the layer that all sources here share, for every recorded read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset, truth
from support.parameters import mostly_slow

from statestore.catalog.warehouse import open_table
from statestore.connector.options import query_of
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError

NAMES = sorted(index())
SPARK_READS_WRONG = "join__rkj4"  # with joinSide: the last field of the key holds bytes of another one


def read(name: str, options: dict[str, Any]) -> pa.Table:
    given = {key: str(value) for key, value in options.items()}
    table = open_table(checkpoint_path(name), given)
    query = query_of(given)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, table.schema(query))


@pytest.mark.parametrize("name", mostly_slow(NAMES, sorted(QUICK)[::2]))
def test_options_mean_what_they_mean_to_spark(name: str) -> None:
    for key, asked in index()[name]["reads"].items():
        if "error" in asked:
            with pytest.raises(NotFoundError, match="no changelog of version 2"):
                read(name, asked["options"])
            continue
        whole = SPARK_READS_WRONG not in name or "joinSide" not in asked["options"]
        found, expected = read(name, asked["options"]), truth(asked)
        assert found.column_names == expected.column_names, key
        assert multiset(found, last_key_field=whole) == multiset(expected, last_key_field=whole), key


@pytest.mark.parametrize("name", ["spark4.3.0-agg__rkcl", "spark4.0.1-chain__rkcl", "spark4.3.0-agg__hdfs"])
def test_without_options_it_is_the_operator_at_the_sink(name: str) -> None:
    reads = index()[name]["reads"]
    assert multiset(read(name, {})) == multiset(truth(reads["op0~last"]))
    assert multiset(read(name, {"BATCHID": 3, "StoreName": "default"})) == multiset(truth(reads["op0~b3"]))


@pytest.mark.parametrize(("name", "batch"), [("spark4.3.0-agg__hdfs", 3), ("spark4.3.0-agg__rkcl", 2)])
def test_a_state_built_on_an_older_snapshot_is_that_partition_of_the_same(name: str, batch: int) -> None:
    whole = read(name, {"operatorId": 0})
    for partition in set(whole["partition_id"].to_pylist()):
        found = read(name, {"snapshotStartBatchId": batch, "snapshotPartitionId": partition})
        assert multiset(found) == multiset(whole.filter(pc.equal(whole["partition_id"], partition)))


def test_a_snapshot_that_is_not_there_is_named() -> None:
    with pytest.raises(NotFoundError, match=r"snapshot 2 of .* expected 0 or one of \[4\]"):
        read("spark4.3.0-agg__hdfs", {"snapshotStartBatchId": 1, "snapshotPartitionId": 0})


AGGREGATION, JOIN, VARIABLES = "spark4.3.0-agg__rkcl", "spark4.3.0-join__rkcl", "spark4.3.0-twsttl__rkcl"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (AGGREGATION, {"batchId": "-1"}, "batchId is -1"),
        (AGGREGATION, {"batchId": "x"}, "batchId is 'x'"),
        (AGGREGATION, {"batchId": 99}, "batchId is 99.* 0 to 5"),
        (AGGREGATION, {"operatorId": 7}, "operatorId is 7.* operators 0"),
        (AGGREGATION, {"operatorId": -7}, "operatorId is -7"),
        (AGGREGATION, {"storeName": ""}, "storeName is empty"),
        (AGGREGATION, {"storeName": "other"}, "storeName is 'other'.* has default"),
        (AGGREGATION, {"joinSide": "both"}, "joinSide is 'both'; expected left, right or none"),
        (AGGREGATION, {"joinSide": "left"}, "is no stream-stream join"),
        (AGGREGATION, {"stateVarName": "v"}, "stateVarName is 'v'"),
        (AGGREGATION, {"readRegisteredTimers": "true"}, "keeps no timers"),
        (AGGREGATION, {"readRegisteredTimers": "perhaps"}, "readRegisteredTimers is 'perhaps'"),
        (AGGREGATION, {"snapshotStartBatchId": 1}, "snapshotPartitionId is missing"),
        (AGGREGATION, {"snapshotPartitionId": 0}, "snapshotStartBatchId is missing"),
        (AGGREGATION, {"snapshotStartBatchId": 3, "snapshotPartitionId": 0, "batchId": 2}, "snapshotStartBatchId is 3"),
        (AGGREGATION, {"snapshotStartBatchId": 0, "snapshotPartitionId": 77}, "snapshotPartitionId is 77"),
        (AGGREGATION, {"readChangeFeed": "true", "changeEndBatchId": 1}, "changeStartBatchId is missing"),
        (AGGREGATION, {"changeStartBatchId": 1}, "needs readChangeFeed=true"),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": -1}, "changeStartBatchId is -1"),
        (
            AGGREGATION,
            {"readChangeFeed": "true", "changeStartBatchId": 2, "changeEndBatchId": 1},
            "changeEndBatchId is 1; expected at least",
        ),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 9}, "changeStartBatchId is 9"),
        (AGGREGATION, {"readChangeFeed": "true", "changeStartBatchId": 1, "batchId": 1}, "batchId does not go with"),
        (JOIN, {"readChangeFeed": "true", "changeStartBatchId": 1, "joinSide": "left"}, "joinSide does not go with"),
        (JOIN, {"joinSide": "left", "storeName": "left-keyToNumValues"}, "exclude each other"),
        (JOIN, {"operatorId": 0}, "joinSide is missing"),
        (VARIABLES, {"operatorId": 0}, "stateVarName is missing"),
        (VARIABLES, {"stateVarName": "nosuch"}, "stateVarName is 'nosuch'; the state variables .* are "),
        (VARIABLES, {"stateVarName": "v", "readRegisteredTimers": "true"}, "exclude each other"),
        (AGGREGATION, {"batchId": 1, "versionAsOf": 1}, "exclude each other"),
        (AGGREGATION, {"batchId": 1, "timestampAsOf": "2024-01-01T00:00:00Z"}, "exclude each other"),
    ],
)
def test_what_can_not_be_followed_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(StateStoreError, match=said):
        read(name, options)


def test_a_store_has_no_batches_to_select(tmp_path: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"STATE_SELECTION.*no checkpoint"):
        open_table(tmp_path, {"batchId": "1"})
