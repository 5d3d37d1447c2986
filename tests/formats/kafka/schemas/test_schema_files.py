"""Serdes with a schema, as options and the stores file name them, on a directory with such values."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kafka.avro_model import encode
from support.kafka.protobuf_model import descriptors, message_class

import statestore
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.store_settings import read_settings, settings_of

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
CHANGELOG = "app-orders-changelog"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "schemas" / "shop.desc").write_bytes(descriptors())
    return tmp_path


def changelog(folder: Path, values: list[bytes]) -> Path:
    columns = {
        "key": pa.array([str(number).encode() for number in range(len(values))], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1_714_550_400_000] * len(values), pa.int64()),
        "offset": pa.array(range(len(values)), pa.int64()),
    }
    logs = folder / "logs"
    logs.mkdir()
    pq.write_table(pa.table(columns), logs / f"{CHANGELOG}.parquet")
    return logs


def test_paths_of_the_stores_file_begin_at_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "conf").mkdir()
    file = folder / "conf" / "stores.toml"
    serdes = {"a": "avro:../schemas/order.avsc", "b": "protobuf-plain:../schemas/shop.desc#shop.Part"}
    file.write_text("".join(f'[stores.{name}]\nvalue_serde = "{serde}"\n' for name, serde in serdes.items()))
    monkeypatch.chdir(folder / "schemas")
    by_store = read_settings(str(file)).by_store
    of_options = settings_of({"keyserde": "avro:order.avsc", "valueserde": "protobuf-plain:shop.desc#shop.Part"})
    assert by_store["a"].value_serde == of_options.every.key_serde
    assert by_store["b"].value_serde == of_options.every.value_serde


def test_values_are_read_by_their_schemas(folder: Path) -> None:
    avro = [b"\0\0\0\0\7" + encode(ORDER, {"id": number, "note": None}) for number in range(3)]
    table = statestore.inspect(changelog(folder, avro), value_serde=f"avro:{folder}/schemas/order.avsc").table(
        CHANGELOG
    )
    assert [row["value"] for row in table.scan().read_all().to_pylist()] == [{"id": n, "note": None} for n in range(3)]


def test_the_schema_of_a_message_is_not_shown_in_facts(folder: Path) -> None:
    part = message_class("shop.Part")
    logs = changelog(folder, [part(amount=number, notes=["x"]).SerializeToString() for number in range(3)])
    found = statestore.inspect(logs, value_serde=f"protobuf-plain:{folder}/schemas/shop.desc#shop.Part")
    assert found.about(CHANGELOG).facts["value serde"] == "protobuf-plain:shop.Part, given"
    rows = found.table(CHANGELOG).scan().read_all().to_pylist()
    assert [row["value"]["amount"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize(
    ("serde", "found"),
    [
        ("avro:none.avsc", "none.avsc"),
        ("protobuf:none.desc#a.B", "none.desc"),
        ("protobuf:schemas/shop.desc#a.B", "no message 'a.B'"),
        ("protobuf:schemas/shop.desc", "found no message"),
        ("avro:schemas/shop.desc", "avro|Avro"),
        ("protobuf:5=schemas/shop.desc,6=schemas/shop.desc#a.B", "no message 'a.B' in the file of the schema"),
        ("protobuf-plain:5=schemas/shop.desc#a.B", "found schemas by id, expected one file"),
        ("json-schema:schemas/order.avsc", "name json-schema alone"),
    ],
)
def test_a_schema_that_is_not_there_is_named(folder: Path, serde: str, found: str) -> None:
    file = folder / "stores.toml"
    file.write_text(f'[stores.orders]\nvalue_serde = "{serde}"\n')
    with pytest.raises(InvalidInputError, match=rf"WRONG_SCHEMA.*({found})"):
        read_settings(str(file))


def test_records_that_spark_has_read_are_decoded_by_a_schema(folder: Path) -> None:
    records = pa.table(
        {
            "key": pa.array([b"k"], pa.binary()),
            "value": pa.array([encode(ORDER, {"id": 7, "note": "x"})], pa.binary()),
            "timestamp": pa.array([1_714_550_400_000], pa.int64()),
        }
    )
    found = statestore.kafka.decode(records, "key-value", value_serde=f"avro-plain:{folder}/schemas/order.avsc")
    assert found["value"].to_pylist() == [{"id": 7, "note": "x"}]
