"""Values behind the ids of other registries, as the encoders of AWS Glue 1.1.20 and Apicurio 2.6.5 wrote them.

``tests/engines/kafka/frames`` printed them.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kafka.avro_answers import decoded
from support.kafka.registry_server import registry

from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError
from statestore.formats.kafka.schemas.schema_files import shown_serde, with_schema_file

OLD: Any = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "int"}]}
NEW: Any = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "id", "type": "long"}, {"name": "qty", "type": "int", "default": 1}],
}
FIRST, SECOND = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63", "00000000-0000-4000-8000-0000000000ff"
GLUE = [
    "0300b7b4a7f09c964e4aa687fb5de9ef0c6302",
    "0305000000000000400080000000000000ff789c63e1030000180013",
    "0305b7b4a7f09c964e4aa687fb5de9ef0c63789c63030000070007",
    "0300000000000000400080000000000000ff040e",
]
GLUE_JSON = [
    "0300b7b4a7f09c964e4aa687fb5de9ef0c637b226e223a20317d",
    "0305b7b4a7f09c964e4aa687fb5de9ef0c63789cab56ca53b25230ac05000a330236",
]
APICURIO = ["00000000000000000502", "000000010000000000040e", "00000000000000000506"]
ROWS = [{"id": 1, "qty": 1}, {"id": 2, "qty": 7}, {"id": 3, "qty": 1}, {"id": 2, "qty": 7}]


def cells(texts: list[str]) -> list[Any]:
    return [*map(bytes.fromhex, texts), None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, schema in (("old", OLD), ("new", NEW)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    for place, ids in (("glue", (FIRST, SECOND)), ("apicurio", (5, 1 << 40))):
        (tmp_path / place).mkdir()
        for number, schema in zip(ids, (OLD, NEW), strict=True):
            (tmp_path / place / f"items-{number}.avsc").write_text(json.dumps(schema))
    return tmp_path


@pytest.mark.parametrize(
    "serde",
    [
        f"avro-glue:{FIRST}=old.avsc,{SECOND}=new.avsc,reader={SECOND}",
        f"avro-glue:reader={SECOND.upper()},glue",
        "avro-glue:reader=new.avsc,glue",
    ],
)
def test_values_of_glue_are_read_by_their_versions(folder: Path, serde: str) -> None:
    """Also those that are compressed; a version is a UUID."""
    found = with_schema_file(serde, "the options", folder)
    assert decoded(found, cells(GLUE)).to_pylist() == [*ROWS, None]
    assert FIRST in shown_serde(found) and SECOND in shown_serde(found)
    one = with_schema_file("avro-glue:old.avsc", "the options", folder)
    assert decoded(one, [*cells(GLUE)[::2]]).to_pylist() == [{"id": 1}, {"id": 3}, None]
    with pytest.raises(CorruptError, match=rf"found schema id {SECOND}, expected schema id {FIRST} as in the rows"):
        decoded(one, cells(GLUE))


def test_values_of_apicurio_are_read_by_their_global_ids(folder: Path) -> None:
    """By files, and by its own interface, which answers with the schema alone."""
    assert decoded(with_schema_file("avro-apicurio:apicurio", "", folder), cells(APICURIO)).to_pylist() == [
        *ROWS[:3],
        None,
    ]
    with registry() as server:
        for number, schema in ((5, OLD), (1 << 40, NEW)):
            server.answers[f"/apis/registry/v2/ids/globalIds/{number}"] = json.dumps(schema).encode()
        serde = f"avro-apicurio:reader={1 << 40},{server.url}/apis/registry/v2"
        assert decoded(with_schema_file(serde, ""), cells(APICURIO)).to_pylist() == [*ROWS[:3], None]


def test_json_behind_other_ids(folder: Path) -> None:
    assert decoded("json-glue", cells(GLUE_JSON)).to_pylist() == ['{"n": 1}', '{"n": 1}', None]
    assert decoded("json-apicurio", [b"\0" * 8 + b"\7[1]"]).to_pylist() == ["[1]"]
    (folder / "glue" / f"{FIRST}.json").write_text("{}")
    serde = with_schema_file(f"json-glue:{FIRST}=glue/{FIRST}.json", "", folder)
    assert decoded(serde, cells(GLUE_JSON)).to_pylist() == ['{"n": 1}', '{"n": 1}', None]


@pytest.mark.parametrize(
    ("serde", "found"),
    [
        ("avro-glue:glue", "several ids without an order, and no reader=ID"),
        ("avro-glue:5=old.avsc", "5=old.avsc'; give the path of a schema's file"),
        ("avro-glue:http://127.0.0.1:1", "a URL, and the interface of Glue is not read"),
        (f"avro-glue:{FIRST}=old.avsc,{FIRST.upper()}=new.avsc", "too large or twice"),
        ("avro-apicurio:99999999999999999999=old.avsc", "give the path of a schema's file"),
        ("avro-apicurio:9223372036854775808=old.avsc", "too large or twice"),
    ],
)
def test_other_names_of_schemas_are_refused(folder: Path, serde: str, found: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"WRONG_SCHEMA.*{found}"):
        with_schema_file(serde, "the options", folder)


HEAD = GLUE[0][:36]
BAD = [
    ("avro-glue", "0000000005", "behind 03 and the id of its schema"),
    ("avro-glue", HEAD[:-2], "behind 03 and the id of its schema"),
    ("avro-glue", "0301" + HEAD[4:] + "02", "behind 03 and 00 or 05"),
    ("avro-glue", "0305" + HEAD[4:] + "02", "that zlib has compressed"),
    ("avro-glue", GLUE[2][:-2], "that zlib has compressed"),
    ("avro-glue", GLUE[2] + "00", "that zlib has compressed"),
    ("avro-glue", "0305" + HEAD[4:] + zlib.compress(bytes(65 << 20), 9).hex(), "of at most 67108864 bytes"),
    ("avro-apicurio", "00000000000000", "behind 00 and the id of its schema"),
    ("avro-apicurio", "000000000000000009" + "02", "found schema id 9, expected schema id 5, 1099511627776"),
    ("avro-apicurio", "00ffffffffffffffff" + "02", "found schema id -1, expected schema id 5"),
]


@pytest.mark.parametrize(("name", "value", "found"), BAD)
def test_other_bytes_are_refused(folder: Path, name: str, value: str, found: str) -> None:
    serde = {"avro-glue": f"avro-glue:reader={SECOND},glue", "avro-apicurio": "avro-apicurio:apicurio"}[name]
    with pytest.raises(CorruptError, match=rf"KAFKA_BYTES.*{found}"):
        decoded(with_schema_file(serde, "", folder), [bytes.fromhex(value)])


@given(st.lists(st.sampled_from(GLUE).map(bytes.fromhex) | st.binary(max_size=24), max_size=4), st.data())
def test_any_bytes_are_values_or_refused(found: list[bytes], data: st.DataObject) -> None:
    """Also a byte that differs."""
    if found and found[0]:
        at = data.draw(st.integers(0, len(found[0]) - 1))
        found[0] = found[0][:at] + bytes([data.draw(st.integers(0, 255))]) + found[0][at + 1 :]
    for serde in (f"avro-glue:{json.dumps(NEW)}", "json-glue", "json-apicurio"):
        try:
            decoded(serde, [*found])
        except StateStoreError as error:
            assert "KAFKA_BYTES" in str(error)
