"""A store's files in an object store, through obstore: create-only puts make commits atomic there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError
from obstore.exceptions import NotFoundError as ObjectNotFound

from statestore.catalog.storage import Data, ObjectInfo, StorageExistsError, check_name, missing


@dataclass(frozen=True)
class ObjectStorage:
    """Objects of an obstore store (S3, GCS, Azure, local, in memory) below ``prefix``; see `Storage`."""

    store: Any
    prefix: str = ""

    def create(self, name: str, data: Data) -> None:
        try:
            obstore.put(self.store, self._key(name), memoryview(data).tobytes(), mode="create")
        except (AlreadyExistsError, FileExistsError):
            raise StorageExistsError("FILE_EXISTS", f"object {name} exists; files are never overwritten") from None

    def create_many(self, files: Mapping[str, Data]) -> None:
        for name, data in files.items():
            self.create(name, data)

    def read(self, name: str) -> bytes:
        return bytes(self.map(name))

    def map(self, name: str) -> pa.Buffer:
        try:
            return pa.py_buffer(obstore.get(self.store, self._key(name)).bytes())
        except (ObjectNotFound, FileNotFoundError):
            raise missing(name) from None

    def exists(self, name: str) -> bool:
        try:
            obstore.head(self.store, self._key(name))
        except (ObjectNotFound, FileNotFoundError):
            return False
        return True

    def list(self, prefix: str) -> list[ObjectInfo]:
        start = f"{self.prefix}{prefix}"
        found = [item for batch in obstore.list(self.store, prefix=start.rstrip("/") or None) for item in batch]
        return sorted(
            ObjectInfo(
                item["path"].removeprefix(self.prefix), item["size"], int(item["last_modified"].timestamp() * 1e6)
            )
            for item in found
            if item["path"].startswith(start)
        )

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self.store, self._key(name))
        except (ObjectNotFound, FileNotFoundError):
            return

    def _key(self, name: str) -> str:
        return f"{self.prefix}{check_name(name)}"
