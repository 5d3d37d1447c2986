"""Rows that a stream with a grace period joins or keeps waiting: Kafka's cases, and records processed one by one
(KIP-923)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.kafka_vectors import Case, cases

import statestore
from statestore.connector.asof.join_on_spark import release
from statestore.connector.asof.join_request import make_request

GRACE_CASES = [case for case in cases("joins") if case["kind"] == "stream-table" and case["grace_ms"] is not None]


@pytest.mark.parametrize("case", GRACE_CASES, ids=lambda case: case["id"])
def test_what_is_released_is_what_kafka_joins(tmp_path: Path, case: Case) -> None:
    """Kafka's cases with grace, a record an arrival, through the function that each key group of a stream runs."""
    store = statestore.connect(tmp_path).create_store(
        "t", key={"k": "string"}, value={"v": "string"}, history_retention=case["history_retention_ms"]
    )
    with store:
        waiting, stream_time = None, None
        outputs: list[list[dict[str, Any]]] = []
        for record in case["inputs"]:
            if record["side"] == "right":
                store.put(record["key"], record["value"], timestamp=record["ts"])
                store.commit()
                outputs.append([])
                continue
            if record["value"] is None:
                outputs.append([])
                continue
            arrived = pa.table({"k": [record["key"]], "t": [record["ts"]], "left": [record["value"]]})
            request = make_request(arrived.schema.names, store, "k", "t", case["join"], None, "", None)
            waiting = arrived.slice(0, 0) if waiting is None else waiting
            due, waiting, stream_time = release(arrived, waiting, stream_time, case["grace_ms"] * 1000, request)
            joined = statestore.asof_join(due, store, on="k", left_time="t", how=case["join"]).to_pylist()
            outputs.append([{"key": r["k"], "value": f"{r['left']}-{r['v'] or 'null'}", "ts": r["t"]} for r in joined])
    assert outputs == case["expect"]
    assert (0 if waiting is None else waiting.num_rows) == case["expect_buffered"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=5), st.integers(0, 5))
def test_release_is_the_same_whole_or_in_pieces(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], grace: int
) -> None:
    """The rows that were released after a batch, against records taken one by one (KIP-923)."""
    store = statestore.connect(tmp_path_factory.mktemp("w")).create_store(
        "t", key={"k": "string"}, value={"v": "string"}
    )
    with store:
        names = ["k", "t", "n"]
        request = make_request(names, store, "k", "t", "left", None, "", None)
        schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())])
        waiting, stream_time = schema.empty_table(), None
        model_waiting: list[tuple[int, int]] = []
        model_time, number = -(1 << 40), 0
        for times in batches:
            rows = [{"k": "a", "t": t, "n": number + i} for i, t in enumerate(times)]
            due, waiting, stream_time = release(
                pa.Table.from_pylist(rows, schema=schema), waiting, stream_time, grace * 1000, request
            )
            expected = []
            for i, t in enumerate(times):
                if t < model_time - grace:
                    expected.append(number + i)
                    continue
                model_waiting.append((t, number + i))
                model_time = max(model_time, t)
                expected += [n for when, n in sorted(model_waiting) if when <= model_time - grace]
                model_waiting = [(when, n) for when, n in model_waiting if when > model_time - grace]
            number += len(times)
            assert sorted(due["n"].to_pylist()) == sorted(expected)
            assert sorted(waiting["n"].to_pylist()) == sorted(n for _, n in model_waiting)
