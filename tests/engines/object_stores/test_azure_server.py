"""The server of Azure's blobs that the tests use holds what Azure promises: creation by one only."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from obstore.exceptions import AlreadyExistsError
from support.object_stores.azure_server import AzureServer
from support.object_stores.clients import client
from support.object_stores.proxy import proxy_before
from support.object_stores.races import won, wrong

pytestmark = pytest.mark.slow


def test_objects_are_made_once_read_in_parts_listed_and_deleted(azure_server: AzureServer) -> None:
    azure_server.make_container("basics")
    store = client(azure_server, "basics")
    store.put("a", b"first", mode="create", use_multipart=False)
    with pytest.raises(AlreadyExistsError):
        store.put("a", b"second", mode="create", use_multipart=False)
    store.put("b", b"")
    assert bytes(store.get_range("a", start=1, length=3)) == b"irs"
    store.delete("b")
    assert [each["path"] for each in store.list().collect()] == ["a"]


def test_azurite_lists_from_the_start_whatever_the_offset(azure_server: AzureServer) -> None:
    """Azure takes ``startFrom``; Azurite does not know it and answers everything, so readers must look themselves."""
    store = client(azure_server)
    for name in "abc":
        store.put(f"offset/{name}", b"")
    found = [each["path"] for each in store.list("offset", offset="offset/b").collect()]
    assert found == ["offset/a", "offset/b", "offset/c"]


def test_the_uri_of_a_warehouse_says_all(azure_server: AzureServer) -> None:
    uri = urlsplit(azure_server.warehouse("a/b"))
    assert (uri.scheme, uri.netloc, uri.path) == ("az", "states", "/a/b")
    assert {name: value for name, (value,) in parse_qs(uri.query, strict_parsing=True).items()} == {
        "account_name": "devstoreaccount1", "account_key": azure_server.account_key,
        "endpoint": f"http://127.0.0.1:{azure_server.port}/devstoreaccount1",
    }  # fmt: skip


def test_one_of_many_threads_creates_an_object(azure_server: AzureServer) -> None:
    store = client(azure_server)
    assert wrong(store, won(store, "threads", rounds=100, threads=16), "threads", rounds=100) == []


def test_one_writer_creates_an_object_through_a_proxy(azure_server: AzureServer) -> None:
    with proxy_before(azure_server.endpoint) as proxy:
        store = client(azure_server, endpoint=proxy.endpoint)
        assert wrong(store, won(store, "proxy", rounds=20, threads=16), "proxy", rounds=20) == []
        assert {request.fate for request in proxy.requests} == {"answered"}
