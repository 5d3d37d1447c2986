"""Pending writes know which put is the newest of its key, also when a commit has taken only some of them."""

from __future__ import annotations

import pyarrow as pa

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.pending_writes import Pending
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.values.key_codec import KeyCodec

KEY, VALUE = pa.schema([pa.field("k", pa.string(), False)]), pa.schema([pa.field("v", pa.int64())])


def made() -> Pending:
    spec = StoreSpec("s", "id", "versioned", KEY, VALUE, None, None, "natural", 16)
    return Pending(spec, KeyCodec(KEY), row_serde("natural", KEY, VALUE))


def test_a_put_is_the_newest_if_all_others_of_its_key_are_older() -> None:
    pending = made()
    pending.put(("a",), (10, None))
    pending.put(("a",), (5, None))
    assert [pending.is_newest(("a",), moment) for moment in (9, 10, 11)] == [False, False, True]
    assert pending.is_newest(("b",), -(2**62))


def test_puts_that_a_commit_leaves_are_known() -> None:
    pending = made()
    pending.put(("a",), (10, None))
    parts = pending.seal()
    pending.put(("a",), (7, None))
    pending.put(("a",), (6, None))
    pending.forget(0, parts)
    assert [pending.is_newest(("a",), moment) for moment in (7, 8)] == [False, True]
    assert [moment for moment, _ in pending.puts_of(("a",), 0)] == [7, 6]


def test_beside_a_batch_no_put_is_known_to_be_the_newest() -> None:
    pending = made()
    columns = [pa.array(["a"]), pa.array([1]), pa.array([5], pa.timestamp("us", "UTC")), pa.array([False])]
    pending.put_batch(pa.RecordBatch.from_arrays(columns, schema=pending._spec.record_schema()))
    assert not pending.is_newest(("b",), 100)
    pending.forget(0)
    assert pending.is_newest(("b",), 100)
