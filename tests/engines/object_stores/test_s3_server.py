"""The S3 server of the tests holds what S3 promises: creation by one only, and what was answered stays."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyarrow.fs as pafs
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError
from support.object_stores.clients import Client, client
from support.object_stores.proxy import proxy_before
from support.object_stores.races import create, won, won_by_processes, wrong
from support.object_stores.s3_server import S3Server, running_s3_server
from support.paths import TESTS

pytestmark = pytest.mark.slow


def test_objects_are_made_once_read_in_parts_listed_and_deleted(s3_server: S3Server) -> None:
    store = client(s3_server)
    store.put("basics/a", b"first", mode="create", use_multipart=False)
    with pytest.raises(AlreadyExistsError):
        store.put("basics/a", b"second", mode="create", use_multipart=False)
    for name in "bcd":
        store.put(f"basics/{name}", b"")
    assert bytes(store.get_range("basics/a", start=1, length=3)) == b"irs"
    assert listed(store, "basics", offset="basics/b") == ["basics/c", "basics/d"]
    store.delete(["basics/b", "basics/c"])
    assert listed(store, "basics") == ["basics/a", "basics/d"]


def listed(store: Client, prefix: str, offset: str | None = None) -> list[str]:
    return sorted(each["path"] for each in store.list(prefix, offset=offset).collect())


def test_the_uri_of_a_warehouse_says_all(s3_server: S3Server) -> None:
    uri = urlsplit(s3_server.warehouse("a/b"))
    options = {name: value for name, (value,) in parse_qs(uri.query, strict_parsing=True).items()}
    assert (uri.scheme, uri.netloc, uri.path) == ("s3", "states", "/a/b")
    assert options == {
        "endpoint_override": f"127.0.0.1:{s3_server.port}", "scheme": "http", "access_key": s3_server.access_key,
        "secret_key": s3_server.secret_key, "region": "us-east-1",
    }  # fmt: skip


def test_one_of_many_threads_creates_an_object(s3_server: S3Server) -> None:
    store = client(s3_server)
    assert wrong(store, won(store, "threads", rounds=400, threads=16), "threads", rounds=400) == []


def test_one_of_many_processes_creates_an_object_through_several_servers(s3_server: S3Server) -> None:
    """Also among gateways over one folder, each of which has locks of its own."""
    with running_s3_server(s3_server.folder.parent) as second:
        stores = [store for server in (s3_server, second) for store in [client(server)] * 2]
        wins = won_by_processes(stores, "processes", rounds=200, threads=8)
    assert wrong(client(s3_server), wins, "processes", rounds=200) == []


def test_one_writer_creates_an_object_through_a_proxy(s3_server: S3Server) -> None:
    with proxy_before(s3_server.endpoint) as proxy:
        store = client(s3_server, endpoint=proxy.endpoint)
        assert wrong(store, won(store, "proxy", rounds=50, threads=16), "proxy", rounds=50) == []
        assert {request.fate for request in proxy.requests} == {"answered"}


def test_the_client_of_arrow_passes_a_proxy(s3_server: S3Server) -> None:
    """It waits with a body until the server wants it, and sends it in chunks."""
    with proxy_before(s3_server.endpoint) as proxy:
        files = pafs.S3FileSystem(
            access_key=s3_server.access_key, secret_key=s3_server.secret_key, region=s3_server.region, scheme="http",
            endpoint_override=proxy.endpoint.removeprefix("http://"),
        )  # fmt: skip
        with files.open_output_stream("states/arrow/a") as output:
            output.write(b"value")
        with files.open_input_file("states/arrow/a") as source:
            assert source.read() == b"value"
        assert {request.fate for request in proxy.requests} == {"answered"}


def test_large_objects_pass_a_proxy(s3_server: S3Server) -> None:
    """The server refuses what is there before it has read the body."""
    with proxy_before(s3_server.endpoint) as proxy:
        store, value = client(s3_server, endpoint=proxy.endpoint), random.Random(1).randbytes(12_000_000)
        assert create(store, "large", value)
        assert bytes(store.get("large").bytes()) == value
        assert [create(store, "large", value) for _ in range(5)] == [False] * 5


def test_what_was_answered_outlives_a_killed_server(tmp_path: Path) -> None:
    answered: dict[str, bytes] = {}
    with running_s3_server(tmp_path) as server:
        store = client(server)

        def write(thread: int) -> None:
            for number in range(1_000_000):
                key, value = f"kill/{thread}/{number}", random.Random(number).randbytes(3000)
                try:
                    store.put(key, value, mode="create", use_multipart=False)
                except BaseError:
                    return
                answered[key] = value

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        server.kill()
        for thread in threads:
            thread.join()
    assert len(answered) > 100
    with running_s3_server(tmp_path, port=server.port):
        assert [key for key, value in answered.items() if bytes(store.get(key).bytes()) != value] == []
        assert answered.keys() - listed(store, "kill") == set()


STARTS_A_SERVER = """
import sys, time
from pathlib import Path
from support.object_stores.s3_server import running_s3_server

with running_s3_server(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


def test_a_server_ends_with_tests_that_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_A_SERVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server = Path("/proc") / tests.stdout.readline().strip()
        assert "versitygw" in (server / "cmdline").read_text()
        tests.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while server.exists() and "versitygw" in (server / "cmdline").read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
