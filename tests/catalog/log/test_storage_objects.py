"""Large objects that are put in parts: pieces that cannot be made, answers that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore
from support.object_stores.doubles import object_storage

from statestore.catalog.log import storage_objects
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.errors import NotFoundError, StorageError
from statestore.formats.places import object_clients

MIB = 1 << 20


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    monkeypatch.setattr(storage_objects, "PART_BYTES", 2 * MIB)
    monkeypatch.setattr(object_clients, "PAUSES", ())
    return object_storage(MemoryStore(), "s")


def pieces(count: int, error: BaseException | None = None) -> Iterator[bytes]:
    yield from (bytes([number]) * MIB for number in range(count))
    if error is not None:
        raise error


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("error", [ValueError("cancelled"), KeyboardInterrupt(), FileNotFoundError("source")])
def test_an_upload_whose_pieces_fail_is_ended_in_order(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, count: int, error: BaseException
) -> None:
    """An abort would miss the parts that are under way, and they would stay."""
    put, ended = obstore.put, []

    def putting(store: Any, key: str, data: Iterator[bytes], **options: Any) -> Any:
        def all_of() -> Iterator[bytes]:
            yield from data
            ended.append(key)

        return put(store, key, all_of(), **options)

    monkeypatch.setattr(obstore, "put", putting)
    with pytest.raises(type(error)) as caught:
        storage.create_in_parts("shared/a", pieces(count, error))
    assert caught.value is error and ended == ["s/shared/a"]


@pytest.mark.parametrize("lost", [FileNotFoundError("NoSuchUpload"), GenericError("no answer")])
def test_a_put_whose_answer_is_lost(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, lost: Exception) -> None:
    """obstore asks again for the end of an upload that has ended, and finds no such upload."""
    put = obstore.put

    def carried_out(*given: Any, **options: Any) -> Any:
        put(*given, **options)
        raise lost

    monkeypatch.setattr(obstore, "put", carried_out)
    storage.create_in_parts("shared/a", pieces(5))
    assert storage.size("shared/a") == 5 * MIB


@pytest.mark.parametrize("lost", [FileNotFoundError("NoSuchUpload"), GenericError("no answer")])
def test_a_put_that_was_not_carried_out(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    def lost_at_the_end(store: Any, key: str, data: Iterator[bytes], **options: Any) -> Any:
        list(data)
        raise lost

    monkeypatch.setattr(obstore, "put", lost_at_the_end)
    with pytest.raises(StorageError, match="REQUEST_FAILED"):
        storage.create_in_parts("shared/a", pieces(5))


def test_no_bucket(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any, **options: Any) -> Any:
        raise FileNotFoundError("NoSuchBucket")

    monkeypatch.setattr(obstore, "put", refused)
    with pytest.raises(NotFoundError, match="PATH_NOT_FOUND"):
        storage.create_in_parts("shared/a", pieces(5))
