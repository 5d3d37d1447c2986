"""A warehouse: a directory of stores."""

from __future__ import annotations

import difflib
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import pyarrow as pa

from statestore.catalog.checks.verification import Verification, verify
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import new_entry
from statestore.catalog.keyed.keyed_spec import check_keyed_spec
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.log.entries import read_entry, write_entry
from statestore.catalog.log.log_state import EMPTY
from statestore.catalog.log.storage import LocalStorage, StorageExistsError, make_directories
from statestore.catalog.log.store_spec import (
    KEYED,
    STORE_FILE,
    StoreSpec,
    check_kind,
    check_spec,
    decode_spec,
    encode_spec,
    row_key,
)
from statestore.catalog.store_kinds import open_handle
from statestore.catalog.stores.kind_options import windowing_of
from statestore.catalog.stores.live.join_window import JoinWindowStore
from statestore.catalog.stores.live.key_value import KeyValueStore
from statestore.catalog.stores.live.session import SessionStore
from statestore.catalog.stores.live.window import WindowStore
from statestore.catalog.stores.versioned.replay_in_tasks import replay_in_tasks
from statestore.catalog.stores.versioned.versioned_kind import VersionedStore
from statestore.catalog.upkeep.compaction_choice import AutoCompact
from statestore.catalog.upkeep.ranges.task_runs import runs_of
from statestore.catalog.upkeep.rebuild import check_rebuild, replay
from statestore.catalog.upkeep.store_folders import (
    rebuilt_folder,
    remove_store,
    replace_store,
    replaced_stores,
    undo_replacement,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, shown
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import not_local, parse_location
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.values.times import duration_ms
from statestore.formats.values.types import make_schema

Columns: TypeAlias = "Mapping[str, str | pa.DataType] | pa.Schema"
Duration: TypeAlias = int | timedelta | str

FORBIDDEN_IN_NAMES = re.compile(r"[/\\\x00-\x1f$]")
MAX_NAME_BYTES = 200


def connect(path: str | PathLike[str]) -> Catalog:
    """Open the warehouse at ``path``, a local directory, and create it where it does not exist."""
    location = parse_location(path)
    if not location.is_local:
        raise not_local(location, "a warehouse needs")
    root = Path(location.path)
    with disk_errors("make the directory", root):
        if os.path.lexists(root) and not root.is_dir():
            raise InvalidInputError(
                ErrorCode.NOT_A_WAREHOUSE,
                f"{root} is not a directory; expected a directory, or a path at which nothing exists yet",
            )
        make_directories(root)
    return Catalog(root)


class Catalog:
    """The stores of one warehouse directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"Catalog({str(self.root)!r})"

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["versioned"] = "versioned",
        *,
        key: Columns,
        value: Columns,
        history_retention: Duration | None = None,
        segment_interval: Duration | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> VersionedStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["key_value"],
        *,
        key: Columns,
        value: Columns,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> KeyValueStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["window"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        window_size: Duration,
        segment_interval: Duration | None = None,
        retain_duplicates: bool | None = None,
        time_ordered: bool | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> WindowStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["join_window"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        window_before: Duration | None = None,
        window_after: Duration | None = None,
        num_segments: int | None = None,
        batched_changelog: bool | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> JoinWindowStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["session"],
        *,
        key: Columns,
        value: Columns,
        retention: Duration,
        segment_interval: Duration | None = None,
        serde: str = "natural",
        key_groups: int = 128,
    ) -> SessionStore: ...

    @overload
    def create_store(
        self,
        name: str,
        kind: Literal["keyed"],
        *,
        key: Columns,
        key_groups: int = 128,
    ) -> KeyedStore: ...

    @overload
    def create_store(
        self, name: str, kind: str, *, key: Columns, value: Columns | None = None, **options: Any
    ) -> Any: ...

    def create_store(
        self,
        name: str,
        kind: str = "versioned",
        *,
        key: Columns,
        value: Columns | None = None,
        serde: str = "natural",
        key_groups: int = 128,
        **options: Any,
    ) -> Any:
        """Create a store of the given ``kind`` and return it, open.

        The result is a `VersionedStore`, `KeyValueStore`, `WindowStore`, `JoinWindowStore`, `SessionStore` or
        `KeyedStore`. Column types are Spark or Arrow names, or pyarrow types. Durations are int milliseconds, timedelta
        or "30 days". The overloads above list the options of each kind. With ``serde`` "kafka", rows have the bytes and
        the order of Kafka Streams; with "natural", keys have the order of their type. A keyed store receives its value
        types when its states are registered.

        Raises InvalidInputError (STORE_EXISTS, WRONG_SCHEMA, INVALID_NAME, UNKNOWN_OPTION, MISSING_OPTION, …) or
        UnsupportedError.
        """
        _check_name(name)
        schemas = make_schema(key, "key"), _value_schema(kind, value)
        spec = _spec(name, kind, schemas, options, serde, key_groups)
        if not (self.root / name).exists():
            undo_replacement(self.root, name)
        return self._create(self.root / name, spec)

    def rebuild(
        self,
        name: str,
        kind: str | None = None,
        *,
        serde: str | None = None,
        key_groups: int | None = None,
        spark: Any = None,
        **options: Any,
    ) -> Any:
        """Recreate a store by replaying its writes, with another kind, retention, segment interval or serde; return
        the new store.

        ``kind`` and further options are those of ``create_store``; an omitted option has the default of the kind. The
        old store stays until the new one is committed; a handle that is open on it has to be closed first. An
        unversioned store becomes versioned with the time of each commit as the time of its versions. A versioned store
        becomes unversioned in the order of commits: the last write of a key wins, even if it is older. A store that
        stays versioned has the same timelines, as the newest version believes them, so later puts have the same effect.
        A shorter retention refuses the records that were too old for it when they were committed.

        After an expiry the new store has the same horizon. What ended before it is not known, and not replayed; what is
        valid at the horizon is never too old. A key_value store has no horizon, because its times are new.

        With ``spark``, a SparkSession, its tasks replay ranges of keys, and one commit takes all of them in. A new
        store with a hot tier or a retention is replayed in this process, because it judges the writes in their order.

        Raises ConflictError STORE_LOCKED, UnsupportedError REBUILD_KIND, and InvalidInputError as ``create_store``
        does.
        """
        runs = None if spark is None else runs_of(spark)
        old_kind = self.locate(name)[1].kind
        new_kind = kind or old_kind
        check_rebuild(name, old_kind, new_kind)
        with rebuilt_folder(self.root, name) as folder:
            with self.open_store(name) as old:
                spec = old.spec
                schemas = spec.user_key, spec.value
                rebuilt = _spec(name, new_kind, schemas, options, serde or spec.serde, key_groups or spec.key_groups)
                version = old.commit()
                with self._create(folder, rebuilt) as new:
                    if runs is None:
                        replay(old.table, new)
                    else:
                        replay_in_tasks(runs, old.table, new)
            replace_store(self.root, name, folder, spec.store_id, version)
        return self.open_store(name)

    def _create(self, folder: Path, spec: StoreSpec) -> Any:
        """Create the store in ``folder`` and open it."""
        storage = LocalStorage(folder)
        if storage.exists(STORE_FILE):
            raise _exists(spec.name, self.root)
        with disk_errors("make the directory", folder):
            folder.mkdir(exist_ok=True)
        spec = write_first_entry(storage, spec)
        try:
            storage.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise _exists(spec.name, self.root) from None
        storage.settle(STORE_FILE)
        return open_handle(storage, spec)

    def open_store(self, name: str, *, auto_compact: AutoCompact = True, read_only: bool = False) -> Any:
        """Open a store with the methods of its kind (see ``create_store``) and recover the acknowledged writes of a
        crashed writer.

        ``auto_compact`` says who compacts: a thread of this process (True), a process of its own, which shares no
        interpreter with the commits ("process"), or nobody but `compact` (False). With ``read_only``, the handle never
        writes and does not keep another process from writing. Raises NotFoundError
        STORE_NOT_FOUND.
        """
        storage, spec = self.locate(name)
        return open_handle(storage, spec, auto_compact=auto_compact, read_only=read_only)

    def stores(self) -> list[str]:
        """Names of the stores, sorted."""
        with disk_errors("list the stores of", self.root):
            if not self.root.is_dir():
                return []
            names = {path.name for path in self.root.iterdir() if (path / STORE_FILE).is_file()}
            names |= replaced_stores(self.root)  # opening such a store restores it
        return sorted(name for name in names if not name.startswith("."))  # the remains of an interrupted drop

    def drop_store(self, name: str) -> None:
        """Remove a store and everything in it. Handles that are open on it raise STORE_REPLACED from then on.

        Raises NotFoundError STORE_NOT_FOUND, ConflictError STORE_LOCKED while a live store is open for writing.
        """
        self.locate(name)
        remove_store(self.root, name)

    def verify(self, name: str) -> Verification:
        """Check every checksum, log entry and invariant of a store. Damage is returned, not raised.

        Raises NotFoundError STORE_NOT_FOUND.
        """
        _check_name(name)
        return verify(self.root, name)[0]

    def locate(self, name: str) -> tuple[LocalStorage, StoreSpec]:
        """Return the storage and the description of an existing store."""
        _check_name(name)
        storage = LocalStorage(self.root / name)
        if not storage.exists(STORE_FILE):
            undo_replacement(self.root, name)
        if not storage.exists(STORE_FILE):
            raise _not_found(name, self.root, self.stores())
        where = self.root / name / STORE_FILE
        return storage, decode_spec(storage.read(STORE_FILE), str(where))


def _spec(
    name: str, kind: str, schemas: tuple[pa.Schema, pa.Schema], options: Mapping[str, Any], serde: str, key_groups: int
) -> StoreSpec:
    """Return the checked description of a new store."""
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
        )
    )
    if kind == KEYED:
        check_keyed_spec(spec)
    else:
        row_serde(serde, spec.user_key, spec.value)  # refuses types that the serde does not support
    return spec


def _value_schema(kind: str, value: Columns | None) -> pa.Schema:
    """Raise InvalidInputError MISSING_OPTION or UNKNOWN_OPTION."""
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


def write_first_entry(storage: LocalStorage, spec: StoreSpec) -> StoreSpec:
    """Write version 0, the empty store, and return the description with the identity that version 0 has.

    An interrupted creation may have left version 0, or a concurrent creation may have written it. Then the store takes
    over its identity.
    """
    try:
        write_entry(storage, new_entry(replace(EMPTY, store=spec.store_id), "create", NewFiles()))
    except ConflictError:
        return replace(spec, store_id=read_entry(storage, 0).store or spec.store_id)
    return spec


def _check_name(name: Any) -> None:
    if (
        not isinstance(name, str)
        or not name.strip()
        or name.startswith(".")
        or FORBIDDEN_IN_NAMES.search(name)
        or len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES
        or any("\ud800" <= character <= "\udfff" for character in name)
    ):
        raise InvalidInputError(
            ErrorCode.INVALID_NAME,
            f"store name {shown(name)}; expected a text of 1 to {MAX_NAME_BYTES} bytes that does not start with a dot "
            "and holds no slash, dollar or control character",
        )


def _exists(name: str, root: Path) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STORE_EXISTS, f"store {name!r} exists in {root}; open it with open_store, or drop_store it first"
    )


def _not_found(name: str, root: Path, names: list[str]) -> NotFoundError:
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else "create it with create_store"
    there = ", ".join(names[:20]) if names else "no store"
    return NotFoundError(ErrorCode.STORE_NOT_FOUND, f"no store {name!r} in {root}, which has {there}; {hint}")
