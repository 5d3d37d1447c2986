"""Values of Apicurio 3's own serializer, read by the answers of its registry: content ids, global ids, references."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.registry_server import Registry, registry
from support.paths import DATA

import statestore
from statestore.formats.errors import CorruptError, InvalidInputError, StorageError
from statestore.formats.kafka.schemas.schema_registry import fetch_schema

OWN, CONFLUENT = "/apis/registry/v3", "/apis/ccompat/v7"
ORDERS = [
    {"id": 0, "note": None},
    {"id": 1 + (1 << 40), "note": None},
    {"id": 2, "note": None},
    {"id": 3 + (1 << 40), "note": "é"},
]
"""Values that ApicurioFrames has serialized, by the schema of the second one."""
CONTENT, GLOBAL = 8, 5
"""Ids of that schema."""


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(lzma.decompress((DATA / "kafka" / "apicurio-3.json.xz").read_bytes()))


@pytest.fixture
def server(recorded: Any) -> Iterator[Registry]:
    with registry() as found:
        found.answers = {path: answer.encode() for path, answer in recorded["answers"].items()}
        yield found


def decoded(recorded: Any, way: str, serde: str) -> list[Any]:
    values = pa.array([bytes.fromhex(each["value"]) for each in recorded["values"] if each["way"] == way], pa.binary())
    assert len(values) == len(ORDERS)
    keys = pa.array([b"%d" % number for number in range(len(values))], pa.binary())
    records: Any = pa.table({"key": keys, "value": values, "timestamp": pa.array([1] * len(values), pa.int64())})
    rows: list[Any] = statestore.kafka.decode(records, "key-value", value_serde=serde)["value"].to_pylist()
    return rows


@pytest.mark.parametrize(
    ("way", "serde", "reader", "url"),
    [
        ("content", "avro", CONTENT, OWN),
        ("content", "avro", CONTENT, CONFLUENT),
        ("content", "avro", CONTENT, f"{OWN}/ids/contentIds/"),
        ("content-8", "avro-apicurio", CONTENT, OWN),
        ("global", "avro", GLOBAL, f"{OWN}/ids/globalIds"),
        ("global-8", "avro-apicurio", GLOBAL, f"{OWN}/ids/globalIds"),
    ],
)
def test_ids_are_those_that_the_url_names(
    way: str, serde: str, reader: int, url: str, recorded: Any, server: Registry
) -> None:
    """Content ids where it names none, as the serializers write them where nothing else is set."""
    assert decoded(recorded, way, f"{serde}:reader={reader},{server.url}{url}") == ORDERS


def test_global_ids_are_not_taken_for_content_ids(recorded: Any, server: Registry) -> None:
    with pytest.raises(InvalidInputError, match=r"WRONG_SCHEMA.*has no schema id 4"):
        decoded(recorded, "global", f"avro:reader={CONTENT},{server.url}{OWN}")


def test_values_with_their_id_in_a_header_say_what_to_do(recorded: Any, server: Registry) -> None:
    with pytest.raises(CorruptError, match=r"KAFKA_BYTES.*avro-plain:.*header \(.*apicurio\.value\.contentId"):
        decoded(recorded, "content-header", f"avro:reader={CONTENT},{server.url}{OWN}")


@pytest.mark.parametrize(
    ("ids", "url"), [("content", OWN), ("content", f"{OWN}/ids/contentIds"), ("global", f"{OWN}/ids/globalIds")]
)
def test_references_are_fetched(ids: str, url: str, recorded: Any, server: Registry) -> None:
    texts = fetch_schema(server.url + url, recorded["weight"][ids], "AVRO")
    assert [json.loads(text)["name"] for text in texts] == ["Unit", "Weight"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"{}", "expected a JSON list of artifacts"),
        (b'[{"artifactId": "a"}]', "expected a JSON list of artifacts"),
        (b'[{"groupId": null, "artifactId": "../x", "version": "1"}]', r"has no version '1' of artifact '\.\./x'"),
        (500, "status 500 for references of schema id 8"),
    ],
)
def test_bad_references_are_named(answer: Any, found: str, server: Registry) -> None:
    server.answers[f"{OWN}/ids/contentIds/8/references"] = answer
    with pytest.raises((StorageError, InvalidInputError), match=found):
        fetch_schema(server.url + OWN, 8, "AVRO")
    assert all(path.startswith(OWN) and "/../" not in path for path in server.asked)


def test_references_in_a_circle_are_left(server: Registry) -> None:
    version = f"{OWN}/groups/default/artifacts/a/versions/1"
    around = b'[{"groupId": null, "artifactId": "a", "version": "1"}]'
    server.answers |= {f"{OWN}/ids/contentIds/8/references": around, f"{version}/references": around}
    server.answers[f"{version}/content"] = b'"int"'
    with pytest.raises(StorageError, match=r"REGISTRY_FAILED.*more than 100 references"):
        fetch_schema(server.url + OWN, 8, "AVRO")
