"""Many questions at a time: each kind has a line, with an end, and keeps no other kind waiting."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.explorer import app, exports, sql_answers
from statestore.connector.explorer import opened_paths as places_module
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.server import Explorer
from statestore.formats.error_codes import ErrorCode

PATIENCE = 60.0
MANY = 80  # more than any line takes
KINDS = [
    ("/api/sql?sql=SELECT+2&run={}", sql_answers, "_answer", 8, "statements"),
    ("/api/rows?table=s", app, "page_of", 64, "questions that read rows"),
    ("/api/export?table=s&form=csv", exports, "export", 8, "exports"),
]


@pytest.fixture
def explorer(tmp_path: Path) -> Iterator[Explorer]:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        store.put("a", 1, timestamp=1)
        store.commit()
    made = statestore.explore(tmp_path)
    yield made
    made.stop()


def headers(explorer: Explorer) -> dict[str, str]:
    return {"x-statestore-token": explorer.url.partition("token=")[2]}


def ask(explorer: Explorer, path: str) -> socket.socket:
    """Send a question and wait for nothing."""
    asked = socket.create_connection(("127.0.0.1", urlsplit(explorer.url).port or 0), PATIENCE)
    lines = [f"{name}: {value}" for name, value in headers(explorer).items()]
    host = f"Host: 127.0.0.1:{urlsplit(explorer.url).port}"
    asked.sendall("\r\n".join([f"GET {path} HTTP/1.1", host, *lines, "", ""]).encode())
    return asked


def answer(asked: socket.socket) -> tuple[int, str]:
    found = HTTPResponse(asked)
    found.begin()
    return found.status, found.read().decode("utf-8", "replace")


def answered(asked: list[socket.socket], number: int) -> list[socket.socket]:
    """Return the sockets that have an answer, once there are so many of them."""
    found: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        for each in asked:
            selector.register(each, selectors.EVENT_READ, each)
        while len(found) < number:
            ready = [key.data for key, _ in selector.select(PATIENCE)]
            assert ready, f"{len(found)} of {number} are answered"
            for each in ready:
                selector.unregister(each)
                found.append(each)
    return found


@pytest.mark.parametrize(("path", "module", "name", "most", "kind"), mostly_slow(KINDS, KINDS[:2]))
def test_more_questions_than_a_line_takes_are_refused_and_no_others_wait(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, path: str, module: Any, name: str, most: int, kind: str
) -> None:
    kept = f"{explorer.url.partition('?')[0]}api/sql/rows?sql=SELECT+1"
    assert httpx.get(kept, headers=headers(explorer)).status_code == 200
    goes_on = threading.Event()
    work: Callable[..., Any] = getattr(module, name)

    def waiting(*args: Any) -> Any:
        assert goes_on.wait(PATIENCE)
        return work(*args)

    monkeypatch.setattr(module, name, waiting)
    asked = [ask(explorer, path.format(number)) for number in range(MANY)]
    try:
        refused = answered(asked, MANY - most)
        for other in ("overview", "news?table=s", "versions?table=s", "sql/names", "progress", "moment?table=s&text=1"):
            found = httpx.get(f"{explorer.url.partition('?')[0]}api/{other}", headers=headers(explorer))
            assert found.status_code == 200, found.text
        if kind != "questions that read rows":  # the rows of an answer that is kept are some of these
            assert httpx.get(kept, headers=headers(explorer)).status_code == 200
    finally:
        goes_on.set()
    for each in refused:
        status, text = answer(each)
        assert status == 503 and f"the explorer has {most} {kind} to answer" in text and "EXPLORER_LIMIT" in text
    assert [answer(each)[0] for each in asked if each not in refused] == [200] * most
    for each in asked:
        each.close()


def test_who_leaves_the_line_makes_room(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, runs = threading.Event(), threading.Event()
    begun = []

    def waiting(path: Path, text: str, *_: Any) -> Any:
        begun.append(text)
        runs.set()
        assert goes_on.wait(PATIENCE)
        raise statestore.NotFoundError(ErrorCode.TABLE_NOT_FOUND, "nothing")

    monkeypatch.setattr(sql_answers, "_answer", waiting)
    first = ask(explorer, "/api/sql?sql=SELECT+1")
    assert runs.wait(PATIENCE)
    asked = [ask(explorer, f"/api/sql?sql=SELECT+2&run={number}") for number in range(8)]
    refused = answered(asked, 1)  # the other ones wait
    assert answer(refused[0])[0] == 503
    for each in asked:
        each.close()
    late = ask(explorer, "/api/sql?sql=SELECT+3")
    while not goes_on.is_set():  # until the server has seen that the others are gone
        with selectors.DefaultSelector() as selector:
            selector.register(late, selectors.EVENT_READ)
            if selector.select(0.3):
                assert answer(late)[0] == 503
                late.close()
                late = ask(explorer, "/api/sql?sql=SELECT+3")
            else:
                goes_on.set()
    assert answer(first)[0] == answer(late)[0] == 404
    assert begun == ["SELECT 1", "SELECT 3"]
    first.close()
    late.close()


def test_a_place_that_opens_slowly_keeps_no_other_place_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / name) for name in ("slow", "quick")]
    for path in paths:
        statestore.connect(path).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    places = OpenedPaths(paths, {})
    goes_on, runs = threading.Event(), threading.Event()
    opened = open_warehouse

    def opening(path: str, options: Any) -> Any:
        if path == paths[0]:
            runs.set()
            assert goes_on.wait(PATIENCE)
        return opened(path, options)

    monkeypatch.setattr(places_module, "open_warehouse", opening)
    worker = threading.Thread(target=lambda: places.warehouse(0))
    worker.start()
    assert runs.wait(PATIENCE)
    places.renew(1)
    assert places.warehouse(1).tables() == ["s"]
    goes_on.set()
    worker.join(PATIENCE)
    assert places.warehouse(0).tables() == ["s"]
