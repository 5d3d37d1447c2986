"""Behaviour of obstore on a network that fails, which the code above it has to know.

Retries are obstore's own. A put that creates an object is not safe to repeat: obstore repeats it all the same where the
connection ended without an answer, or with a status that asks for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError
from support.object_stores.azure_server import AzureServer
from support.object_stores.clients import Client, client
from support.object_stores.faults import Faults, puts, reads
from support.object_stores.proxy import proxy_before
from support.object_stores.requests_seen import Request
from support.object_stores.s3_server import S3Server

pytestmark = pytest.mark.slow
Server = S3Server | AzureServer


@pytest.fixture(scope="module", params=["s3_server", "azure_server"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each of the servers."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of the test's own."""
    return f"client/{crc32(request.node.name.encode())}"


def outcome(action: Callable[[], Any]) -> type[Exception] | None:
    """The class of what an action raises, None where it raises nothing."""
    try:
        action()
    except Exception as error:
        return type(error)
    return None


def fates(requests: list[Request]) -> str:
    """Return the fates of the requests, a letter each: Answered, Lost, Dropped, Refused, Cut."""
    return "".join(request.fate[0].upper() for request in requests)


LOST, DROPPED = Faults(lose_every=1, most=1, concerns=puts), Faults(drop_every=1, most=1, concerns=puts)
LOST_BY_RESET = Faults(lose_every=1, most=1, concerns=puts, reset=True)
DROPPED_BY_RESET = Faults(drop_every=1, most=1, concerns=puts, reset=True)


@pytest.mark.parametrize(
    ("faults", "mode", "most_retries", "raised", "seen"),
    [
        (LOST, "create", 9, AlreadyExistsError, "LA"),  # its own object
        (LOST, "create", 0, GenericError, "L"),
        (LOST, "overwrite", 9, None, "LA"),
        (LOST_BY_RESET, "create", 9, GenericError, "L"),
        (LOST_BY_RESET, "overwrite", 9, None, "LA"),
        (DROPPED, "create", 9, None, "DA"),
        (DROPPED, "create", 0, GenericError, "D"),
        (DROPPED_BY_RESET, "create", 9, GenericError, "D"),
        (DROPPED_BY_RESET, "overwrite", 9, None, "DA"),
        *((Faults(refuse_every=1, most=1, status=status), "create", 9, None, "RA") for status in (429, 500, 503)),
        *((Faults(refuse_every=1, status=status), "create", 0, GenericError, "R") for status in (429, 500, 503)),
        (Faults(refuse_every=1), "create", 3, GenericError, "RRRR"),
        (Faults(refuse_every=1, status=409), "create", 9, AlreadyExistsError, "R"),  # S3: two at once; nothing is there
    ],
)
def test_puts(
    server: Server, key: str, faults: Faults, mode: Any, most_retries: int, raised: type[Exception] | None, seen: str
) -> None:
    with proxy_before(server.endpoint, faults) as proxy:
        store = client(server, endpoint=proxy.endpoint, most_retries=most_retries)
        assert outcome(lambda: store.put(key, b"value", mode=mode, use_multipart=False)) is raised
        assert fates(proxy.requests) == seen
    there = seen[0] == "L" or seen[-1] == "A"
    assert outcome(lambda: client(server).head(key)) is (None if there else FileNotFoundError)


def whole(store: Client, key: str) -> bytes:
    return bytes(store.get(key).bytes())


def part(store: Client, key: str) -> bytes:
    return bytes(store.get_range(key, start=0, length=200_000))


@pytest.mark.parametrize("read", [whole, part])
@pytest.mark.parametrize("reset", [False, True])
def test_the_rest_of_a_cut_body_is_asked_for(
    server: Server, key: str, read: Callable[[Client, str], bytes], reset: bool
) -> None:
    """Without retries it is an error, never a short object."""
    client(server).put(key, value := bytes(range(256)) * 1000)
    with proxy_before(server.endpoint, Faults(cut_every=1, most=1, reset=reset)) as proxy:
        found = read(client(server, endpoint=proxy.endpoint, most_retries=9), key)
        assert found == value[: len(found)] and len(found) >= 200_000
        assert (fates(proxy.requests), proxy.requests[1].status) == ("CA", 206)
        proxy.faults = Faults(cut_every=1, reset=reset)
        assert outcome(lambda: read(client(server, endpoint=proxy.endpoint), key)) is GenericError


def test_a_cut_listing_is_an_error_even_with_retries(server: Server, key: str) -> None:
    with proxy_before(server.endpoint) as proxy:
        store = client(server, endpoint=proxy.endpoint, most_retries=9)
        store.put(f"{key}/1", b"")
        proxy.faults = Faults(cut_every=1, most=1, concerns=reads)
        assert outcome(lambda: store.list(key).collect()) is GenericError
        assert len(store.list(key).collect()) == 1
        proxy.faults = Faults(lose_every=1, most=1, concerns=reads)
        assert len(store.list(key).collect()) == 1


def test_a_lost_answer_to_a_deletion_is_asked_for_again(server: Server, key: str) -> None:
    """On Azure the object is missing then, which S3 does not tell."""
    deletes = Faults(lose_every=1, most=1, concerns=lambda method, _: method in ("DELETE", "POST"))
    with proxy_before(server.endpoint) as proxy:
        store = client(server, endpoint=proxy.endpoint, most_retries=9)
        store.put(key, b"")
        proxy.faults = deletes
        expected = FileNotFoundError if isinstance(server, AzureServer) else None
        assert outcome(lambda: store.delete(key)) is expected
        assert outcome(lambda: store.delete(key)) is expected
        assert outcome(lambda: store.head(key)) is FileNotFoundError


def test_a_put_that_comes_too_late_has_happened(server: Server, key: str) -> None:
    """obstore asks again only for what is safe to repeat."""
    with proxy_before(server.endpoint, Faults(latency_ms=600)) as proxy:
        store = client(server, endpoint=proxy.endpoint, most_retries=2, timeout_s=0.2)
        assert outcome(lambda: store.put(key, b"1", mode="create", use_multipart=False)) is GenericError
        assert outcome(lambda: store.put(f"{key}/2", b"1", use_multipart=False)) is GenericError
    assert outcome(lambda: client(server).head(key)) is None


def test_errors_without_a_network_or_the_right_to_use_it(server: Server) -> None:
    with proxy_before(server.endpoint) as proxy:
        gone = client(server, endpoint=proxy.endpoint)
    assert [outcome(each) for each in actions(gone)] == [GenericError] * 4
    assert [outcome(each) for each in actions(client(server, "absent"))] == [FileNotFoundError] * 3 + [GenericError]
    denied = [PermissionDeniedError] * 3 + [GenericError]
    assert [outcome(each) for each in actions(stranger(server))] == denied
    assert issubclass(GenericError, BaseError) and not issubclass(GenericError, OSError)


def actions(store: Client) -> list[Callable[[], Any]]:
    return [
        lambda: store.put("x", b"", mode="create", use_multipart=False),
        lambda: store.get("x"),
        lambda: store.head("x"),
        lambda: store.list("x").collect(),
    ]


def stranger(server: Server) -> Client:
    """A client with a wrong secret."""
    if isinstance(server, AzureServer):
        return client(replace(server, account_key="bm90aGluZw=="))
    return client(replace(server, secret_key="nothing"))


def test_a_pickled_client_has_the_secrets(server: Server) -> None:
    store = client(server)
    secret = server.account_key if isinstance(server, AzureServer) else server.secret_key
    copied = pickle.dumps(store)
    assert secret.encode() in copied
    assert secret not in repr(store)
    store.put("pickled", b"1")
    assert bytes(pickle.loads(copied).get("pickled").bytes()) == b"1"


def test_faults_strike_only_what_they_concern(server: Server, key: str) -> None:
    with proxy_before(server.endpoint, Faults(refuse_every=1, concerns=lambda _, path: "poor" in path)) as proxy:
        store = client(server, endpoint=proxy.endpoint)
        assert outcome(lambda: store.put(f"{key}/poor", b"", use_multipart=False)) is GenericError
        assert outcome(lambda: store.put(f"{key}/rich", b"", use_multipart=False)) is None
