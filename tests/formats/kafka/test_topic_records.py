"""Records of a changelog topic that another reader has read, decoded as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.kafka.real_applications import application, form_of, plain_rows, topic_table
from support.kafka.store_answers import ANSWERED, assert_rows_are_the_stores, the_store

import statestore
from statestore import kafka
from statestore.formats.kafka.columns.store_form import StoreForm


def decode(records: Any, form: StoreForm) -> Any:
    serdes = {"key_serde": form.key_serde, "value_serde": form.value_serde}
    return kafka.decode(records, form.kind, **serdes, window_size=form.window_size)


@pytest.mark.parametrize(("name", "store"), ANSWERED)
def test_rows_are_those_of_the_store(name: str, store: str) -> None:
    found = the_store(name, store)
    table = decode(topic_table(name, found["changelog"]), form_of(found))
    assert_rows_are_the_stores(name, found, [row for batch in table.to_batches() for row in plain_rows(batch)])


def test_every_type_gives_its_own() -> None:
    store = the_store("orders", "prices")
    table, form = topic_table("orders", store["changelog"]), form_of(store)
    whole = decode(table, form)
    (batch,) = table.combine_chunks().to_batches()
    of_batch = decode(batch, form)
    reader = decode(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7)), form)
    assert isinstance(of_batch, pa.RecordBatch) and isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == whole.schema
    assert pa.table(of_batch).equals(whole.combine_chunks()) and reader.read_all().equals(whole)


def test_milliseconds_no_places_and_no_key() -> None:
    table = pa.table(
        {
            "timestamp": pa.array([5, 6, 7], pa.int64()),
            "value": pa.array([b"x", b"y", None], pa.large_binary()),
            "key": pa.array([b"a", None, b"c"], pa.binary()),
        }
    )
    rows = plain_rows(kafka.decode(table.to_batches()[0], "timestamped-key-value", key_serde="string"))
    places = {"partition": None, "offset": None}
    assert rows == [
        {"key": "a", "value": "78", "timestamp": 5, "tombstone": False, **places},
        {"key": "c", "value": None, "timestamp": 7, "tombstone": True, **places},
    ]


def test_slices_keep_their_headers() -> None:
    store = next(each for each in application("ledger").stores() if each["kind"].startswith("headers-key-value"))
    table, form = topic_table("ledger", store["changelog"]), form_of(store)
    whole = decode(table, form)
    assert whole["headers"].combine_chunks().flatten().to_pylist() != []
    parts = [decode(table.slice(start, 3), form) for start in range(0, len(table), 3)]
    assert pa.concat_tables(parts).equals(whole)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"kind": "tabel"}, statestore.InvalidInputError, "KAFKA_STORE_KIND"),
    ({"key_serde": "txt"}, statestore.UnsupportedError, "UNSUPPORTED_SERDE"),
    ({"value_serde": "integer"}, statestore.CorruptError, "KAFKA_BYTES"),
    ({"window_size": 0}, statestore.InvalidInputError, "INVALID_OPTION"),
    ({"kind": "headers-key-value", "drop": "headers"}, statestore.InvalidInputError, "includeHeaders"),
    ({"drop": "timestamp"}, statestore.InvalidInputError, "no column timestamp"),
    ({"cast": "key"}, statestore.InvalidInputError, "without a cast"),
]


@pytest.mark.parametrize(("given", "kind", "text"), WRONG, ids=lambda each: str(each)[:30])
def test_what_is_wrong_is_named(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    table = topic_table("orders", the_store("orders", "prices")["changelog"])
    table = table.drop_columns([given["drop"]]) if "drop" in given else table
    if "cast" in given:
        table = table.set_column(table.schema.names.index("key"), "key", pa.array(["a"] * len(table)))
    arguments = {"kind": "timestamped-key-value", **{n: v for n, v in given.items() if n not in ("drop", "cast")}}
    with pytest.raises(kind, match=text):
        kafka.decode(table, **arguments)


def test_rows_of_python_are_refused() -> None:
    with pytest.raises(statestore.InvalidInputError, match="WRONG_INPUT"):
        kafka.decode([{"key": b"a"}], "key-value")
