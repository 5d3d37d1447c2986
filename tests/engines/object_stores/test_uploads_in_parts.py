"""Failed uploads in parts leave nothing in a bucket, and one whose last answer is lost is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.object_stores.faults import Faults
from support.object_stores.proxy import Proxy, proxy_before
from support.object_stores.s3_server import S3Server

from statestore.catalog.log.storage_objects import PART_BYTES, ObjectStorage
from statestore.formats.errors import StorageError
from statestore.formats.places import object_clients
from statestore.formats.places.locations import parse_location

pytestmark = pytest.mark.slow


def pieces(parts: int, error: BaseException | None = None) -> Iterator[bytes]:
    yield from (bytes(PART_BYTES) for _ in range(parts))
    if error is not None:
        raise error


def storage_behind(proxy: Proxy, server: S3Server, bucket: str) -> ObjectStorage:
    server.make_bucket(bucket)
    return ObjectStorage(parse_location(server.warehouse("w", bucket, proxy.endpoint)))


def files_of(server: S3Server, bucket: str) -> list[str]:
    """The files in the folder that is a bucket, those of parts among them."""
    return [path.name for path in (server.folder / bucket).rglob("*") if path.is_file()]


def aborts(proxy: Proxy) -> int:
    return sum(each.method == "DELETE" and "uploadId" in each.path for each in proxy.requests)


def is_last(method: str, path: str) -> bool:
    return method == "POST" and "uploadId" in path


def is_third_part(method: str, path: str) -> bool:
    return method == "PUT" and "partNumber=3" in path


@pytest.mark.parametrize("parts", [3, 6, 9])
def test_pieces_that_fail_leave_no_part(s3_server: S3Server, parts: int) -> None:
    """Parts are under way at that moment, and would arrive after an abort."""
    bucket = f"cancelled-{parts}"
    with proxy_before(s3_server.endpoint, Faults()) as proxy:
        storage = storage_behind(proxy, s3_server, bucket)
        with pytest.raises(ValueError, match="cancelled"):
            storage.create_in_parts("shared/a", pieces(parts, ValueError("cancelled")))
        assert aborts(proxy) == 0
        storage.delete("shared/a")
    assert files_of(s3_server, bucket) == []


def test_an_upload_that_fails_is_aborted(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_clients, "PAUSES", ())
    with proxy_before(s3_server.endpoint, Faults(refuse_every=1, status=400, concerns=is_third_part)) as proxy:
        storage = storage_behind(proxy, s3_server, "refused")
        with pytest.raises(StorageError, match="REQUEST_FAILED"):
            storage.create_in_parts("shared/a", pieces(6))
        assert aborts(proxy) >= 1  # obstore may repeat it
        assert storage.size("shared/a") is None


def test_the_last_answer_is_lost(s3_server: S3Server) -> None:
    with proxy_before(s3_server.endpoint, Faults(lose_every=1, most=1, concerns=is_last)) as proxy:
        storage = storage_behind(proxy, s3_server, "lost")
        storage.create_in_parts("shared/a", pieces(4))
        assert storage.size("shared/a") == 4 * PART_BYTES
