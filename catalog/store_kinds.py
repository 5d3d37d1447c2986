"""The class that opens a store of each kind."""

from __future__ import annotations

import pyarrow as pa

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import KEYED, StoreSpec
from statestore.catalog.stores.live import live_tables
from statestore.catalog.stores.live.join_window import JoinWindowStore
from statestore.catalog.stores.live.key_value import KeyValueStore
from statestore.catalog.stores.live.session import SessionStore
from statestore.catalog.stores.live.window import WindowStore
from statestore.catalog.stores.record_input import record_batch
from statestore.catalog.stores.store_handle import StoreHandle
from statestore.catalog.stores.versioned.live_versioned import LiveVersionedStore
from statestore.catalog.stores.versioned.versioned_store import NaturalVersionedStore
from statestore.catalog.upkeep.compaction_choice import AutoCompact

HANDLES: dict[str, type[StoreHandle]] = {
    "versioned": NaturalVersionedStore,
    "key_value": KeyValueStore,
    "window": WindowStore,
    "join_window": JoinWindowStore,
    "session": SessionStore,
}


def check_columns(spec: StoreSpec, schema: pa.Schema) -> None:
    """Raise InvalidInputError WRONG_SCHEMA if ``put_all`` of the kind does not take tables of ``schema``."""
    if spec.kind == "versioned":
        record_batch(spec, pa.RecordBatch.from_pylist([], schema=schema))
    else:
        live_tables.check_columns(spec, schema)


def open_handle(
    storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
) -> StoreHandle | KeyedStore:
    """Return a handle with the methods of the store's kind."""
    if spec.kind == KEYED:
        return KeyedStore(storage, spec, read_only=read_only)
    if spec.kind == "versioned" and spec.serde == "kafka":
        return LiveVersionedStore(storage, spec, auto_compact=auto_compact, read_only=read_only)
    return HANDLES[spec.kind](storage, spec, auto_compact=auto_compact, read_only=read_only)
