"""Stores of each kind: the description of a new one, made of what a user gives, whether an existing one has it, and the
class that opens it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import new_entry
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows.state_rows import prefix_encoder
from statestore.catalog.keyed.rows.state_spec import TAKEN_COLUMNS
from statestore.catalog.log.entries import read_entry, write_entry
from statestore.catalog.log.log_state import EMPTY
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import KEYED, Captured, StoreSpec, check_kind, check_spec, row_key
from statestore.catalog.named_stores import check_name
from statestore.catalog.reads.shown import shown_columns
from statestore.catalog.stores.kind_options import OPTIONS, windowing_of
from statestore.catalog.stores.live import live_tables
from statestore.catalog.stores.live.join_window import JoinWindowStore
from statestore.catalog.stores.live.key_value import KeyValueStore
from statestore.catalog.stores.live.session import SessionStore
from statestore.catalog.stores.live.window import WindowStore
from statestore.catalog.stores.record_input import record_batch
from statestore.catalog.stores.store_handle import AutoCompact, StoreHandle
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.catalog.stores.versioned.live_versioned import LiveVersionedStore
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, shown
from statestore.formats.places.locations import Location
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.values.times import duration_ms
from statestore.formats.values.types import make_schema

Columns: TypeAlias = "Mapping[str, str | pa.DataType] | pa.Schema"

HANDLES: dict[str, type[StoreHandle]] = {
    "versioned": NaturalVersionedStore,
    "key_value": KeyValueStore,
    "window": WindowStore,
    "join_window": JoinWindowStore,
    "session": SessionStore,
}
IF_MISSING = ("error", "create")


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
    if spec.captured is not None:
        return CapturedStore(storage, spec, auto_compact=auto_compact, read_only=read_only)
    return HANDLES[spec.kind](storage, spec, auto_compact=auto_compact, read_only=read_only)


OPENING = ("auto_compact", "read_only", "takeover")
"""Options of `Catalog.open_store`, which say nothing of the store."""


def chosen_store(
    locate: Callable[[str], tuple[Storage, StoreSpec]],
    open_store: Callable[..., Any],
    create: Callable[..., Any],
    name: str,
    given: tuple[str | None, Columns | None, Columns | None],
    if_missing: str,
    options: Mapping[str, Any],
) -> Any:
    """Return the store of a name, open, after a comparison with the ``given`` kind, key and value and the options.

    Errors as `Catalog.store`.
    """
    _check_if_missing(if_missing)
    kind, key, value = given
    opening = {option: each for option, each in options.items() if option in OPENING}
    options = {option: each for option, each in options.items() if option not in OPENING}
    try:
        spec = locate(name)[1]
    except NotFoundError as error:
        if if_missing == "error" or error.code != ErrorCode.STORE_NOT_FOUND:
            raise
        if key is None:
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION, f"store {name!r} does not exist; to create it, give its key and value"
            ) from None
        chosen = {option: each for option, each in options.items() if each is not None}
        try:
            created = create(name, kind or "versioned", key=key, value=value, **chosen)
            if not opening:
                return created
            created.close()
            return open_store(name, **opening)
        except InvalidInputError as raced:  # another process may have created it meanwhile
            if raced.code != ErrorCode.STORE_EXISTS:
                raise
        spec = locate(name)[1]
    _check_same(spec, kind, key, value, options)
    return open_store(name, **opening)


def new_keyed_spec(name: str, key: pa.Schema, key_groups: int) -> StoreSpec:
    """Return the description of a new keyed store, with an identity of its own. Raises as `Catalog.create_store`."""
    check_name(name)
    return new_spec(name, KEYED, (make_schema(key, "key"), pa.schema([])), {}, "natural", key_groups)


def new_captured_spec(name: str, key: pa.Schema, value: pa.Schema, captured: Captured) -> StoreSpec:
    """Return the description of a new store that keeps the versions of a state of a source, for
    `Catalog.create_described`. ``key`` and ``value`` are the columns of the store. Raises as `Catalog.create_store`.
    """
    check_name(name)
    schemas = make_schema(key, "key"), make_schema(value, "value")
    return new_spec(name, "versioned", schemas, {}, "natural", 128, captured)


def new_spec(
    name: str,
    kind: str,
    schemas: tuple[pa.Schema, pa.Schema],
    options: Mapping[str, Any],
    serde: str,
    key_groups: int,
    captured: Captured | None = None,
) -> StoreSpec:
    """Return the checked description of a new store; ``captured``: of the state whose versions it keeps."""
    check_kind(kind)
    windowing = windowing_of(kind, options)
    interval = None if windowing else duration_ms(options.get("segment_interval"), "segment_interval")
    spec = check_spec(
        StoreSpec(
            name=name,
            store_id=uuid.uuid4().hex,
            kind=kind,
            key=row_key(schemas[0], kind, windowing),
            value=schemas[1],
            history_retention=duration_ms(options.get("history_retention"), "history_retention"),
            segment_interval=interval,
            serde=serde,
            key_groups=key_groups,
            windowing=windowing,
            captured=captured,
        )
    )
    if kind == KEYED:
        _check_keyed_spec(spec)
    else:
        row_serde(serde, spec.user_key, spec.value)  # refuses types that the serde does not support
    return spec


def value_schema(kind: str, value: Columns | None) -> pa.Schema:
    """Return the columns of values, none for a keyed store.

    Raises InvalidInputError MISSING_OPTION or UNKNOWN_OPTION.
    """
    check_kind(kind)
    if kind == KEYED:
        if value is not None:
            raise InvalidInputError(
                ErrorCode.UNKNOWN_OPTION,
                "value: a keyed store has no value columns of its own; give the types of values when "
                "states are registered",
            )
        return pa.schema([])
    if value is None:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            f'a {kind} store needs value, its columns and their types; for example {{"price": "double"}}',
        )
    return make_schema(value, "value")


def write_first_entry(storage: Storage, spec: StoreSpec) -> StoreSpec:
    """Write version 0, the empty store, and return the description with the identity that version 0 has.

    An interrupted creation may have left version 0, or a concurrent creation may have written it. Then the store takes
    over its identity.
    """
    try:
        write_entry(storage, new_entry(replace(EMPTY, store=spec.store_id), "create", NewFiles()))
    except ConflictError:
        return replace(spec, store_id=read_entry(storage, 0).store or spec.store_id)
    return spec


def store_exists(name: str, root: Location) -> InvalidInputError:
    """Return the error for the name of an existing store."""
    return InvalidInputError(
        ErrorCode.STORE_EXISTS,
        f"store {name!r} exists in {root}; open it with open_store, or with store(…, if_missing='create'), which makes "
        "it only where it is missing, or drop_store it first",
    )


def _check_keyed_spec(spec: StoreSpec) -> None:
    """Raise InvalidInputError WRONG_SCHEMA or UNKNOWN_OPTION, UnsupportedError UNSUPPORTED_KEY_TYPE."""
    if spec.serde != "natural":
        raise InvalidInputError(
            ErrorCode.UNKNOWN_OPTION, f"serde={spec.serde!r}: a keyed store has its own; leave it out"
        )
    taken = [name for name in spec.key.names if name.lower() in TAKEN_COLUMNS]
    if taken:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"key columns {taken}: tables of states already have columns of these names; rename the key columns",
        )
    prefix_encoder(spec.key)


def _check_if_missing(if_missing: Any) -> None:
    """Raise InvalidInputError INVALID_OPTION for another word than ``error`` or ``create``."""
    if not isinstance(if_missing, str) or if_missing not in IF_MISSING:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"if_missing is {shown(if_missing)}; expected one of {', '.join(IF_MISSING)}"
        )


def _check_same(spec: StoreSpec, kind: str | None, key: Any, value: Any, options: Mapping[str, Any]) -> None:
    """Raise InvalidInputError STORE_EXISTS, which shows both, if the store differs from what is given of it.

    What is None is not given. ``options`` are those of `Catalog.create_store`.
    """
    found: list[tuple[str, Any, Any]] = [("kind", spec.kind, kind)] if kind not in (None, spec.kind) else []
    found += _columns("key", spec.user_key, key)
    found += _columns("value", spec.value, value)
    given = {name: value for name, value in options.items() if value is not None}
    if kind in (None, spec.kind):
        found += [(n, _own(spec, n), shown(each)) for n, each in given.items() if not _is(spec, n, each)]
    if found:
        differences = "; ".join(f"{name} is {is_}, and {asked} was given" for name, is_, asked in found)
        raise InvalidInputError(
            ErrorCode.STORE_EXISTS,
            f"store {spec.name!r} exists and differs from what was given: {differences}; leave out what shall stay as "
            "it is, use rebuild to change a kind or an option, or choose another name",
        )


def _columns(what: str, own: pa.Schema, given: Any) -> list[tuple[str, str, str]]:
    if given is None:
        return []
    asked = make_schema(given, "key" if what == "key" else "value")
    same = own.names == asked.names and own.types == asked.types
    return [] if same else [(what, f"({shown_columns(own)})", f"({shown_columns(asked)})")]


def _is(spec: StoreSpec, name: str, value: Any) -> bool:
    """Return whether an option has a value. Raises InvalidInputError as `Catalog.create_store` does."""
    if name in ("serde", "key_groups"):
        return bool(_own(spec, name) == value)
    windowing = windowing_of(spec.kind, {**_options(spec), name: value})  # refuses what the kind does not have
    if spec.windowing is None:
        return bool(duration_ms(value, name) == _own(spec, name))
    return windowing == spec.windowing


def _own(spec: StoreSpec, name: str) -> Any:
    return getattr(spec, name) if name in ("serde", "key_groups") else _options(spec).get(name)


def _options(spec: StoreSpec) -> dict[str, Any]:
    """Return the options of a store by the names of `create_store`."""
    rule = spec.windowing
    if rule is None:
        own = {"history_retention": spec.history_retention, "segment_interval": spec.segment_interval}
    else:
        own = {
            "retention": rule.retention,
            "segment_interval": rule.segment_interval,
            "window_size": rule.window_size,
            "retain_duplicates": rule.duplicates,
            "time_ordered": rule.time_ordered,
            "window_before": rule.before,
            "window_after": rule.after,
            "num_segments": rule.segments,
            "batched_changelog": rule.batched_changelog,
        }
    return {name: value for name, value in own.items() if name in OPTIONS[spec.kind]}
