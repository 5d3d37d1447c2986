"""Each command of "Copy as an edit" runs: the one that changes a row leaves all rows as they are, and the one that
deletes it deletes it and nothing else."""

from __future__ import annotations

import datetime
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.parameters import mostly_slow

import statestore
from statestore.connector.edit.edit import Edit
from statestore.connector.edit.fitted_values import fitted
from statestore.connector.edit.row_statements import literal
from statestore.connector.explorer.app import application
from statestore.connector.explorer.edit_copies import command_of
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles
from statestore.connector.sql.sql_statement import DuckDBSQL, parse
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal


@dataclass(frozen=True)
class Place:
    path: str
    options: dict[str, Any] = field(default_factory=dict)

    def client(self, folder: Path) -> TestClient:
        options = {"storesFile": self.options["stores_file"]} if self.options else {}
        return TestClient(application(OpenedPaths([self.path], options), RowFiles(folder)))

    def edit(self) -> Edit:
        return statestore.edit(self.path, **self.options)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    kafka = unpack("orders", tmp_path_factory.mktemp("kafka"))
    flink = {run: fixture(run) / manifest(run)["snapshots"][-1]["path"] for run in ("rocksdb", "hashmap")}
    yield {
        "kafka": Place(
            str(kafka / "state" / "orders"), {"stores_file": str(stores_file("orders", kafka / "stores.toml"))}
        ),
        **{run: Place(str(path)) for run, path in flink.items()},
        **{
            name: Place(str(checkpoint_path(f"spark4.3.0-{name}")))
            for name in ("agg__hdfs", "win__rkcl", "sess__rkcl", "join__hdfs", "twsttl__rkcl", "twsrow__rkcl")
        },
    }


def rows_of(edits: Any) -> tuple[Counter[str], Counter[str]]:
    """The rows that edits remove, and those that they add."""
    sides = []
    for name in ("removed", "added"):
        sides.append(Counter(repr(row) for each in edits for row in getattr(each, name).to_pylist()))
    return sides[0] - sides[1], sides[1] - sides[0]


CASES = [
    ("agg__hdfs", "state"),
    ("rocksdb", "kv-string.attrs"),
    ("kafka", "stock"),
    ("win__rkcl", "state"),
    ("sess__rkcl", "state"),
    ("join__hdfs", "left"),
    ("twsttl__rkcl", "mp"),
    ("twsttl__rkcl", "lst"),
    ("twsttl__rkcl", "tval"),
    ("twsttl__rkcl", "timers"),
    ("twsrow__rkcl", "timers"),
    ("hashmap", "kv-long.history"),
    ("hashmap", "kv-string.count"),
    ("kafka", "deliveries-outer-this-join-store"),
]


@pytest.mark.parametrize(("name", "state"), mostly_slow(CASES, CASES[:5]))
def test_commands_of_rows(places: dict[str, Place], tmp_path: Path, name: str, state: str) -> None:
    place = places[name]
    own = place.edit().table(state).schema.names
    table = statestore.inspect(place.path, **place.options).table(state)
    rows = table.scan().read_all()
    chosen = sorted({0, rows.num_rows // 2, rows.num_rows - 1})
    texts = 0
    with place.client(tmp_path) as client:
        for number in chosen:
            response = client.get("/api/edits", params={"table": state, "row": str(number)})
            assert response.status_code == 200, response.text
            found = response.json()
            assert len(found["cells"]) == len(rows.column_names)
            row = rows.slice(number, 1).select(own).to_pylist()[0]
            for kind in ("update", "delete", "delete_key"):
                command = found.get(kind)
                if command is None or "why" in command:
                    continue
                words = shlex.split(command["text"])
                assert words[:5] == ["statestore", "edit", place.path, "--into", f"{place.path}-edited"]
                edit = place.edit()
                edit.sql(words[-1])
                gone, come = rows_of(edit.edits())
                assert not come, command
                if kind == "update":
                    assert not edit.edits(), command
                elif kind == "delete":
                    assert gone == Counter([repr(row)]), command
                else:
                    assert gone[repr(row)] and gone.total() > 0, command
                texts += 1
    assert texts, "no row had a command"


def test_rows_that_no_statement_names_say_so(places: dict[str, Place], tmp_path: Path) -> None:
    """Two rows of a store that keeps duplicates have one key, and a timer is nothing but its key."""
    kafka, timers = places["kafka"], places["twsttl__rkcl"]
    store = "deliveries-outer-this-join-store"
    rows = statestore.inspect(kafka.path, **kafka.options).table(store).scan().read_all()
    keys = [repr((row["key"], row["window_start"])) for row in rows.to_pylist()]
    twice = next(number for number, key in enumerate(keys) if keys.count(key) > 1)
    with kafka.client(tmp_path) as client:
        found = client.get("/api/edits", params={"table": store, "row": str(twice)}).json()
    assert f"has {keys.count(keys[twice])} rows like this one" in found["update"]["why"] == found["delete"]["why"]
    with timers.client(tmp_path) as client:
        found = client.get("/api/edits", params={"table": "timers", "row": "0"}).json()
    assert "nothing but its key" in found["update"]["why"] and "text" in found["delete"]


def test_the_row_is_that_of_the_order_and_version_shown(places: dict[str, Place], tmp_path: Path) -> None:
    place = places["agg__hdfs"]
    table = statestore.inspect(place.path).table("state")
    first, last = (versions := table.versions()["version"].to_pylist())[0], versions[-1]
    with place.client(tmp_path) as client:
        for asked in ({"sort": "-value"}, {"version": str(first)}, {"where": '[["value.sum", ">", 900]]'}, {}):
            shown = client.get("/api/rows", params={"table": "state", **asked, "offset": "3", "limit": "1"})
            cells = [column[0].as_py() for column in pa.ipc.open_stream(shown.content).read_all().columns]
            found = client.get("/api/edits", params={"table": "state", **asked, "row": "3"}).json()
            assert found["cells"] == cells
            words = shlex.split(found["delete"]["text"])
            assert (f"--version={first}" in words) == ("version" in asked)
            edit = statestore.edit(place.path, version=int(asked.get("version", last)))
            edit.sql(words[-1])
            assert rows_of(edit.edits())[0].total() == 1
        wrong = client.get("/api/edits", params={"table": "state", "row": "100000"})
        assert (wrong.status_code, "there is no row 100000" in wrong.text) == (400, True)


def test_stores_are_not_edited_so(tmp_path: Path) -> None:
    with statestore.connect(tmp_path / "own").create_store("s", key={"k": "string"}, value={"v": "int"}) as store:
        store.put("a", {"v": 1}, timestamp=1)
        store.commit()
    with Place(str(tmp_path / "own")).client(tmp_path / "files") as client:
        assert not client.get("/api/tables", params={"names": '["s"]'}).json()[0]["editable"]
        refused = client.get("/api/edits", params={"table": "s", "row": "0"})
    assert refused.json()["code"] == "EDIT_UNSUPPORTED"


# Values of all types, and texts between the quotes of a shell

UTC = pa.timestamp("us", "UTC")
INNER = pa.struct([("a", pa.int32()), ("b'c", pa.string())])
VALUES: list[tuple[Any, pa.DataType]] = [
    (True, pa.bool_()),
    (-128, pa.int8()),
    (-(2**63), pa.int64()),
    (2**64 - 1, pa.uint64()),
    *((value, pa.float64()) for value in (0.1, -0.0, 0.0, float("nan"), float("-inf"), -1e300, 5e-324, 1234567.125)),
    (0.1, pa.float32()),
    (Decimal("-12345678901234567890.123456789012345678"), pa.decimal128(38, 18)),
    (Decimal("1.50"), pa.decimal128(10, 2)),
    ('it\'s "q" \n \\ $x `y` ☃\0z', pa.string()),
    ("", pa.large_string()),
    (b"\x00\xff'", pa.binary()),
    (b"abcd", pa.binary(4)),
    (datetime.date(1, 1, 1), pa.date32()),
    (99_999_999, pa.date32()),
    *((value, UTC) for value in (-62135596800000000, 253402300799999999, -99999999999999999, 999999999999999999)),
    (-1, pa.timestamp("us")),
    (1234567890123, pa.timestamp("ms")),
    (-123456789, pa.timestamp("ns")),
    (datetime.time(23, 59, 59, 999999), pa.time64("us")),
    ([1, None, 3], pa.list_(pa.int64())),
    ([], pa.list_(pa.string())),
    ([None, {"a": None, "b'c": None}, {"a": 1, "b'c": "x"}], pa.list_(INNER)),
    ([[1], [], None], pa.list_(pa.list_(pa.int8()))),
    ({"a": 1, "b'c": None}, INNER),
    (None, INNER),
    ([("a", [1.5, float("nan")]), ("b", None)], pa.map_(pa.string(), pa.list_(pa.float64()))),
    ([], pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[f"{kind} {value!r}" for value, kind in VALUES])
def test_a_literal_is_the_value_bit_by_bit(value: Any, kind: pa.DataType) -> None:
    wanted = pa.array([value], pa.int32()).cast(kind) if value == 99_999_999 else pa.array([value], kind)
    text = parse(f"SELECT {literal(wanted[0])} AS value", DuckDBSQL).sql(dialect=DuckDBSQL)
    with duckdb.connect() as connection:
        answer = connection.sql(text).to_arrow_table()
        found = fitted(answer, pa.schema([("value", kind)]), "state", connection).column("value").chunk(0)
    sides = [[comparable(each, by_bits=True, in_order=True)] for each in (wanted, found)]
    assert keys_equal(sides[0], np.array([0]), sides[1], np.array([0])).all(), text


@pytest.mark.parametrize("text", ["k = 'a'", "k = 'a $HOME'", "k = 'it''s \"x\"'", "k = '\n\\ `id` !1 ☃'", "k = 5"])
def test_a_shell_passes_the_statement_on_as_it_is(text: str) -> None:
    command = command_of("/a b/c'd", f"DELETE FROM state WHERE {text}", ["--version=3"])
    assert command.startswith("statestore edit ")
    printed = subprocess.run(
        ["sh", "-c", command.replace("statestore", "printf '%s\\0'", 1)], capture_output=True, check=True
    )
    words = printed.stdout.decode().split("\0")
    assert words[:-1] == [
        "edit", "/a b/c'd", "--into", "/a b/c'd-edited", "--version=3", f"DELETE FROM state WHERE {text}"
    ]  # fmt: skip
