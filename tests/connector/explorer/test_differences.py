"""Differences that are restricted to a filter, seen at two state times, and counted by partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.connector.explorer import differences, limits, row_files
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles

START = 1_714_550_000_000
NAME = "spark4.3.0-agg__rkcl"
KEYS = 60


def price(key: int, commit: int) -> float | None:
    """The price of a key after a commit; None where it has no row."""
    return None if (key + commit) % 5 == 0 or key % 7 > commit + 3 else float(key % 4 + commit * (key % 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("differences")
    with statestore.connect(found / "own").create_store(
        "prices", key={"item": "string"}, value={"price": "double"}
    ) as store:
        for commit in range(3):
            for key in range(KEYS):
                value, moment = price(key, commit), START + commit * 1000
                if value is None:
                    store.delete(f"i{key:02d}", timestamp=moment)
                else:
                    store.put(f"i{key:02d}", value, timestamp=moment)
            store.commit()
    return found


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    places = OpenedPaths([str(folder / "own"), str(checkpoint_path(NAME))], {})
    with TestClient(application(places, RowFiles(tmp_path))) as found:
        yield found


def asked(client: TestClient, table: str = "prices", place: int = 0, route: str = "diff", **given: Any) -> pa.Table:
    response = client.get(f"/api/{route}", params={"table": table, "place": place, **given})
    assert response.status_code == 200, response.text
    return pa.ipc.open_stream(response.content).read_all()


def expected(old: int, new: int, passes: Any) -> dict[str, str]:
    """Return the kind of change of each key whose value before or after passes."""
    found = {}
    for key in range(KEYS):
        before, after = price(key, old), price(key, new)
        if before == after or not any(each is not None and passes(key, each) for each in (before, after)):
            continue
        found[f"i{key:02d}"] = "added" if before is None else "removed" if after is None else "changed"
    return found


def changes(rows: pa.Table) -> dict[str, str]:
    return dict(zip(rows["item"].to_pylist(), rows["_change"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ([], lambda key, value: True),
        ([["price", ">", "2"]], lambda key, value: value > 2),
        ([["price", "=", "1"]], lambda key, value: value == 1),
        ([["item", "starts_with", "i3"], ["price", ">=", "1"]], lambda key, value: 30 <= key < 40 and value >= 1),
        ([["price", "is_not_null"]], lambda key, value: True),
        ([["price", "is_null"]], lambda key, value: False),
    ],
)
def test_a_filter_holds_for_the_row_before_or_after(client: TestClient, where: Any, passes: Any) -> None:
    found = asked(client, from_version=1, to_version=3, where=json.dumps(where))
    wanted = expected(0, 2, passes)
    assert changes(found) == wanted
    facts = {kind: int(found.schema.metadata[kind.encode()]) for kind in ("added", "changed", "removed")}
    assert facts == {kind: Counter(wanted.values())[kind] for kind in facts}
    assert b"places" not in found.schema.metadata


def test_both_points_have_state_times(client: TestClient) -> None:
    times: dict[str, Any] = {"from_as_of": "2024-05-01T07:53:20.500Z", "to_as_of": "2024-05-01T07:53:21.500Z"}
    found = asked(client, from_version=3, to_version=3, **times)
    assert changes(found) == expected(0, 1, lambda key, value: True)


def test_all_rows_are_paged_through(client: TestClient) -> None:
    wanted = expected(0, 2, lambda key, value: True)
    found = asked(client, from_version=1, to_version=3, limit=4)
    counts = sum(int(found.schema.metadata[kind]) for kind in (b"added", b"changed", b"removed"))
    assert found.num_rows == 4 and counts == len(wanted) == int(found.schema.metadata[b"kept"])
    shown: dict[str, dict[str, Any]] = {}
    for offset in range(0, len(wanted) + 7, 7):
        page = asked(client, route="diff_rows", from_version=1, to_version=3, offset=offset, limit=7)
        assert page.schema.metadata[b"total"] == str(len(wanted)).encode()
        assert (page.schema.metadata[b"last"] == b"1") == (offset + 7 >= len(wanted))
        shown |= {row["item"]: row for row in page.to_pylist()}
    assert {item: row["_change"] for item, row in shown.items()} == wanted
    for item, row in shown.items():
        before, after = (price(int(item[1:]), commit) for commit in (0, 2))
        sides = (row["_old.price"], row["_new.price"])
        assert sides == tuple(None if each is None else json.dumps(each) for each in (before, after))
        assert row["_changed_columns"] == ('["price"]' if row["_change"] == "changed" else None)


def test_rows_beyond_the_size_of_a_file_are_counted(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "MAX_BYTES", 0)
    found = asked(client, from_version=1, to_version=3)
    wanted = Counter(expected(0, 2, lambda key, value: True).values())
    assert {kind: int(found.schema.metadata[kind.encode()]) for kind in wanted} == wanted
    assert found.num_rows == 0 and found.schema.metadata[b"kept"] == b"0"
    assert asked(client, route="diff_rows", from_version=1, to_version=3).schema.metadata[b"total"] == b"0"


def test_partitions_are_counted(client: TestClient) -> None:
    found = asked(client, "state", 1, from_version=1, to_version=5)
    whole = statestore.inspect(checkpoint_path(NAME)).table("state").diff(1, 5).read_all().to_pylist()
    counted = Counter(((row["_new"] or row["_old"])["partition_id"], row["_change"]) for row in whole)
    assert found.schema.metadata[b"place"] == b"partition_id"
    for place, *numbers in json.loads(found.schema.metadata[b"places"]):
        assert numbers == [counted.pop((place, kind), 0) for kind in ("added", "changed", "removed")]
    assert whole and not counted


def test_what_memory_would_not_hold_is_not_compared(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both moments of a checkpoint are read whole; of a store the rows that differ are listed, 16 bytes each."""
    monkeypatch.setattr(differences, "MAX_BYTES", 1_000)
    both = {"from_version": 1, "to_version": 3}
    of_checkpoint = client.get("/api/diff", params={"table": "state", "place": 1, "from_version": 1, "to_version": 5})
    for response in (of_checkpoint, client.get("/api/diff", params={"table": "prices", **both})):
        assert response.status_code == 409 and response.json()["code"] == "EXPLORER_LIMIT"
        assert "statestore diff" in response.json()["error"]
    monkeypatch.setattr(differences, "MAX_BYTES", 10_000)
    assert changes(asked(client, from_version=1, to_version=3)) == expected(0, 2, lambda key, value: True)


def test_a_comparison_ends_with_its_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", -1.0)
    for table, place, last in (("state", 1, 5), ("prices", 0, 3)):
        given: dict[str, str | int] = {"table": table, "place": place, "from_version": 1, "to_version": last}
        response = client.get("/api/diff", params=given)
        assert response.status_code == 409 and "narrow the question" in response.json()["error"]
