"""The job that keeps the states of a place: exactly the parts and edges that the files record."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture
from support.kafka.unpacked import unpack

import statestore
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles

Asked = tuple[dict[str, Any], dict[str, str]]


def job_of(path: Path, row_files: Path, options: Mapping[str, str] | None = None) -> Asked:
    """Return the job, and the part that keeps each state."""
    client = TestClient(application(OpenedPaths([str(path)], options or {}), RowFiles(row_files)))
    response = client.get("/api/job")
    assert response.status_code == 200, response.text
    (place,) = client.get("/api/overview").json()
    return response.json(), {each["store"]: each["operator"] for each in place["tables"]}


@pytest.mark.parametrize("name", ["spark4.3.0-join__rkcl", "spark4.3.0-chain__rkcl", "spark4.3.0-agg__offv2"])
def test_sources_of_a_query_are_the_lines_of_its_log(tmp_path: Path, name: str) -> None:
    checkpoint = checkpoint_path(name)
    found, parts = job_of(checkpoint, tmp_path)
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name)).name
    lines = (checkpoint / "offsets" / newest).read_text().rstrip("\n").split("\n")[2:]
    assert len(lines) == (2 if "join" in name else 1)
    positions = [line.removeprefix(f"{at}:") for at, line in enumerate(lines)]
    assert found["inputs"] == [
        {"name": f"source {at}", "detail": f"read up to {position}", "parts": []}
        for at, position in enumerate(positions)
    ]
    folders = sorted(each.name for each in (checkpoint / "state").iterdir())
    assert sorted({str(part).rpartition("[")[2].rstrip("]") for part in parts.values()}) == folders
    if "join" in name:
        assert parts == dict.fromkeys(("left", "right"), "symmetricHashJoin [0]")


def test_a_source_without_a_position_and_a_log_that_is_gone(tmp_path: Path) -> None:
    name = "spark4.3.0-join__rkcl"
    checkpoint = shutil.copytree(checkpoint_path(name), tmp_path / name)
    log = checkpoint / "offsets" / "6"
    log.write_text(log.read_text().rstrip("\n").rpartition("\n")[0] + "\n-\n")
    for checksum in checkpoint.rglob(".6.crc"):
        checksum.unlink()
    found, _ = job_of(checkpoint, tmp_path)
    assert [each["detail"] for each in found["inputs"]] == ['read up to {"logOffset":5}', "nothing read yet"]
    log.unlink()
    found, parts = job_of(checkpoint, tmp_path)
    assert found["inputs"] is None and set(parts) == {"left", "right"}


def described(topology: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the sub-topology of each store, and the topics that each sub-topology reads."""
    stores: dict[str, str] = {}
    topics: dict[str, set[str]] = {}
    part = ""
    for line in topology.read_text().splitlines():
        if found := re.search(r"Sub-topology: (\d+)( for global store)?", line):
            part = "global stores" if found[2] else f"sub-topology {found[1]}"
        if found := re.search(r"Source: \S+ \(topics: \[(.*)\]\)", line):
            topics.setdefault(part, set()).update(found[1].split(", "))
        if found := re.search(r"\(stores: \[(.+)\]\)", line):
            stores.update(dict.fromkeys(found[1].split(", "), part))
    return stores, topics


@pytest.mark.quick("True")
@pytest.mark.parametrize("is_given", [False, True])
def test_sub_topologies_and_their_topics_are_those_of_the_application(tmp_path: Path, is_given: bool) -> None:
    orders = unpack("orders", tmp_path)
    topology = orders / "topology.txt"
    stores, topics = described(topology)
    found, parts = job_of(orders / "state" / "orders", tmp_path, {"topologyFile": str(topology)} if is_given else {})
    assert parts == {name: stores[name] for name in parts} and len(set(parts.values())) > 10
    edges = {(each["name"].removeprefix("topic "), part) for each in found["inputs"] for part in each["parts"]}
    real = {(topic, part) for part, read in topics.items() if part in parts.values() for topic in read}
    if is_given:
        assert edges == real
    else:  # a description has the names of inner topics without the application, and topics that nobody has read yet
        inner = {(f"orders-{topic}", part) for topic, part in real if "subscription" in topic}
        assert edges <= real | inner and len(edges) > 15
    assert found["words"] == ["sub-topology", "sub-topologies"]


def test_operators_without_a_state_are_told_from_those_that_keep_one(tmp_path: Path) -> None:
    found, parts = job_of(fixture("unaligned"), tmp_path)
    assert {str(part).split(" ")[0] for part in parts.values()} == {"kv-long"} and len(parts) == 5
    assert found["stateless"] == [
        "Sink: Writer (6282612473ec1fbe07994fcb4ecdc9be)",
        "src (Source: Custom Source, f362c87ffabe89c8a91fa7d0a523ba6c)",
    ]
    assert found["inputs"] is None and "not recorded" in found["unrecorded"]


def test_stores_of_our_own_belong_to_no_job(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    client = TestClient(application(OpenedPaths([str(tmp_path / "own")], {}), RowFiles(tmp_path)))
    assert client.get("/api/job").json() is None
    assert "expected 0 to 0" in client.get("/api/job", params={"place": "1"}).json()["error"]
