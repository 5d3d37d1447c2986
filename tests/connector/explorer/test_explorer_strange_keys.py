"""Every key that the explorer shows is found again: by a click, by the address of its life, and as it is typed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import statestore
from statestore.connector.explorer.places import Places
from statestore.connector.explorer.server.app import application
from statestore.connector.explorer.spools import Spools

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
    with TestClient(application(Places([str(folder / "own")], {}), Spools(folder))) as found:
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
        clicked = json.dumps([[name, "=", row[name]] for name in names])
        assert [each["v"] for each in rows(client, "life", table=table, where=clicked)] == [row["v"]], row
        for text in typed_forms(row, names):
            if text:  # an empty text is no question
                assert row["v"] in [each["v"] for each in rows(client, "life", table=table, key=text)], (row, text)
