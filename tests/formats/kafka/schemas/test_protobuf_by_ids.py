"""Protobuf and JSON values of several schema ids: each read by its own schema's index, all by one message."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from support.kafka.registry_server import Registry, registry

import statestore
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.schemas.proto_text import file_descriptor

CHANGELOG = "app-items-changelog"
OLD = """syntax = "proto3"; package shop;
message Item { int32 id = 1; string note = 2; Kind kind = 3; enum Kind { A = 0; B = 1; } }"""
NEW = """syntax = "proto3"; package shop;
import "unit.proto"; import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Item {
  int64 id = 1; Kind kind = 3; optional int32 qty = 4; units.Unit unit = 5; google.protobuf.Timestamp at = 6;
  map<string, int32> counts = 7;
  enum Kind { A = 0; B = 1; C = 2; }
}"""
UNIT = 'syntax = "proto3"; package shop.units; message First {} message Unit { string name = 1; }'
NOTHING: dict[str, Any] = {"qty": None, "unit": None, "at": None, "counts": []}
ROWS = [
    {"id": 1, "kind": "B"} | NOTHING,
    {
        "id": 1 << 40,
        "kind": "C",
        "qty": 7,
        "unit": {"name": "kg"},
        "at": {"seconds": 5, "nanos": 6},
        "counts": [("a", 1)],
    },
    {"id": -3, "kind": "A"} | NOTHING,
]


def message(name: str, *texts: str) -> Any:
    """The class of a message, made by Protobuf's own library."""
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for path, text in zip(("unit.proto", "item.proto") if len(texts) > 1 else ("item.proto",), texts, strict=True):
        pool.AddSerializedFile(file_descriptor(text, path))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def framed(number: int, index: bytes, found: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + index + bytes(found.SerializeToString())


Old, New = message("shop.Item", OLD), message("shop.Item", UNIT, NEW)
VALUES = [
    framed(5, b"\0", Old(id=1, note="x", kind=1)),
    framed(
        6, b"\2\2", New(id=1 << 40, kind=2, qty=7, unit={"name": "kg"}, at={"seconds": 5, "nanos": 6}, counts={"a": 1})
    ),
    framed(5, b"\2\0", Old(id=-3)),
]


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as found:
        found.add(5, OLD, schemaType="PROTOBUF")
        ask = [{"name": "unit.proto", "subject": "unit", "version": 1}]
        found.add(6, NEW, schemaType="PROTOBUF", references=ask)
        found.answers["/subjects/unit/versions/1"] = {"schema": UNIT, "schemaType": "PROTOBUF"}
        yield found


def changelog(folder: Path, values: list[Any]) -> Path:
    columns = {
        "key": pa.array([b"k%04d" % number for number in range(len(values))], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1_714_550_400_000] * len(values), pa.int64()),
        "offset": pa.array(range(len(values)), pa.int64()),
    }
    pq.write_table(pa.table(columns), folder / f"{CHANGELOG}.parquet")
    return folder


def rows(path: Path, serde: str) -> list[Any]:
    table = statestore.inspect(path, value_serde=serde).table(CHANGELOG)
    return [row["value"] for row in table.scan().read_all().sort_by("changelog_offset").to_pylist()]


@pytest.mark.parametrize("message", ["", "#shop.Item"])
def test_a_registry_has_the_schemas_of_all_ids(server: Registry, tmp_path: Path, message: str) -> None:
    """The message is named, or found by the index of sampled values, which counts in each schema on its own."""
    path = changelog(tmp_path, VALUES)
    assert rows(path, f"protobuf:{server.url}{message}") == ROWS
    assert sorted(set(server.asked)) == ["/schemas/ids/5", "/schemas/ids/6", "/subjects/unit/versions/1"]
    found = statestore.inspect(path, value_serde=f"protobuf:{server.url}{message}").about(CHANGELOG)
    assert found.facts["value serde"] == f"protobuf:{server.url}; ids 6; reader: schema id 6; shop.Item, given"


def test_a_descriptor_in_base64_is_the_same(server: Registry, tmp_path: Path) -> None:
    """A registry gives it with names of types as they stand in the text."""
    for number, text in ((5, OLD), (6, NEW)):
        server.answers[f"/schemas/ids/{number}"]["schema"] = base64.b64encode(file_descriptor(text)).decode()
    assert rows(changelog(tmp_path, VALUES), f"protobuf:{server.url}") == ROWS


def test_schemas_are_files_by_id(tmp_path: Path) -> None:
    """Texts, or sets of descriptors as protoc writes them, the file itself at last."""
    (tmp_path / "ids").mkdir()
    (tmp_path / "logs").mkdir()
    found = descriptor_pb2.FileDescriptorSet()
    for name, text in (("unit.proto", UNIT), ("item.proto", NEW)):
        found.file.append(descriptor_pb2.FileDescriptorProto.FromString(file_descriptor(text, name)))
    (tmp_path / "ids" / "items-5.proto").write_text(OLD)
    (tmp_path / "ids" / "items-6.desc").write_bytes(found.SerializeToString())
    path = changelog(tmp_path / "logs", VALUES)
    files = f"5={tmp_path}/ids/items-5.proto,6={tmp_path}/ids/items-6.desc"
    for place in (f"{tmp_path}/ids", files):
        assert rows(path, f"protobuf:{place}#shop.Item") == rows(path, f"protobuf:{place}") == ROWS
    old = [{"id": 1, "note": "x", "kind": "B"}, {"id": -3, "note": "", "kind": "A"}]
    only = changelog(tmp_path, [VALUES[0], VALUES[2], None])
    assert rows(only, f"protobuf:reader=5,{files}#shop.Item") == old
    assert rows(only, f"protobuf:{tmp_path}/ids/items-5.proto#shop.Item") == old


BAD: list[Any] = [
    ([VALUES[0], framed(6, b"\0", New(id=1))], "", "WRONG_SCHEMA.*messages shop.Item, shop.Other in values"),
    ([VALUES[0], framed(6, b"\0", New(id=1))], "#shop.Item", "KAFKA_BYTES.*the index 1, which message shop.Item has"),
    (VALUES, "#shop.Thing", "WRONG_SCHEMA.*no message 'shop.Thing' in the file of the schema.*shop.Item"),
    (VALUES, "#shop.units.Unit", "WRONG_SCHEMA.*no message 'shop.units.Unit' in the file"),
    ([framed(9, b"\0", Old(id=1))], "#shop.Item", "WRONG_SCHEMA.*has no schema id 9"),
    ([b"\0\0\0\0\5"], "#shop.Item", "KAFKA_BYTES"),
    ([b"\1\0\0\0\5\0"], "#shop.Item", "WRONG_SCHEMA.*no sampled row named a schema id"),
]


@pytest.mark.parametrize(("values", "message", "found"), BAD)
def test_what_is_no_such_message_is_named(
    server: Registry, tmp_path: Path, values: list[bytes], message: str, found: str
) -> None:
    with pytest.raises(StateStoreError, match=found):
        rows(changelog(tmp_path, values), f"protobuf:{server.url}{message}")


CHANGES: list[Any] = [
    ("int64 id = 1;", "sint64 id = 1;", "is sint64 id, and was written as int64 id"),
    ("int64 id = 1;", "int32 id = 1;", "is int32 id, and was written as int64 id"),
    ("repeated int32 id = 1;", "int32 id = 1;", "is int32 id, and was written as repeated int32 id"),
    ("string id = 1;", "P id = 1;", "is message id, and was written as string id"),
    ("P id = 1;", "Q id = 1;", "field 1 of message Q is bytes a, and was written as int32 a"),
    ("int32 id = 1;", "repeated int64 key = 1;", None),
    ("uint32 id = 1;", "int64 id = 1;", None),
    ("string id = 1;", "int32 other = 2;", None),
]


@pytest.mark.parametrize(("old", "new", "found"), CHANGES)
def test_types_that_differ_are_refused(tmp_path: Path, old: str, new: str, found: str | None) -> None:
    """Protobuf itself would skip, cut or take for others what was written."""
    parts = 'syntax = "proto3"; message M {{ {} }} message P {{ int32 a = 1; }} message Q {{ bytes a = 1; }}'
    for number, text in ((1, old), (2, new)):
        (tmp_path / f"{number}.proto").write_text(parts.format(text))
    path = changelog(tmp_path, [b"\0\0\0\0\1\0"])
    if found is None:
        assert len(rows(path, f"protobuf:{tmp_path}")) == 1
        return
    with pytest.raises(StateStoreError, match=rf"WRONG_SCHEMA.*schema id 1 cannot be read by schema id 2: .*{found}"):
        rows(path, f"protobuf:{tmp_path}")


def test_json_of_several_ids(server: Registry, tmp_path: Path) -> None:
    """Its schemas say nothing of how it is read; where they are given, an id that is none of them is refused."""
    values = [b"\0\0\0\0" + bytes([number]) + b'{"n": %d}' % number for number in (7, 8, 7)]
    path = changelog(tmp_path, [*values, None])
    for number in (7, 8):
        server.add(number, {"type": "object"}, schemaType="JSON")
        (tmp_path / f"{number}.json").write_text("{}")
    wanted = ['{"n": 7}', '{"n": 8}', '{"n": 7}']
    for serde in ("json-schema", f"json-schema:{server.url}", f"json-schema:{tmp_path}"):
        assert rows(path, serde) == wanted
    with pytest.raises(StateStoreError, match=r"KAFKA_BYTES.*found schema id 8, expected schema id 7"):
        rows(path, f"json-schema:7={tmp_path}/7.json")
    with pytest.raises(StateStoreError, match=r"WRONG_SCHEMA.*schema id 5 is of type 'PROTOBUF', expected JSON"):
        rows(changelog(tmp_path, [b"\0\0\0\0\5{}"]), f"json-schema:{server.url}")
