"""Nobody but a browser of this machine with the token is answered."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest
from starlette.responses import PlainTextResponse
from support.parameters import mostly_slow

import statestore
from statestore.connector.explorer import guard
from statestore.connector.explorer.guard import Guard
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.server import Explorer


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    warehouse = tmp_path_factory.mktemp("guard")
    statestore.connect(warehouse).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    made = statestore.explore(warehouse)
    yield made
    made.stop()


def test_questions_need_the_token(explorer: Explorer) -> None:
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    base = explorer.url.partition("?")[0]
    assert len(token) >= 32 and base.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=base) as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/app.js").status_code == 200
        for headers in ({}, {"x-statestore-token": "wrong"}, {"x-statestore-token": ""}):
            assert client.get("/api/overview", headers=headers).status_code == 403
        assert client.get("/api/overview", headers={"x-statestore-token": token}).status_code == 200
        # A cookie would also go to servers of other users on this machine, whose ports are others.
        assert "set-cookie" not in client.get(f"/?token={token}").headers
        twice = [("x-statestore-token", token), ("x-statestore-token", "wrong")]
        assert client.get("/api/overview", headers=twice).status_code == 403


def test_a_name_that_leads_here_is_refused(explorer: Explorer) -> None:
    """DNS rebinding: the page of another site asks under its own name."""
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    port = urlsplit(explorer.url).port
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
            for path in ("/", "/static/app.js", "/api/overview"):
                found = client.get(path, headers={"host": host, "x-statestore-token": token})
                assert found.status_code in (400, 421), (host, path)


def test_at_the_usual_port_a_browser_names_none() -> None:
    hosts = {port: Guard(PlainTextResponse("here"), "token", port)._hosts() for port in (80, 8080)}
    assert {"127.0.0.1", "127.0.0.1:80", "localhost"} < set(hosts[80])
    assert "127.0.0.1" not in hosts[8080] and "localhost:8080" in hosts[8080]


def test_every_answer_has_the_policy_without_eval(explorer: Explorer) -> None:
    with httpx.Client(base_url=explorer.url.partition("?")[0]) as client:
        for path in ("", "static/app.js", "api/overview"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


def test_nothing_but_the_given_paths_is_served(explorer: Explorer) -> None:
    token = parse_qs(urlsplit(explorer.url).query)["token"][0]
    with httpx.Client(base_url=explorer.url.partition("?")[0], headers={"x-statestore-token": token}) as client:
        for path in ("static/../serve.py", "static/%2e%2e/serve.py", "static/", "api/", "etc/passwd"):
            assert client.get(path).status_code == 404
        for path in ("job", "news", "tables", "rows", "sql"):
            wrong = client.get(f"api/{path}?place=x&sql=SELECT+1")
            assert wrong.status_code == 400 and "expected a whole number" in wrong.text
        assert client.get("api/rows", params={"place": "0", "table": "../s"}).status_code in (400, 404)


def test_it_ends_and_removes_its_files(tmp_path: Path) -> None:
    made = statestore.explore(tmp_path)
    folder = Path(made._folder.name)
    assert folder.is_dir() and "iframe" in made._repr_html_() and made.url in repr(made)
    made.stop()
    assert not folder.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(made.url)


BROWSER = """#!{python}
import json, os, sys, urllib.parse, urllib.request
page = urllib.request.url2pathname(urllib.parse.urlsplit(sys.argv[1]).path)
modes = [oct(os.stat(each).st_mode & 0o777) for each in (page, os.path.dirname(page))]
with open({said!r}, "w") as file:
    json.dump([sys.argv[1], modes, open(page).read()], file)
"""


@pytest.mark.parametrize("ending", mostly_slow([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], {signal.SIGTERM}))
def test_the_command_serves_until_it_is_ended(tmp_path: Path, ending: signal.Signals) -> None:
    """The browser is started with the name of a private file, which leads to the address; nothing is left of it."""
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    browser, said = tmp_path / "browser", tmp_path / "said"
    browser.write_text(BROWSER.format(python=sys.executable, said=str(said)))
    browser.chmod(0o700)
    os.mkfifo(said)
    command = [sys.executable, "-m", "statestore", "explore", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1", "BROWSER": f"{browser} %s"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().strip()
            address, modes, page = json.loads(said.read_text())  # waits for the browser
            token = parse_qs(urlsplit(url).query)["token"][0]
            assert address.startswith(f"file://{tmp_path}") and token not in address
            assert modes == ["0o600", "0o700"] and f'content="0; url={url}"' in page
            found = httpx.get(url.partition("?")[0] + "api/overview", headers={"x-statestore-token": token}, timeout=30)
            assert [each["store"] for each in found.json()[0]["tables"]] == ["s"]
            assert list(tmp_path.glob("statestore-explorer-*"))
            serving.send_signal(ending)
            assert serving.wait(60) == (143 if ending == signal.SIGTERM else 0)
        finally:
            serving.kill()
    assert not list(tmp_path.glob("statestore-explorer-*"))


def test_wrong_calls(explorer: Explorer, tmp_path: Path) -> None:
    with pytest.raises(statestore.InvalidInputError, match="at least one path"):
        statestore.explore()
    with pytest.raises(statestore.InvalidInputError, match="port"):
        statestore.explore(tmp_path, port=urlsplit(explorer.url).port or 0)


# Connections that ask nothing, or read nothing, are closed, and keep nobody else from an answer

SECONDS_BETWEEN = 0.02  # seconds between two looks
PATIENCE = 60.0
Connect = Callable[[bytes], socket.socket]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    monkeypatch.setattr(guard, "SECONDS", SECONDS_BETWEEN)
    statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}).close()
    made = statestore.explore(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def connect(watched: Explorer) -> Iterator[Connect]:
    """Connect to the explorer and send some bytes."""
    made = []

    def connected(sent: bytes) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", urlsplit(watched.url).port or 0), PATIENCE)
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


def request(watched: Explorer, path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{urlsplit(watched.url).port}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_a_connection_without_a_whole_request_is_closed(watched: Explorer, connect: Connect) -> None:
    whole = request(watched, "/")
    for sent in (b"", whole[:1], whole[:-2], b"POST / HTTP/1.1\r\nContent-Le"):
        assert ended(connect(sent)) == b""
    upload = request(watched, "/nothing", "Content-Length: 1000000").replace(b"GET", b"POST")
    for sent in (whole, whole + whole[:-2], upload):
        assert ended(connect(sent)).startswith(b"HTTP/1.1 ")


def test_bytes_that_trickle_in_are_no_progress(
    watched: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
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
    watched: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
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
    token = watched.url.partition("token=")[2]
    assert ended(connect(request(watched, "/api/overview", f"x-statestore-token: {token}"))).endswith(b"[]")


def test_a_client_that_reads_nothing_is_closed(
    watched: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are more than the buffers of a socket hold."""
    monkeypatch.setattr(guard, "LOOKS", 2)
    lost = threading.Event()
    connection_lost = guard.Connection.connection_lost

    def closed(self: guard.Connection, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    monkeypatch.setattr(guard.Connection, "connection_lost", closed)
    connect(request(watched, "/static/app.js") * 20)
    assert lost.wait(PATIENCE)


def test_of_many_connections_the_oldest_ones_without_a_question_go(
    watched: Explorer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SECONDS", 3600.0)
    monkeypatch.setattr(guard, "MOST", 8)
    made = [connect(b"GET /") for _ in range(40)]
    assert httpx.get(watched.url).status_code == 200
    for each in made[:32]:
        assert ended(each) == b""


def test_what_is_no_question_leaves_no_line_on_the_terminal(
    watched: Explorer, connect: Connect, capfd: pytest.CaptureFixture[str]
) -> None:
    upgrade = request(watched, "/api/overview", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a")
    assert ended(connect(upgrade)).startswith(b"HTTP/1.1 403")
    assert ended(connect(b"\x16\x03\x01 this is TLS\r\n\r\n")).startswith(b"HTTP/1.1 400")
    assert capfd.readouterr() == ("", "")
