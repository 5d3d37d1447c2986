"""Registries that answer badly: each is one error, in a bounded time and memory, and no message has a password."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.kafka.registry_server import Registry, registry
from support.paths import DATA

import statestore
from statestore.formats.errors import InvalidInputError, StateStoreError, StorageError
from statestore.formats.kafka.schemas import registry_requests
from statestore.formats.kafka.schemas.registry_requests import AUTH_VARIABLE, public_url
from statestore.formats.kafka.schemas.schema_registry import fetch_schema

CERTIFICATE = DATA / "kafka" / "registry-localhost.pem"
"""A certificate for "localhost", signed by itself, and its key."""
HEAD = b"HTTP/1.1 200 OK\r\n"
INT = {"schema": '"int"'}
Send = Callable[[bytes], None]


@pytest.fixture
def server() -> Iterator[Registry]:
    with registry() as found:
        yield found


@contextlib.contextmanager
def answering(answer: Callable[[Send, threading.Event], None]) -> Iterator[str]:
    """A server that says to its first caller whatever it is told to; the event is set when the test is over."""
    over = threading.Event()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                caller, _ = listening.accept()
                with caller:
                    caller.recv(1 << 16)
                    answer(caller.sendall, over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def dripping(first: bytes, drop: bytes) -> Callable[[Send, threading.Event], None]:
    """An answer that never ends, and never pauses for long."""

    def answer(send: Send, over: threading.Event) -> None:
        send(first)
        while not over.wait(0.01):
            send(drop)

    return answer


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (HEAD + b"X-A: ", b"a"),
        (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["header", "body", "chunk", "continue"],
)
def test_an_answer_that_never_ends_is_left(first: bytes, drop: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes come faster than any timeout between two of them."""
    monkeypatch.setattr(registry_requests, "TIMEOUT_SECONDS", 0.2)
    with (
        answering(dripping(first, drop)) as url,
        pytest.raises(StorageError, match=r"REGISTRY_FAILED.*does not answer for schema id 7 within 0\.2 seconds"),
    ):
        fetch_schema(url, 7, "AVRO")


def test_an_answer_without_an_end_to_its_size_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_requests, "MOST_BYTES", 1 << 16)
    with (
        answering(dripping(HEAD + b"\r\n", b" " * 5000)) as url,
        pytest.raises(StorageError, match=r"REGISTRY_FAILED.*more than 65536 bytes"),
    ):
        registry_at = registry_requests.registry_at(url)
        registry_at.left = 1 << 16
        registry_requests.answer_to(registry_at, "/schemas/ids/7", "schema id 7")


def test_a_schema_and_its_references_share_a_size_and_a_time(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many answers may be within its own limit."""
    ask = [{"name": f"n{n}", "subject": "s", "version": n} for n in range(20)]
    server.answers |= {f"/subjects/s/versions/{n}": {"schema": '"int"' + " " * (1 << 20)} for n in range(20)}
    server.add(7, '"int"', references=ask)
    with pytest.raises(StorageError, match=r"REGISTRY_FAILED.*more than 16777216 bytes, with those of schemas"):
        fetch_schema(server.url, 7, "AVRO")
    assert len(server.asked) == 17
    monkeypatch.setattr(registry_requests, "MOST_SECONDS", -1.0)
    with pytest.raises(StorageError, match=r"REGISTRY_FAILED.*took more than -1 seconds for a schema and those"):
        fetch_schema(server.url, 7, "AVRO")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"hello\r\n\r\n", r"what is not whole or no HTTP \(BadStatusLine\)"),
        (b"", r"does not answer for schema id 7 \(RemoteDisconnected\)"),
        (HEAD + b"Content-Length: 100\r\n\r\n" + json.dumps(INT).encode(), r"not whole or no HTTP \(IncompleteRead\)"),
        (HEAD + b"A: b\r\n" * 1000 + b"\r\n", "no HTTP"),
        (HEAD + b"A: " + b"b" * 100_000 + b"\r\n\r\n", r"no HTTP \(LineTooLong\)"),
        (b"HTTP/1.1 429 Slow\r\n\r\n", "has too many requests with status 429"),
        (b"HTTP/1.1 403 No\r\n\r\n", f"does not let this user in with status 403 .*{AUTH_VARIABLE}"),
        (b"HTTP/1.1 406 No\r\n\r\n", "answers with status 406"),
        (
            b"HTTP/1.1 308 There\r\nLocation: https://ann:cret@elsewhere:1/new?token=cret\r\n\r\n",
            "it redirects to https://elsewhere:1/new, and no redirect is followed; name the URL",
        ),
        (b"HTTP/1.1 302 There\r\nLocation: file:///etc/passwd\r\n\r\n", "it redirects, and no redirect is followed"),
    ],
)
def test_what_is_no_answer_is_said(answer: bytes, found: str) -> None:
    with answering(lambda send, _: send(answer)) as url, pytest.raises(StorageError, match=found) as error:
        fetch_schema(url.replace("//", "//bob:cret@"), 7, "AVRO")
    assert "cret" not in str(error.value)


@contextlib.contextmanager
def with_tls() -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    body = json.dumps(INT).encode()

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError), context.wrap_socket(caller, server_side=True) as secure:
                secure.recv(1 << 16)
                secure.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_certificate_is_checked(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken when its file is named, and then for its host alone."""
    with with_tls() as url:
        with pytest.raises(StorageError, match=r"REGISTRY_FAILED.*not trusted \(self-signed.*in SSL_CERT_FILE"):
            fetch_schema(url, 7, "AVRO")
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert fetch_schema(url, 7, "AVRO") == ('"int"',)
        with pytest.raises(StorageError, match=r"not trusted \(IP address mismatch.*the host as the certificate"):
            fetch_schema(url.replace("localhost", "127.0.0.1"), 7, "AVRO")
    with pytest.raises(StorageError, match="no TLS"):
        fetch_schema(server.url.replace("http:", "https:"), 7, "AVRO")


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:cr/et@127.0.0.1:1",
        "http://ann:cr?et@127.0.0.1:1/x",
        "http://ann:cr#et@127.0.0.1:1",
        "http://ann:cr\udcffet@127.0.0.1:1",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/\u00e9",
        "http://127.0.0.1:1/a\r\nX: y",
        "http://127.0.0.1:99999",
        "http://[::1",
        "http://h\u00e9/",
    ],
)
def test_what_is_no_url_is_refused_without_its_password(url: str) -> None:
    """Where a password has characters that end a host, most of it is behind the host."""
    with pytest.raises(InvalidInputError, match="WRONG_SCHEMA") as error:
        fetch_schema(url, 7, "AVRO")
    assert not any(part in str(error.value) for part in ("ann", "cr/", "et@", "et "))
    assert "ann" not in public_url(url) and "et" not in public_url(url)


@pytest.mark.parametrize("auth", ["Bearer cr et", "Bearer \u00e9cret", "ann:cr\udcffet"])
def test_credentials_that_cannot_be_sent_are_named_by_their_variable(
    auth: str, server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTH_VARIABLE, auth)
    with pytest.raises(InvalidInputError, match=f"WRONG_SCHEMA.*{AUTH_VARIABLE}.*not shown") as error:
        fetch_schema(server.url, 7, "AVRO")
    assert "cr" not in str(error.value).replace("credentials", "") and not server.asked


def test_a_token_may_end_in_a_line_break(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of a file, from which a variable is set, does."""
    monkeypatch.setenv(AUTH_VARIABLE, "Bearer token\n")
    server.add(7, '"int"')
    assert fetch_schema(server.url, 7, "AVRO") == ('"int"',)
    assert server.auths == ["Bearer token"]


@pytest.mark.parametrize(
    "serde",
    [
        "avr:{}",
        "json:{}",
        "List<avro-x:{}>",
        "avro:5=a.avsc,{0},{0}",
        "avro:reader=6,reader=7,{}",
        "avro-glue:{}",
        "protobuf-plain:{}",
        "json-schema:reader=x,{}",
        "avro:{}",
    ],
)
def test_no_message_about_a_serde_has_a_password(serde: str, server: Registry, tmp_path: Path) -> None:
    """Whatever is wrong with it."""
    value = pa.array([b"\0\0\0\0\7\2"], pa.binary())
    records: Any = pa.table({"key": value, "value": value, "timestamp": pa.array([1], pa.int64())})
    url = server.url.replace("//", "//ann:s,cr et@")
    for each in (url, url.replace(", ", "").replace("s,cr et", "s%2Ccret")):
        with pytest.raises((StateStoreError, OSError)) as error:
            statestore.kafka.decode(records, "key-value", value_serde=serde.format(each))
        assert not any(part in str(error.value) for part in ("ann", "cr et", "cret")), str(error.value)
