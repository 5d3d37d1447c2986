"""The identity of a store, which distinguishes a dropped store from a later one of the same name."""

from __future__ import annotations

import json

from statestore.catalog.log.storage import Guard
from statestore.catalog.log.store_spec import STORE_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError


def identity_guard(store_id: str, after: str = "") -> Guard:
    """Return a guard that permits new files only while the store with this identity is in the directory.

    ``after`` is a file that has to exist beside the new one (`Guard`).
    """

    def check(data: bytes | None) -> None:
        if data is None or stored_identity(data) != store_id:
            raise replaced(STORE_FILE, store_id)

    return Guard(STORE_FILE, check, after)


def stored_identity(data: bytes) -> str:
    """Return the identity in the bytes of ``store.json``. Raises CorruptError STORE_CORRUPT if they have none."""
    try:
        found = json.loads(data)["id"]
        if type(found) is str:
            return found
    except (LookupError, TypeError, ValueError, RecursionError):
        pass
    raise CorruptError(ErrorCode.STORE_CORRUPT, f"{STORE_FILE}: not a store description; restore it from a copy")


def replaced(where: str, store_id: str) -> NotFoundError:
    """Return the error of a handle, table or connection whose store was dropped or rebuilt since it was opened."""
    return NotFoundError(
        ErrorCode.STORE_REPLACED,
        f"{where}: the store that was opened here (id {store_id}) is gone: it was dropped or rebuilt, "
        "or another store has taken its place; open it again",
    )
