"""Connections that ask nothing, or read nothing, are closed, and keep nobody else from an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

import statestore
from statestore.connector.explorer import guard
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.server import Explorer

QUICK = 0.02  # seconds between two looks
PATIENCE = 60.0
Connect = Callable[[bytes], socket.socket]


@pytest.fixture
def explorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    monkeypatch.setattr(guard, "SECONDS", QUICK)
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    made = statestore.explore(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def connect(explorer: Explorer) -> Iterator[Connect]:
    """Connect to the explorer and send some bytes."""
    made = []

    def connected(sent: bytes) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", urlsplit(explorer.url).port or 0), PATIENCE)
        made.append(found)
        found.sendall(sent)
        return found

    yield connected
    for each in made:
        each.close()


def ended(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection. Raises TimeoutError if it does not."""
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except ConnectionResetError:
        pass
    return received


def request(explorer: Explorer, path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{urlsplit(explorer.url).port}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_a_connection_without_a_whole_request_is_closed(explorer: Explorer, connect: Connect) -> None:
    whole = request(explorer, "/")
    for sent in (b"", whole[:1], whole[:-2], b"POST / HTTP/1.1\r\nContent-Le"):
        assert ended(connect(sent)) == b""
    upload = request(explorer, "/nothing", "Content-Length: 1000000").replace(b"GET", b"POST")
    for sent in (whole, whole + whole[:-2], upload):
        assert ended(connect(sent)).startswith(b"HTTP/1.1 ")


def test_bytes_that_trickle_in_are_no_progress(
    explorer: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = guard.Connection.data_received
    slow = connect(b"GET / HTTP/1.1\r\n")

    def more(self: guard.Connection, data: bytes) -> None:
        received(self, data)
        slow.send(b"x")  # for each byte that has come, as long as the connection is open

    monkeypatch.setattr(guard.Connection, "data_received", more)
    slow.send(b"x")
    assert ended(slow) == b""


def test_an_answer_that_takes_long_is_waited_for(
    explorer: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, has_looked = 0, threading.Event()
    look = guard.Connection._look

    def counted(self: guard.Connection) -> None:
        nonlocal looked
        look(self)
        looked += 1
        if looked > 3:
            has_looked.set()

    def overview(self: OpenedPaths) -> list[object]:
        assert has_looked.wait(PATIENCE)
        return []

    monkeypatch.setattr(guard.Connection, "_look", counted)
    monkeypatch.setattr(OpenedPaths, "overview", overview)
    token = explorer.url.partition("token=")[2]
    assert ended(connect(request(explorer, "/api/overview", f"x-statestore-token: {token}"))).endswith(b"[]")


def test_a_client_that_reads_nothing_is_closed(
    explorer: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are more than the buffers of a socket hold."""
    monkeypatch.setattr(guard, "LOOKS", 2)
    lost = threading.Event()
    connection_lost = guard.Connection.connection_lost

    def closed(self: guard.Connection, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    monkeypatch.setattr(guard.Connection, "connection_lost", closed)
    connect(request(explorer, "/static/app.js") * 20)
    assert lost.wait(PATIENCE)


def test_of_many_connections_the_oldest_ones_without_a_question_go(
    explorer: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SECONDS", 3600.0)
    monkeypatch.setattr(guard, "MOST", 8)
    made = [connect(b"GET /") for _ in range(40)]
    assert httpx.get(explorer.url).status_code == 200
    for each in made[:32]:
        assert ended(each) == b""


def test_what_is_no_question_leaves_no_line_on_the_terminal(
    explorer: Explorer, connect: Connect, capfd: pytest.CaptureFixture[str]
) -> None:
    upgrade = request(explorer, "/api/overview", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a")
    assert ended(connect(upgrade)).startswith(b"HTTP/1.1 403")
    assert ended(connect(b"\x16\x03\x01 this is TLS\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert capfd.readouterr() == ("", "")
