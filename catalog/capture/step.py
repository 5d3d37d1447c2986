"""One step of a capture: the next version of one state becomes one commit of its store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from statestore.catalog.capture.layout import captured_fields, captured_spec, layout_of
from statestore.catalog.capture.next_version import kept_versions, next_version, transaction_of, versions_behind
from statestore.catalog.capture.storable_types import storable
from statestore.catalog.capture.version_records import records_of_version
from statestore.catalog.catalog import Catalog
from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.places.held_tables import held_rows
from statestore.formats.values.types import normal_type
from statestore.formats.values.wider_types import widest_type


@dataclass(frozen=True)
class Step:
    """A version of a source that was captured as ``commit`` of the store.

    ``rows`` and ``tombstones`` are what changed, ``behind`` the versions that can be read and are not captured yet.
    """

    source: SourceVersion
    commit: int
    rows: int
    tombstones: int
    bytes: int
    behind: int


def open_captured(
    catalog: Catalog, name: str, source: Source, state: str, *, has_nulls: bool = False
) -> CapturedStore | None:
    """Return the store that captures a state, open; a new one where there is none; None where the state has no version
    yet. ``has_nulls``: in a new store a key may have nulls.

    Raises ConflictError CAPTURE_CONFLICT for a store of this name that holds anything else, UnsupportedError
    UNSUPPORTED_TYPE.
    """
    try:
        _, spec = catalog.locate(name)
    except NotFoundError as error:
        if error.code != ErrorCode.STORE_NOT_FOUND:
            raise
        if not kept_versions(source, state):
            return None
        try:
            made: CapturedStore = catalog.create_described(_new_spec(source, state, name, has_nulls=has_nulls))
            return made
        except InvalidInputError as raced:  # another capture has made it meanwhile
            if raced.code != ErrorCode.STORE_EXISTS:
                raise
        _, spec = catalog.locate(name)
    taken = spec.captured
    if taken is None or (taken.source, taken.state) != (source.identity, state):
        holds = "no state of an engine" if taken is None else f"{taken.state} of {taken.path} ({taken.source})"
        raise ConflictError(
            ErrorCode.CAPTURE_CONFLICT,
            f"store {name!r} of {catalog.location} keeps {holds}, not {state} of {source.path} ({source.identity}); "
            "capture into another warehouse",
        )
    opened: CapturedStore = catalog.open_store(name)
    return opened


def capture_next(store: CapturedStore, source: Source, since: int | None = None) -> Step | None:
    """Capture the oldest version of a source that the store does not have yet; None if there is none.

    The first version of a store is ``since``, or the next one that can be read; None: the oldest.

    Where another capture commits the same version first, the newest that this store has is looked at again. Raises
    NotFoundError VERSION_GONE where the engine removes the version while it is read: a source that is opened anew has
    what is left. Raises ConflictError CAPTURE_CONFLICT, InvalidInputError INCOMPATIBLE_STATE for columns that the store
    does not have, and the errors of the source.
    """
    captured = store.captured
    while True:
        taken = newest_captured(store)
        found = next_version(source, captured.state, taken, since)
        if found is None:
            return None
        wanted, said, columns = found
        _check_columns(store.spec, source, captured.state, columns, said.version)
        layout = layout_of(store.spec, columns.names)
        records = held_rows(layout.record_schema, records_of_version(table_of(store), layout, wanted))
        transaction = transaction_of(store.spec, said.version)
        try:
            commit = store.write(
                records, transaction=transaction, source=said, after=None if taken is None else taken.version
            )
        except ConflictError as error:
            if error.code != ErrorCode.VERSION_TAKEN:
                raise
            continue  # another capture of the source was first
        known = table_of(store).log_state().versions
        counts = known.rows_at(commit), known.tombstones_at(commit), known.bytes_at(commit)
        return Step(said, commit, *counts, versions_behind(source, captured.state, said))


def table_of(store: CapturedStore) -> VersionedTable:
    """Return the table of a captured store."""
    assert isinstance(store.table, VersionedTable)
    return store.table


def newest_captured(store: CapturedStore) -> SourceVersion | None:
    """Return the newest version of its source that a store has, from the newest version of its log."""
    captured = table_of(store).log_state().captured
    return None if captured is None else captured.newest


def _new_spec(source: Source, state: str, name: str, *, has_nulls: bool) -> StoreSpec:
    """Return the description of a store for a state."""
    info = source.info(state)
    fields = source.shared_schema(state)
    return captured_spec(source, info, fields, name, has_nulls=has_nulls)


def _check_columns(spec: StoreSpec, source: Source, state: str, columns: pa.Schema, version: int) -> None:
    """Raise UnsupportedError CAPTURE_UNSUPPORTED for columns of a version that the store cannot take."""
    info = source.info(state)
    names = dict(layout_of(spec, columns.names).names)
    own = pa.schema([*spec.key, *spec.value])
    for field in captured_fields(info, columns):
        stored = names.get(field.name)
        kind = normal_type(storable(field.type), f"column {field.name!r} of {state}")
        wider = None if stored is None else widest_type(own.field(stored).type, kind)
        if wider is not None and stored is not None and normal_type(wider, stored) == own.field(stored).type:
            continue
        has = "no such column" if stored is None else f"{own.field(stored).type} there"
        raise UnsupportedError(
            ErrorCode.CAPTURE_UNSUPPORTED,
            f"{source.version_words[0]} {version} of {state} of {source.path} has column {field.name} {field.type}; "
            f"store {spec.name!r} has {has}. What was captured stays as it is; capture the state into another "
            "warehouse from here on",
        )
