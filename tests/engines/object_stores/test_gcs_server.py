"""The emulator of Google Cloud Storage: what it promises through its translator, and what `connect` makes of it."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError
from support.object_stores.clients import client
from support.object_stores.gcs_server import ACCOUNT, GcsServer
from support.object_stores.gcs_translator import translator_before
from support.object_stores.races import won, wrong

import statestore
from statestore.formats.errors import NotFoundError, UnsupportedError

pytestmark = pytest.mark.slow


def test_objects_are_made_once_read_in_parts_listed_and_deleted(gcs_server: GcsServer) -> None:
    gcs_server.make_bucket("basics")
    store = client(gcs_server, "basics")
    store.put("a b%25", b"first", mode="create", use_multipart=False)
    with pytest.raises(AlreadyExistsError):
        store.put("a b%25", b"second", mode="create", use_multipart=False)
    store.put("folder/b", b"")
    assert bytes(store.get_range("a b%25", start=1, length=3)) == b"irs"
    listed = store.list_with_delimiter()
    assert (listed["common_prefixes"], [each["path"] for each in listed["objects"]]) == (["folder"], ["a b%25"])
    store.delete("folder/b")
    assert [each["path"] for each in store.list().collect()] == ["a b%25"]


def test_one_of_many_threads_creates_an_object(gcs_server: GcsServer) -> None:
    store = client(gcs_server)
    assert wrong(store, won(store, "threads", rounds=40, threads=8), "threads", rounds=40) == []


def test_a_store_that_ignores_the_condition_is_refused(gcs_server: GcsServer) -> None:
    """The emulator gets the puts of `connect` without their conditions, and overwrites."""
    with translator_before(gcs_server.process.port, conditional=False) as careless:
        with pytest.raises(UnsupportedError, match="NO_CREATE_ONLY_PUT"):
            statestore.connect(gcs_server.warehouse("careless", endpoint=careless.endpoint))
        assert [method for method, _ in careless.seen] == ["PUT", "PUT", "DELETE"]
    assert client(gcs_server).list("careless").collect() == []


def test_options_and_the_environment_say_where_a_bucket_lies(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"base_url": gcs_server.endpoint, "service_account_key": ACCOUNT}
    catalog = statestore.connect("gs://states/options", options=options)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        store.put("a", 1, timestamp=1)
        store.commit()
    monkeypatch.setenv("GOOGLE_BASE_URL", gcs_server.endpoint)
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", ACCOUNT)
    for scheme in ("gs", "gcs"):
        assert statestore.connect(f"{scheme}://states/options").stores() == ["s"]
    with pytest.raises(NotFoundError, match=r"PATH_NOT_FOUND.*'nowhere'"):
        statestore.connect("gs://nowhere/w")
