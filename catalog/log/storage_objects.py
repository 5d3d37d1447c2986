"""A store's files in an object store, through obstore; create-only puts make commits atomic."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.exceptions import NotFoundError as ObjectNotFound

from statestore.catalog.log.storage import (
    Data,
    Guard,
    ObjectInfo,
    StorageExistsError,
    check_folder,
    check_name,
    missing,
)
from statestore.formats.error_codes import ErrorCode

PARALLEL_PUTS = 8
# Azure answers a failed create with PreconditionError in some releases of obstore.
EXISTS = (AlreadyExistsError, PreconditionError, FileExistsError)
MISSING = (ObjectNotFound, FileNotFoundError)


@dataclass(frozen=True)
class ObjectStorage:
    """Objects of an obstore store (S3, GCS, Azure, local, in memory) below the folder ``prefix``; see `Storage`."""

    store: Any
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix:
            object.__setattr__(self, "prefix", check_folder(self.prefix.rstrip("/") + "/"))

    def create(self, name: str, data: Data, guard: Guard | None = None) -> None:
        if guard is not None:
            guard.check(self.read(guard.name) if self.exists(guard.name) else None)
        try:
            obstore.put(self.store, self._key(name), memoryview(data).cast("B"), mode="create")
        except EXISTS:
            raise StorageExistsError(
                ErrorCode.FILE_EXISTS, f"object {name} exists; files are never overwritten"
            ) from None

    def settle(self, name: str) -> None:
        """Do nothing: an object is durable once its put is answered."""

    def create_many(self, files: Mapping[str, Data]) -> None:
        if not files:
            return
        with ThreadPoolExecutor(min(PARALLEL_PUTS, len(files))) as pool:
            list(pool.map(self._create_unique, files.keys(), files.values()))

    def read(self, name: str) -> bytes:
        return bytes(self.map(name))

    def map(self, name: str) -> pa.Buffer:
        try:
            return pa.py_buffer(obstore.get(self.store, self._key(name)).bytes())
        except MISSING:
            raise missing(name) from None

    def exists(self, name: str) -> bool:
        try:
            obstore.head(self.store, self._key(name))
        except MISSING:
            return False
        return True

    def state(self, name: str) -> Hashable:
        try:
            about = obstore.head(self.store, self._key(name))
        except MISSING:
            return None
        return about["e_tag"], about["last_modified"], about["size"]

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        start = f"{self.prefix}{check_folder(prefix)}"
        offset = f"{self.prefix}{after}" if after else None
        listed = obstore.list(self.store, prefix=start.rstrip("/") or None, offset=offset)
        items = [item for batch in listed for item in batch]
        return sorted(
            ObjectInfo(
                item["path"].removeprefix(self.prefix), item["size"], int(item["last_modified"].timestamp() * 1e6)
            )
            for item in items
            if item["path"].startswith(start)
        )

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self.store, self._key(name))
        except MISSING:
            return

    def _create_unique(self, name: str, data: Data) -> None:
        """Put an object of a unique name.

        An existing object of that name must be this one, put before by a request whose answer was lost.
        """
        try:
            self.create(name, data)
        except StorageExistsError:
            if memoryview(self.map(name)).cast("B") != memoryview(data).cast("B"):
                raise

    def _key(self, name: str) -> str:
        return f"{self.prefix}{check_name(name)}"
