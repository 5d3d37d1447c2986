"""The stores of a warehouse by their names: which there are, where one lies, and what a name may be.

Nothing that writes is loaded here, so that a read of one table loads no more than it needs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.log.store_locations import described, storage_at
from statestore.catalog.log.store_spec import ID_DIGITS, MAX_NAME_BYTES, REPLACED, StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, close_matches, shown
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.locations import Location

FORBIDDEN_IN_NAMES = re.compile(r"[/\\\x00-\x1f$]")


def is_name(name: Any) -> bool:
    """Return whether a store can have the name."""
    return (
        isinstance(name, str)
        and bool(name.strip())
        and not name.startswith(".")
        and not FORBIDDEN_IN_NAMES.search(name)
        and len(name.encode(errors="surrogatepass")) <= MAX_NAME_BYTES
        and not any("\ud800" <= character <= "\udfff" for character in name)
    )


def check_name(name: Any) -> None:
    """Raise InvalidInputError INVALID_NAME unless a store can have the name."""
    if not is_name(name):
        raise InvalidInputError(
            ErrorCode.INVALID_NAME,
            f"store name {shown(name)}; expected a text of 1 to {MAX_NAME_BYTES} bytes that does not start with a dot "
            "and holds no slash, dollar or control character",
        )


def store_not_found(name: str, root: Location, names: list[str]) -> NotFoundError:
    """Return the error for a name that none of the stores has."""
    close = close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else "create it with create_store or store(…, if_missing='create')"
    there = ", ".join(names[:20]) if names else "no store"
    return NotFoundError(ErrorCode.STORE_NOT_FOUND, f"no store {name!r} in {root}, which has {there}; {hint}")


def store_names(location: Location) -> list[str]:
    """Return the names of the stores of the warehouse at a location, sorted."""
    if not location.is_local:
        from statestore.catalog.upkeep import store_objects

        return store_objects.store_names(location)
    root = Path(location.path)
    with disk_errors("list the stores of", root):
        if not root.is_dir():
            return []
        names = {path.name for path in root.iterdir() if (path / STORE_FILE).is_file()}
        names |= replaced_stores(root)  # opening such a store restores it
    return sorted(name for name in names if not name.startswith("."))  # the remains of an interrupted drop


def replaced_stores(root: Path) -> set[str]:
    """Return the names of stores that a running or interrupted rebuild has moved away."""
    behind = len(REPLACED) + ID_DIGITS
    return {
        folder_name[behind + 1 :]
        for folder_name in names_in(root)
        if folder_name.startswith(REPLACED) and folder_name[behind : behind + 1] == "-" and folder_name[behind + 1 :]
    }


def located(location: Location, name: str, storage: Storage | None = None) -> tuple[Storage, StoreSpec]:
    """Return the storage and the description of an existing store of the warehouse at a location.

    ``storage``: that of the store, if it is not the one of its location.
    Raises InvalidInputError INVALID_NAME, NotFoundError STORE_NOT_FOUND, CorruptError STORE_CORRUPT.
    """
    check_name(name)
    if not location.is_local:
        try:
            return described(storage_at(location.at(name)) if storage is None else storage)
        except NotFoundError:
            raise store_not_found(name, location, store_names(location)) from None
    found = LocalStorage(Path(location.path) / name)
    if not found.exists(STORE_FILE):
        from statestore.catalog.upkeep.store_folders import undo_replacement

        undo_replacement(Path(location.path), name)
    if not found.exists(STORE_FILE):
        raise store_not_found(name, location, store_names(location))
    return described(found)
