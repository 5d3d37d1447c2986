"""Schemas from a registry: values of several ids read by one of them, with references and a password, and errors."""

from __future__ import annotations

import base64
import json
import lzma
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kafka.avro_model import encode
from support.kafka.registry_server import Registry, registry
from support.paths import DATA

import statestore
from statestore.formats.errors import CorruptError, InvalidInputError, StorageError
from statestore.formats.kafka.known_store import known_store
from statestore.formats.kafka.schemas.registry_requests import AUTH_VARIABLE
from statestore.formats.kafka.source import describe_stores
from statestore.formats.kafka.store_settings import settings_of

CHANGELOG = "app-items-changelog"
OLD = {"type": "record", "name": "Item", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "id", "type": "long"}, {"name": "qty", "type": "int", "default": 1}],
}


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as found:
        found.add(5, OLD)
        found.add(6, NEW, schemaType="AVRO")
        yield found


def item(number: int, **fields: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + encode({5: OLD, 6: NEW}.get(number, NEW), fields)


VALUES = [item(5, id=1), item(6, id=2, qty=7), item(5, id=3)]
ROWS = [{"id": 1, "qty": 1}, {"id": 2, "qty": 7}, {"id": 3, "qty": 1}]


def changelog(folder: Path, values: list[bytes], keys: list[bytes] | None = None) -> Path:
    columns = {
        "key": pa.array(keys or [b"k%04d" % number for number in range(len(values))], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1_714_550_400_000] * len(values), pa.int64()),
        "offset": pa.array(range(len(values)), pa.int64()),
    }
    pq.write_table(pa.table(columns), folder / f"{CHANGELOG}.parquet")
    return folder


def rows(path: Path, serde: str, **options: Any) -> list[Any]:
    table = statestore.inspect(path, value_serde=serde, **options).table(CHANGELOG)
    found = table.scan().read_all().sort_by("changelog_offset")
    return [row["value"] for row in found.to_pylist()]


def test_values_of_all_ids_are_read_by_the_highest_one(server: Registry, tmp_path: Path) -> None:
    """Also where kind and key are given, so nothing else would be sampled; each id is asked for once."""
    path = changelog(tmp_path, VALUES)
    assert rows(path, f"avro:{server.url}") == ROWS
    assert rows(path, f"avro:{server.url}/", key_serde="string", kind="key-value") == ROWS
    assert rows(path, f"avro:{server.url}") == ROWS
    assert sorted(set(server.asked)) == ["/schemas/ids/5", "/schemas/ids/6"]
    assert len(server.asked) == 4, "once for each spelling of the URL"
    found = statestore.inspect(path, value_serde=f"avro:{server.url}")
    assert found.about(CHANGELOG).facts["value serde"] == f"avro:{server.url}; ids 6; reader: schema id 6, given"


def test_keys_are_read_by_a_registry(server: Registry, tmp_path: Path) -> None:
    path = changelog(tmp_path, [b"1", b"2", b"3"], VALUES)
    table = statestore.inspect(path, key_serde=f"avro:{server.url}", value_serde="string").table(CHANGELOG)
    assert sorted((row["key"]["id"], row["value"]) for row in table.scan().read_all().to_pylist()) == [
        (1, "1"),
        (2, "2"),
        (3, "3"),
    ]


def test_the_reader_is_the_one_that_is_named(server: Registry, tmp_path: Path) -> None:
    path = changelog(tmp_path, VALUES)
    server.add(4, {**OLD, "fields": [{"name": "id", "type": "double"}]})
    assert rows(path, f"avro:reader=4,{server.url}") == [{"id": 1.0}, {"id": 2.0}, {"id": 3.0}]
    (tmp_path / "reader.avsc").write_text(json.dumps({**NEW, "fields": NEW["fields"][1:]}))
    assert rows(path, f"avro:reader={tmp_path}/reader.avsc,{server.url}") == [{"qty": 1}, {"qty": 7}, {"qty": 1}]


def test_a_higher_id_behind_the_sample_is_refused_by_name(server: Registry, tmp_path: Path) -> None:
    """The fields of the newer schema would be lost; a reader that is named may lose them."""
    path = changelog(tmp_path, [*[item(5, id=number) for number in range(600)], item(6, id=600, qty=2)])
    with pytest.raises(CorruptError, match=rf"found schema id 6, .*name the reader: avro:reader=6,{server.url}"):
        rows(path, f"avro:{server.url}")
    assert rows(path, f"avro:reader=6,{server.url}")[-2:] == [{"id": 599, "qty": 1}, {"id": 600, "qty": 2}]


def test_references_are_fetched(server: Registry, tmp_path: Path) -> None:
    """Also those of a reference, each once."""
    unit = {"type": "enum", "name": "shop.Unit", "symbols": ["KG", "G"]}
    weight = {"type": "record", "name": "shop.Weight", "fields": [{"name": "unit", "type": "shop.Unit"}]}
    whole = {
        "type": "record",
        "name": "shop.W",
        "fields": [{"name": "w", "type": "Weight"}, {"name": "u", "type": "Unit"}],
    }
    ask = [{"name": name, "subject": f"s/{name}", "version": 2} for name in ("shop.Unit", "shop.Weight")]
    server.answers["/subjects/s%2Fshop.Unit/versions/2"] = {"schema": json.dumps(unit)}
    server.answers["/subjects/s%2Fshop.Weight/versions/2"] = {"schema": json.dumps(weight), "references": ask[:1]}
    server.add(9, whole, references=[*reversed(ask)])
    path = changelog(tmp_path, [b"\0\0\0\0\x09\2\0"])
    assert rows(path, f"avro:{server.url}") == [{"w": {"unit": "G"}, "u": "KG"}]
    assert len(server.asked) == 3


MONEY = {"type": "record", "name": "Money", "namespace": "m"} | {
    "fields": [
        {"name": "cents", "type": "long"},
        {"name": "cur", "type": {"type": "enum", "name": "Cur", "symbols": ["EUR", "USD"]}},
    ]
}
ORDERS = [
    {"id": 1, "price": {"cents": 5, "cur": "EUR"}, "note": None, "at": datetime(1970, 1, 1, tzinfo=UTC)}
    | {"kind": {"string": "x", "int": None}},
    {"id": 1 << 40, "price": {"cents": -5, "cur": "USD"}, "note": "é", "at": datetime(2024, 5, 1, tzinfo=UTC)}
    | {"kind": {"string": None, "int": 7}},
    {"id": 3, "price": {"cents": 0, "cur": "USD"}, "note": None, "kind": None}
    | {"at": datetime(1969, 5, 1, 0, 0, 0, 1000, tzinfo=UTC)},
]
"""What confluent_values.py has serialized, by the second schema of orders."""
DEEP = {"s": "é", "price": {"cents": -7, "cur": "USD"}, "at": {"seconds": 1_714_550_400, "nanos": 0}, "n": [1, -2]} | {
    "m": [("k", 5)],
    "b": None,
    "y": b"\xff",
}


@pytest.fixture(scope="module")
def confluent() -> Any:
    """Answers of a registry, and values of Confluent's own serializers."""
    return json.loads(lzma.decompress((DATA / "kafka" / "confluent-values.json.xz").read_bytes()))


@pytest.mark.parametrize(
    ("kind", "expected"), [("avro", ORDERS), ("protobuf", [DEEP]), ("json-schema", ['{"a":1,"b":"é"}'])]
)
def test_values_of_confluents_own_serializers(
    kind: str, expected: list[Any], server: Registry, tmp_path: Path, confluent: Any
) -> None:
    """Schemas refer to others, subjects are names of records, a message lies within others, and fields are added."""
    server.answers = confluent["answers"]
    values = [bytes.fromhex(each) for each in confluent["values"][kind]]
    assert rows(changelog(tmp_path, values), f"{kind}:{server.url}") == expected


def test_values_with_their_id_in_a_header_are_plain(server: Registry, tmp_path: Path, confluent: Any) -> None:
    changelog(tmp_path, [bytes.fromhex(each) for each in confluent["values"]["header"]])
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*avro-plain:.* in a header \(__value_schema_id"):
        rows(tmp_path, f"avro:{server.url}")
    (tmp_path / "money.avsc").write_text(json.dumps(MONEY))
    assert rows(tmp_path, f"avro-plain:{tmp_path}/money.avsc") == [{"cents": 5, "cur": "EUR"}]


@pytest.mark.parametrize("way", ["url", "variable"])
def test_a_password_is_sent_and_never_shown(
    way: str, server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, url = changelog(tmp_path, VALUES), server.url
    if way == "url":
        url = url.replace("//", "//ann:s%40cret@")
    else:
        monkeypatch.setenv(AUTH_VARIABLE, "ann:s@cret")
    found = statestore.inspect(path, value_serde=f"avro:{url}")
    assert "cret" not in str(found.about(CHANGELOG).facts)
    assert rows(path, f"avro:{url}") == ROWS
    assert set(server.auths) == {"Basic " + base64.b64encode(b"ann:s@cret").decode()}
    for status in (401, 302, 500, 404):
        server.answers["/schemas/ids/8"] = status
        with pytest.raises((StorageError, InvalidInputError)) as error:
            rows(path, f"avro:reader=8,{url}")
        assert "cret" not in str(error.value) and server.url in str(error.value)
    assert "/elsewhere" not in server.asked


def test_a_token_is_sent_and_a_context_is_part_of_the_url(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTH_VARIABLE, "Bearer cret.token")
    server.answers |= {f"/contexts/.eu{path}": found for path, found in server.answers.items()}
    assert rows(changelog(tmp_path, VALUES), f"avro:{server.url}/contexts/.eu") == ROWS
    assert set(server.auths) == {"Bearer cret.token"}
    server.answers["/contexts/.eu/schemas/ids/8"] = 401
    with pytest.raises(StorageError) as error:
        rows(tmp_path, f"avro:reader=8,{server.url}/contexts/.eu")
    assert "cret" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "code", "found"),
    [
        (404, "WRONG_SCHEMA", "has no schema id 7"),
        (401, "REGISTRY_FAILED", rf"asks for a user and a password with status 401.*{AUTH_VARIABLE}"),
        (500, "REGISTRY_FAILED", "answers with status 500"),
        (b"no JSON", "REGISTRY_FAILED", "expected JSON with a schema as text"),
        ([], "REGISTRY_FAILED", "expected JSON with a schema as text"),
        ({"schema": 7}, "REGISTRY_FAILED", "expected JSON with a schema as text"),
        ({"schema": "{}", "references": [{}]}, "REGISTRY_FAILED", "expected JSON with a schema as text"),
        (
            {"schema": "{}", "schemaType": "PROTOBUF"},
            "WRONG_SCHEMA",
            "schema id 7 is of type 'PROTOBUF', expected AVRO",
        ),
        ({"schema": "{}"}, "WRONG_SCHEMA", "Avro schema: found"),
    ],
)
def test_bad_answers_are_named(answer: Any, code: str, found: str, server: Registry, tmp_path: Path) -> None:
    server.answers["/schemas/ids/7"] = answer
    with pytest.raises((StorageError, InvalidInputError), match=rf"{code}.*{found}"):
        rows(changelog(tmp_path, [item(7, id=1, qty=1)]), f"avro:{server.url}")


def test_a_registry_that_refers_in_a_circle_is_left(server: Registry, tmp_path: Path) -> None:
    ask = [{"name": "a", "subject": "a", "version": 1}]
    server.answers["/subjects/a/versions/1"] = {"schema": "{}", "references": ask}
    server.add(7, NEW, references=ask)
    with pytest.raises(StorageError, match=r"REGISTRY_FAILED.*more than 100 references"):
        rows(changelog(tmp_path, [item(7, id=1, qty=1)]), f"avro:{server.url}")


def test_a_registry_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(StorageError, match=rf"REGISTRY_FAILED.*{url} does not answer for schema id 6 .*as files"):
            rows(changelog(tmp_path, VALUES), f"avro:{url}")
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*is no URL of a schema registry"):
        rows(tmp_path, "avro:reader=6,http://")


def test_without_a_sample_the_reader_must_be_named(server: Registry, tmp_path: Path) -> None:
    """Records that another reader has read are not sampled; a store without values has nothing to sample."""
    records = pa.table(
        {
            "key": pa.array([b"k"], pa.binary()),
            "value": pa.array([item(5, id=1)], pa.binary()),
            "timestamp": pa.array([1_714_550_400_000], pa.int64()),
        }
    )
    with pytest.raises(InvalidInputError, match=rf"WRONG_SCHEMA.*such as avro:reader=6,{server.url}"):
        statestore.kafka.decode(records, "key-value", value_serde=f"avro:{server.url}")
    found = statestore.kafka.decode(records, "key-value", value_serde=f"avro:reader=6,{server.url}")
    assert found["value"].to_pylist() == [{"id": 1, "qty": 1}]


def test_a_file_of_settings_has_no_password(server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is given back, with the password in the environment where the registry still asks for one."""
    file, serde = tmp_path / "stores.toml", f"avro:reader=6,{server.url.replace('//', '//ann:cret@')}"
    settings = settings_of({"valueserde": serde, "kind": "key-value", "keyserde": "string"})
    text = describe_stores("app", [known_store("items", (), settings.every, None)], {})
    assert "cret" not in text
    file.write_text(text)
    monkeypatch.setenv(AUTH_VARIABLE, "ann:other")
    (tmp_path / "logs").mkdir()
    changelog(tmp_path / "logs", VALUES)
    table = statestore.inspect(tmp_path / "logs", stores_file=str(file)).table(CHANGELOG)
    assert [row["value"] for row in table.scan().read_all().sort_by("changelog_offset").to_pylist()] == ROWS
    assert server.auths[-1] == "Basic " + base64.b64encode(b"ann:other").decode()
