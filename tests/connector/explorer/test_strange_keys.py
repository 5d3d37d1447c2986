"""Every key that the explorer shows is found again: by a click, by the address of its life, and as it is typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from support.command_line import run
from support.flink.fixtures import SQL_KEYS, fixture
from support.parameters import mostly_slow

import statestore
from statestore.connector.explorer.app import application
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.row_files import RowFiles

TEXTS = [
    "", " ", " a ", "\x00", "a\x00b", "\x07", "\x1b[31m", "\x7f", "\x80", "\t", "a\tb", "\n", "a\nb", "\r\n", "\x85",
    "\u2028", "\u202e", "\ufeff", "\ufffd", "\u00e9", "e\u0301", "\U0001d11e", "\\x7f", "a\\nb", "\\", "*", "a*",
    "null", "NULL", "NaN", "1", "%41", "+", "&key=a", "#", '"', '"a"', "'", '{"k": "a"}', '{"k"', '["a"]', "a, b",
    "base64:YQ==", "hex:61",
]  # fmt: skip
BYTES = [b"", b"\x00", b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"text", b"base64:", b"\n"]
KEYS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "texts": ({"k": "string"}, TEXTS),
    "binary": ({"k": "binary"}, BYTES),
    "pairs": ({"k": "string", "n": "int"}, [(text, n) for n, text in enumerate(TEXTS[::4])]),
    "structs": ({"k": "struct<t: string>"}, [{"t": text} for text in TEXTS[1::4]]),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("strange")
    catalog = statestore.connect(folder / "own")
    for name, (key, values) in KEYS.items():
        with catalog.create_store(name, key=key, value={"v": "int"}) as store:
            for number, value in enumerate(values):
                store.put(value, number, timestamp=1_000)
            store.commit()
    places = OpenedPaths([str(folder / "own"), str(fixture(SQL_KEYS))], {})
    with TestClient(application(places, RowFiles(folder))) as found:
        yield found


def rows(client: TestClient, question: str, **given: str) -> list[dict[str, Any]]:
    response = client.get(f"/api/{question}", params={"place": "0", **given})
    assert response.status_code == 200, (given, response.text)
    found: list[dict[str, Any]] = pa.ipc.open_stream(response.content).read_all().to_pylist()
    return found


def typed_forms(row: dict[str, Any], names: list[str]) -> list[str]:
    """The texts that a user copies from the page for a key: the cell alone, and all cells as JSON."""
    cells = [row[name] for name in names]
    return [cells[0]] if len(names) == 1 else [json.dumps(cells), json.dumps(dict(zip(names, cells, strict=True)))]


@pytest.mark.parametrize("table", KEYS)
def test_a_key_that_is_shown_is_found(client: TestClient, table: str) -> None:
    names = list(KEYS[table][0])
    shown = rows(client, "rows", table=table, limit="500")
    assert sorted(row["v"] for row in shown) == sorted(map(str, range(len(KEYS[table][1]))))
    for row in shown:
        clicked = json.dumps([[name, "is", row[name]] for name in names])
        assert [each["v"] for each in rows(client, "life", table=table, where=clicked)] == [row["v"]], row
        for text in typed_forms(row, names):
            if text:  # an empty text is no question
                assert row["v"] in [each["v"] for each in rows(client, "life", table=table, key=text)], (row, text)


COUNTS, BY_TIME = "GroupAggregate[5].accState", "GroupAggregate[11].accState"  # of Flink, by doubles and by (time, row)


@pytest.mark.parametrize("table", mostly_slow([COUNTS, BY_TIME], [COUNTS]))
def test_each_zero_is_a_key_where_the_engine_has_two(client: TestClient, table: str) -> None:
    """NaNs of two bits look the same, and are shown together. Nanoseconds belong to a key."""
    shown = rows(client, "rows", place="1", table=table)
    keys = [row["key"] for row in shown]
    assert any("-0.0" in key for key in keys) and len(set(keys)) >= len(keys) - 2
    for key in {each for each in keys if table == COUNTS or "-0.0" in each}:
        for given in ({"where": json.dumps([["key", op, key]])} for op in ("is", "=")):
            life = rows(client, "life", place="1", table=table, **given)
            assert {row["key"] for row in life} == {key}
            assert len([row for row in life if row["__to"] is None]) == keys.count(key)
        assert rows(client, "life", place="1", table=table, key=key) == life
        state = rows(client, "rows", place="1", table=table, where=json.dumps([["key", "is", key]]))
        assert [row["key"] for row in state] == [key] * keys.count(key)
    both = rows(client, "rows", place="1", table=COUNTS, where='[["key.f0", "=", "0"]]')
    assert sorted(row["key"] for row in both) == ['{"f0": -0.0}', '{"f0": 0.0}']


@pytest.mark.parametrize("given", [{"where": '[["key", "is", "{\\"f0\\": -0.0}"]]'}, {"key": "-0.0"}])
def test_a_copied_text_has_the_zero_that_was_named(client: TestClient, given: dict[str, str]) -> None:
    about = {"place": "1", "table": COUNTS, "kind": "life"}
    copied = client.get("/api/copies", params={**about, **given}).json()
    names: dict[str, Any] = {}
    exec(copied["python"]["text"], names)
    answer = statestore.sql(str(fixture(SQL_KEYS)), copied["sql"]["text"])
    _, name, *rest = shlex.split(copied["cli"]["text"])
    command = run(name, "--json", *rest)
    for keys in (names["rows"]["key"].to_pylist(), answer["key"].to_pylist(), [row["key"] for row in command.rows]):
        assert len(keys) == 2 and {repr(key["f0"]) for key in keys} == {"-0.0"}
    assert "CAST(`key`.`f0` AS STRING) = '-0.0'" in copied["spark"]["text"]
