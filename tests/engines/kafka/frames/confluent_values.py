"""Write confluent-values.json.xz with Confluent's own serializers: ``python confluent_values.py FILE``.

They need ``pip install 'confluent-kafka[avro,json,protobuf]' grpcio-tools``, which are no dependencies of the tests.
The file has what a registry answers by its paths, and values in hexadecimal digits by the kind of their schemas.
"""

import importlib
import json
import lzma
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import schema_registry as registry
from confluent_kafka.serialization import MessageField, SerializationContext

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "m",
    "fields": [
        {"name": "cents", "type": "long"},
        {"name": "cur", "type": {"type": "enum", "name": "Cur", "symbols": ["EUR", "USD"]}},
    ],
}
PRICE = {"name": "price", "type": "m.Money"}
FIRST = {"type": "record", "name": "Order", "namespace": "m", "fields": [{"name": "id", "type": "int"}, PRICE]}
ADDED = [
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "kind", "type": ["string", "int", "null"], "default": "x"},
]
SECOND = {**FIRST, "fields": [{"name": "id", "type": "long"}, PRICE, *ADDED]}
ORDERS: list[Any] = [
    (FIRST, {"id": 1, "price": {"cents": 5, "cur": "EUR"}}),
    (
        SECOND,
        {
            "id": 1 << 40,
            "price": {"cents": -5, "cur": "USD"},
            "note": "é",
            "at": datetime(2024, 5, 1, tzinfo=UTC),
            "kind": 7,
        },
    ),
    (
        SECOND,
        {
            "id": 3,
            "price": {"cents": 0, "cur": "USD"},
            "note": None,
            "at": datetime(1969, 5, 1, 0, 0, 0, 1000, tzinfo=UTC),
            "kind": None,
        },
    ),
]
TEXT = {
    "title": "Text",
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/definitions/t"}},
    "definitions": {"t": {"type": "string"}},
}
PROTOS = {
    "money.proto": 'syntax = "proto3"; package money; '
    "message Money { sint64 cents = 1; enum Cur { EUR = 0; USD = 1; } Cur cur = 2; }",
    "shop.proto": 'syntax = "proto3"; package shop; import "money.proto"; import "google/protobuf/timestamp.proto"; '
    "message First { int32 x = 1; } message Outer { message Inner { message Deep { string s = 1; "
    "money.Money price = 2; google.protobuf.Timestamp at = 3; repeated int32 n = 4; map<string, int64> m = 5; "
    "oneof c { bool b = 6; bytes y = 7; } } Deep d = 1; } Inner i = 1; }",
}

client: Any = registry.SchemaRegistryClient.new_client({"url": "mock://registry"})
context = SerializationContext("orders", MessageField.VALUE, headers=[])


def serializer(kind: str, name: str, *arguments: Any, **conf: Any) -> Any:
    """A serializer whose subjects are the names of records."""
    made = getattr(importlib.import_module(f"confluent_kafka.schema_registry.{kind}"), name)
    return made(*arguments, conf={"subject.name.strategy": registry.record_subject_name_strategy, **conf})


def avro() -> list[str]:
    client.register_schema("money", registry.Schema(json.dumps(MONEY), "AVRO"))
    money = registry.SchemaReference("m.Money", "money", 1)
    found = []
    for schema, order in ORDERS:
        text = registry.Schema(json.dumps(schema), "AVRO", [money])
        found.append(serializer("avro", "AvroSerializer", client, text)(order, context).hex())
    return found


def protobuf(folder: Path) -> list[str]:
    for name, text in PROTOS.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", *PROTOS]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    deep = importlib.import_module("shop_pb2").Outer.Inner.Deep
    value = deep(s="é", n=[1, -2], m={"k": 5}, y=b"\xff")
    value.price.cents, value.price.cur, value.at.seconds = -7, 1, 1714550400
    conf = {"use.deprecated.format": False}
    return [serializer("protobuf", "ProtobufSerializer", deep, client, **conf)(value, context).hex()]


def answers() -> dict[str, Any]:
    """The registry's answers about all subjects, by paths."""
    found: dict[str, Any] = {}
    for subject in client.get_subjects():
        for version in client.get_versions(subject):
            entry = client.get_version(subject, version)
            answer = {"schema": entry.schema.schema_str, "schemaType": entry.schema.schema_type}
            answer["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version}
                for each in entry.schema.references or []
            ]
            found[f"/schemas/ids/{entry.schema_id}"] = answer
            found[f"/subjects/{subject}/versions/{version}"] = answer
    return found


with tempfile.TemporaryDirectory() as place:
    values = {"avro": avro(), "protobuf": protobuf(Path(place))}
values["json-schema"] = [
    serializer("json_schema", "JSONSerializer", json.dumps(TEXT), client)({"a": 1, "b": "é"}, context).hex()
]
in_header = {"schema.id.serializer": registry.header_schema_id_serializer}
values["header"] = [
    serializer("avro", "AvroSerializer", client, json.dumps(MONEY), **in_header)(
        {"cents": 5, "cur": "EUR"}, context
    ).hex()
]
written = json.dumps({"answers": answers(), "values": values}, sort_keys=True).encode()
Path(sys.argv[1]).write_bytes(lzma.compress(written, preset=9))
