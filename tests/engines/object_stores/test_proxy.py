"""The proxy that other tests put before an object store does what it says, and nothing else."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from support.object_stores.faults import Faults, puts, reads
from support.object_stores.proxy import Proxy, proxy_before
from support.object_stores.requests_seen import Request, by_method, rounds

BODY = bytes(range(256)) * 400


@dataclass
class Seen:
    """Requests that a server has seen, with the Host header and the body, and its connections."""

    endpoint: str = ""
    requests: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)


@pytest.fixture
def server() -> Iterator[Seen]:
    """A server that answers BODY, in chunks where the path says so."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            seen.requests.append((self.command, self.path, self.headers["Host"], body))
            seen.connections.add(self.client_address)
            self.send_response(200)
            if "chunks" in self.path:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
            else:
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else BODY)

        do_PUT = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    seen.endpoint = f"http://127.0.0.1:{serving.server_port}/account"
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield seen
    serving.shutdown()
    thread.join()
    serving.server_close()


@pytest.fixture
def proxy(server: Seen) -> Iterator[Proxy]:
    with proxy_before(server.endpoint) as found:
        yield found


def ask(proxy: Proxy, *methods: str, path: str = "/x?y=1", body: bytes | None = None) -> list[tuple[int, int] | str]:
    """Status and length of the answer to each request, or the name of what came instead; over one connection as long
    as it is open."""
    connection = http.client.HTTPConnection(urlsplit(proxy.endpoint).netloc, timeout=10)
    found: list[tuple[int, int] | str] = []
    for method in methods:
        try:
            connection.request(method, path, body=body)
            answer = connection.getresponse()
            found.append((answer.status, len(answer.read())))
        except (OSError, http.client.HTTPException) as error:
            found.append(type(error).__name__)
            connection.close()
    connection.close()
    return found


def test_requests_pass_unchanged_over_one_connection(server: Seen, proxy: Proxy) -> None:
    assert ask(proxy, "GET", "PUT", "HEAD", "GET", body=b"abc") == [(200, 102400)] * 2 + [(200, 0), (200, 102400)]
    host = urlsplit(proxy.endpoint).netloc
    assert server.requests == [(method, "/x?y=1", host, b"abc") for method in ("GET", "PUT", "HEAD", "GET")]
    assert len(server.connections) == 1
    assert proxy.endpoint.endswith("/account")


def test_answers_in_chunks_pass(proxy: Proxy) -> None:
    assert ask(proxy, "GET", "GET", path="/chunks") == [(200, 102400)] * 2


def test_requests_are_written_down(proxy: Proxy) -> None:
    before = time.monotonic()
    ask(proxy, "PUT", "GET", body=b"abc")
    first, second = proxy.requests
    assert (first.method, first.path, first.status, first.fate) == ("PUT", "/x?y=1", 200, "answered")
    assert 50 < first.sent < 200 and len(BODY) < first.received < len(BODY) + 300
    assert before < first.start < first.end <= second.start < second.end < time.monotonic()
    assert by_method(proxy.requests) == {"PUT": 1, "GET": 1}
    proxy.clear()
    assert proxy.requests == []


def test_a_lost_answer_was_given(server: Seen, proxy: Proxy) -> None:
    proxy.faults = Faults(lose_every=2, concerns=puts)
    assert ask(proxy, "PUT", "GET", "PUT", "PUT") == [(200, 102400)] * 2 + ["RemoteDisconnected", (200, 102400)]
    assert [request[0] for request in server.requests] == ["PUT", "GET", "PUT", "PUT"]
    assert [(request.fate, request.status) for request in proxy.requests] == [
        ("answered", 200), ("answered", 200), ("lost", 200), ("answered", 200),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "answer"),
    [
        (Faults(drop_every=1), "RemoteDisconnected"),
        (Faults(drop_every=1, reset=True), "ConnectionResetError"),
        (Faults(refuse_every=1), (503, 101)),
        (Faults(refuse_every=1, status=500), (500, 106)),
    ],
)
def test_dropped_and_refused_requests_reach_no_server(
    server: Seen, proxy: Proxy, faults: Faults, answer: object
) -> None:
    proxy.faults = faults
    assert ask(proxy, "PUT", body=b"abc") == [answer]
    assert server.requests == []


@pytest.mark.parametrize("path", ["/x", "/chunks"])
def test_a_cut_body_is_half_of_it(proxy: Proxy, path: str) -> None:
    proxy.faults = Faults(cut_every=1, most=1, concerns=reads)
    assert ask(proxy, "GET", "GET", path=path) == ["IncompleteRead", (200, 102400)]
    assert proxy.requests[0].received < len(BODY) * 0.6


def test_latency_is_that_of_each_answer(proxy: Proxy) -> None:
    """Clients that ask at the same time wait at the same time."""
    proxy.faults = Faults(latency_ms=100)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ask(proxy, "GET", "GET"), range(8)))
    assert all(request.end - request.start >= 0.1 for request in proxy.requests)
    assert len(proxy.requests) == 16
    assert 2 <= rounds(proxy.requests) <= 8  # 16 if one waited for another; threads may be slow to start


def test_a_server_that_is_gone_answers_nothing() -> None:
    with proxy_before("http://127.0.0.1:1") as proxy:
        assert ask(proxy, "GET") == ["RemoteDisconnected"]
        assert [(request.status, request.fate) for request in proxy.requests] == [(0, "failed")]


@pytest.mark.parametrize("seed", range(5))
def test_a_fault_strikes_one_of_each_n_by_its_seed(seed: int) -> None:
    faults = Faults(lose_every=7, refuse_every=5, seed=seed)
    fates = [faults.fate(number) for number in range(70)]
    assert [fates[i : i + 5].count("refused") for i in range(0, 70, 5)] == [1] * 14
    assert 5 <= fates.count("lost") <= 10
    assert fates == [faults.fate(number) for number in range(70)]
    assert (seed == 0) == (fates[4::5] == ["refused"] * 14)


def test_no_more_requests_are_struck_than_allowed(proxy: Proxy) -> None:
    proxy.faults = Faults(refuse_every=1, most=2)
    assert ask(proxy, *["HEAD"] * 4) == [(503, 0), (503, 0), (200, 0), (200, 0)]
    proxy.faults = Faults(refuse_every=1, most=1)
    assert ask(proxy, *["HEAD"] * 2) == [(503, 0), (200, 0)]


@pytest.mark.parametrize(
    ("times", "chain"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 3), (1, 2), (2, 4)], 2),
        ([(0, 10), (0, 1), (1, 2), (2, 3)], 3),
        ([(0, 2), (1, 3), (2, 4), (3, 5)], 2),
    ],
)
def test_rounds_are_the_longest_chain(times: list[tuple[float, float]], chain: int) -> None:
    assert rounds(Request("GET", "/", 200, "answered", 0, 0, start, end) for start, end in times) == chain
