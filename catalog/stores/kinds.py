"""Which class opens a store of which kind."""

from __future__ import annotations

from statestore.catalog.storage import Storage
from statestore.catalog.store_spec import StoreSpec
from statestore.catalog.stores.handle import StoreHandle
from statestore.catalog.stores.join_window import JoinWindowStore
from statestore.catalog.stores.key_value import KeyValueStore
from statestore.catalog.stores.live_versioned import LiveVersionedStore
from statestore.catalog.stores.session import SessionStore
from statestore.catalog.stores.versioned import VersionedStore
from statestore.catalog.stores.window import WindowStore

HANDLES: dict[str, type[StoreHandle]] = {
    "versioned": VersionedStore,
    "key_value": KeyValueStore,
    "window": WindowStore,
    "join_window": JoinWindowStore,
    "session": SessionStore,
}


def open_handle(
    storage: Storage, spec: StoreSpec, *, auto_compact: bool = True, read_only: bool = False
) -> StoreHandle:
    """A handle with the verbs of the store's kind."""
    if spec.kind == "versioned" and spec.serde == "kafka":
        return LiveVersionedStore(storage, spec, auto_compact=auto_compact, read_only=read_only)
    return HANDLES[spec.kind](storage, spec, auto_compact=auto_compact, read_only=read_only)
