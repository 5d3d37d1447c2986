"""A warehouse: a directory of stores."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from statestore.catalog.log import write_entry
from statestore.catalog.new_files import NewFiles
from statestore.catalog.snapshot import EMPTY
from statestore.catalog.storage import LocalStorage, StorageExistsError
from statestore.catalog.store_spec import STORE_FILE, StoreSpec, check_spec, decode_spec, encode_spec
from statestore.catalog.stores.versioned import VersionedStore
from statestore.catalog.write import new_entry
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError
from statestore.formats.times import duration_ms
from statestore.formats.types import make_schema

Columns: TypeAlias = "Mapping[str, str | pa.DataType] | pa.Schema"
Duration: TypeAlias = int | timedelta | str

FORBIDDEN_IN_NAMES = re.compile(r"[/\\\x00-\x1f$]")
MAX_NAME_BYTES = 200
DROPPED = ".dropped-"


def connect(path: str | os.PathLike[str]) -> Catalog:
    """The warehouse at ``path``; the directory is created where absent."""
    root = Path(path)
    if root.exists() and not root.is_dir():
        raise InvalidInputError("NOT_A_WAREHOUSE", f"{root} is a file; expected a directory (or nothing yet)")
    root.mkdir(parents=True, exist_ok=True)
    return Catalog(root)


class Catalog:
    """The stores of one warehouse directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"Catalog({str(self.root)!r})"

    def create_store(
        self,
        name: str,
        kind: str = "versioned",
        *,
        key: Columns,
        value: Columns,
        history_retention: Duration | None = None,
        segment_interval: Duration | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> VersionedStore:
        """Create a store and open it. Column types are Spark or Arrow names, or pyarrow types; durations are int
        milliseconds, timedelta or "30 days" (None: keep history for ever).

        Raises InvalidInputError (STORE_EXISTS, WRONG_SCHEMA, INVALID_NAME, …) or UnsupportedError.
        """
        _check_name(name)
        spec = check_spec(
            StoreSpec(
                name=name,
                store_id=uuid.uuid4().hex,
                kind=kind,
                key=make_schema(key, "key"),
                value=make_schema(value, "value"),
                history_retention=duration_ms(history_retention, "history_retention"),
                segment_interval=duration_ms(segment_interval, "segment_interval"),
                serde=serde,
                key_groups=key_groups,
            )
        )
        storage = LocalStorage(self.root / name)
        if storage.exists(STORE_FILE):
            raise _exists(name, self.root)
        (self.root / name).mkdir(exist_ok=True)
        write_first_entry(storage)
        try:
            storage.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise _exists(name, self.root) from None
        return VersionedStore(storage, spec)

    def open_store(self, name: str, *, auto_compact: bool = True) -> VersionedStore:
        """Open a store, taking in what a crashed writer had acknowledged; NotFoundError STORE_NOT_FOUND."""
        storage, spec = self.locate(name)
        return VersionedStore(storage, spec, auto_compact=auto_compact)

    def stores(self) -> list[str]:
        """Names of the stores, sorted."""
        found = (path.parent.name for path in self.root.glob(f"*/{STORE_FILE}"))
        return sorted(name for name in found if not name.startswith("."))  # a drop that was interrupted

    def drop_store(self, name: str) -> None:
        """Remove a store and everything in it; NotFoundError STORE_NOT_FOUND."""
        self.locate(name)
        directory = self.root / name
        # Under another name first, so that no one can open a store that is half gone.
        directory.rename(self.root / f"{DROPPED}{uuid.uuid4().hex}")
        for doomed in self.root.glob(f"{DROPPED}*"):  # and what an interrupted drop left behind
            shutil.rmtree(doomed, ignore_errors=True)

    def locate(self, name: str) -> tuple[LocalStorage, StoreSpec]:
        """Storage and description of an existing store."""
        _check_name(name)
        storage = LocalStorage(self.root / name)
        if not storage.exists(STORE_FILE):
            raise _not_found(name, self.root, self.stores())
        where = self.root / name / STORE_FILE
        return storage, decode_spec(storage.read(STORE_FILE), str(where))


def write_first_entry(storage: LocalStorage) -> None:
    """Version 0, the empty store; what an interrupted creation left of it is as good."""
    with contextlib.suppress(ConflictError):
        write_entry(storage, new_entry(EMPTY, "create", NewFiles()))


def _check_name(name: Any) -> None:
    if (
        not isinstance(name, str)
        or not name.strip()
        or name.startswith(".")
        or FORBIDDEN_IN_NAMES.search(name)
        or len(name.encode()) > MAX_NAME_BYTES
    ):
        raise InvalidInputError(
            "INVALID_NAME",
            f"store name {name!r}; expected a text of 1 to {MAX_NAME_BYTES} bytes that does not start with a dot and "
            "holds no slash, dollar or control character",
        )


def _exists(name: str, root: Path) -> InvalidInputError:
    return InvalidInputError(
        "STORE_EXISTS", f"store {name!r} exists in {root}; open it with open_store, or drop_store it first"
    )


def _not_found(name: str, root: Path, known: list[str]) -> NotFoundError:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else "create it with create_store"
    there = ", ".join(known[:20]) if known else "no store"
    return NotFoundError("STORE_NOT_FOUND", f"no store {name!r} in {root}, which has {there}; {hint}")
