"""The hash and the choice of Kafka's default partitioner: known answers, a model, and keys that brokers have placed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka.real_applications import application, form_of
from support.kafka.serde_model import murmur2 as model
from support.kafka.serde_model import partition_of
from support.kafka.store_answers import cases, the_store

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.kafka.columns.record_encoders import ENCODED_FORMS, suffix_size
from statestore.formats.kafka.columns.store_kinds import KINDS
from statestore.formats.kafka.edits.partitioning import fitting_counts, murmur2, partitions_of

KNOWN = {  # ``UtilsTest`` of Kafka
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
PLACED = cases(lambda store: store["changelog"] is not None and KINDS[form_of(store).kind].rows in ENCODED_FORMS)


def test_hashes_are_those_of_kafkas_tests() -> None:
    found = murmur2(cells_of(pa.array(list(KNOWN), pa.binary())))
    assert found.astype(np.int32).tolist() == list(KNOWN.values())


@given(keys=st.lists(st.binary(max_size=21)), front=st.integers(0, 3))
def test_hashes_are_those_of_a_model(keys: list[bytes], front: int) -> None:
    cells = cells_of(pa.array([b"x" * front + key for key in keys], pa.binary())).cut(front)
    assert murmur2(cells).tolist() == [model(key) for key in keys]


@pytest.mark.parametrize(("name", "store"), PLACED)
def test_keys_of_real_applications_lie_where_the_rule_says(name: str, store: str) -> None:
    found, app = the_store(name, store), application(name)
    suffix = suffix_size(KINDS[form_of(found).kind])
    records = app.changelogs[found["changelog"]]
    keys = pa.array([bytes.fromhex(record["key"]) for record in records], pa.binary())
    places = partitions_of(murmur2(cells_of(keys).cut(0, suffix)), app.truth["partitions"])
    assert places.tolist() == [record["partition"] for record in records]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_the_number_of_partitions_follows_from_many_keys(count: int) -> None:
    keys = [b"key-%d" % number for number in range(200)]
    places = np.array([partition_of(key, count) for key in keys], np.int64)
    hashes = murmur2(cells_of(pa.array(keys, pa.binary())))
    assert fitting_counts(hashes, places, int(places.max()) + 1) == [count]
    assert fitting_counts(hashes, places[::-1], int(places.max()) + 1) in ([], [1])
    assert fitting_counts(hashes[:1], places[:1] * 0, 1)[:1] == [1]
