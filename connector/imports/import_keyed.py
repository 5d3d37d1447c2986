"""The import of an engine's keyed state into a new keyed store, whose first version it becomes.

The store gets its place at the end (`new_store`), so a failure leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from statestore.catalog.catalog import Catalog, connect
from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.keyed.keyed_store import KeyedStore, task_groups
from statestore.catalog.keyed.rows.state_rows import table_schema
from statestore.catalog.keyed.rows.state_spec import description
from statestore.catalog.keyed.snapshots.snapshot_log import first_snapshot
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart, StateSegment
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import Storage, StorageExistsError, UnsettledError, sync_folder
from statestore.catalog.log.store_locations import is_described, storage_at
from statestore.catalog.log.store_spec import StoreSpec, encode_spec
from statestore.catalog.reads.shown import Facts, ShowsItself, shown_columns
from statestore.catalog.store_kinds import new_keyed_spec, write_first_entry
from statestore.catalog.upkeep.store_folders import rebuilt_folder
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.imports.import_plan import (
    ImportPlan,
    LastAccess,
    PlannedState,
    chosen_operator,
    import_plan,
    with_states,
)
from statestore.connector.imports.imported_rows import GroupedRows, imported_rows, store_segment
from statestore.formats.engine import Source
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.values.key_groups import key_groups

Progress = Callable[[str, int, int | None], None]
"""Called with the state, the rows that were read so far of all states, and how many there are at most (or None)."""

_RUNS = "runs"


@dataclass(frozen=True)
class ImportedState:
    """A state of the new store. ``source`` is its name in the operator, ``described`` its kind and types there."""

    name: str
    source: str
    described: str
    rows: int


@dataclass(frozen=True, repr=False)
class Imported(ShowsItself):
    """The new keyed store at ``path``: ``version`` has what version ``source_version`` of the source had."""

    path: str
    version: int
    operator: str
    source_version: int
    key: pa.Schema
    key_groups: int
    tasks: int
    states: tuple[ImportedState, ...]

    def _about(self) -> tuple[str, Facts]:
        facts = [
            ("from", f"version {self.source_version} of operator {self.operator!r}"),
            ("key", shown_columns(self.key)),
        ]
        states = [(f"state {each.name}", f"{each.described}, {each.rows} rows") for each in self.states]
        return f"keyed store at {parse_location(self.path)}, version {self.version}", [*facts, *states]


def import_keyed(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    operator: str | None = None,
    states: Collection[str] | None = None,
    key: Sequence[str] | None = None,
    whole_key: bool = False,
    last_access: LastAccess | None = None,
    tasks: int | None = None,
    version: int | None = None,
    progress: Progress = lambda state, rows, most: None,
    **options: Any,
) -> Imported:
    """Make a keyed store of the keyed state of an operator, such as one in a Flink savepoint.

    ``source`` is a path as `inspect` takes it, ``store`` the path of the new store, like "warehouse/sessions", or the
    URI of its place in an object store.
    ``operator`` is the operator's name or id; it may be left out where only one has keyed state. All its states become
    states of the store under their names and with their kinds, types and namespaces, or only those in ``states``. Keys
    go to the key groups in which keyed stores look for them, so `run_keyed` and `run_keyed_stream` go on from there.

    A key of several fields becomes a key column for each, named as the fields or as in ``key``; with ``whole_key`` it
    stays one column, whose fields may be null. A window as namespace becomes ``window_start`` and ``window_end``, a
    struct as namespace a column for each field. Timers are states of timers. Aggregating states have their
    accumulators. Values of states with a time to live are stored with their ``last_access`` ("keep") or without it
    ("drop"); one of both must be said, because keyed stores have no time to live.

    ``tasks``: the store's files are divided as for so many tasks (default: the operator's parallelism). ``version``: a
    checkpoint (default: the newest that can be read). ``options`` are those of engines. Memory is bounded; of each
    state the rows of one key group must fit.

    The store appears when everything is in it; a failure leaves none. Raises InvalidInputError STORE_EXISTS,
    MISSING_OPTION, WRONG_KEY, NULL_KEY, WRONG_SCHEMA or BATCH_TOO_LARGE, NotFoundError STATE_NOT_FOUND or
    VERSION_NOT_FOUND, UnsupportedError UNSUPPORTED_ENGINE, UNSUPPORTED_TYPE or UNSUPPORTED_KEY_TYPE, and the errors of
    the source.
    """
    return import_states(
        source,
        store,
        engine_options_of("import_keyed", options),
        operator=operator,
        states=states,
        key=key,
        whole_key=whole_key,
        last_access=last_access,
        tasks=tasks,
        version=version,
        progress=progress,
    )


def import_states(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    options: Mapping[str, str],
    *,
    operator: str | None,
    states: Collection[str] | None,
    key: Sequence[str] | None,
    whole_key: bool,
    last_access: LastAccess | None,
    tasks: int | None,
    version: int | None,
    progress: Progress,
) -> Imported:
    """Do what `import_keyed` says, with options of engines by their names in Spark."""
    place = _place(source, store)
    opened = _source(source, options)
    found, version = chosen_operator(opened, operator, version)
    found = with_states(found, states)
    plan = import_plan(opened, found, version, key=key, whole_key=whole_key, last_access=last_access)
    with new_store(place, plan) as made:
        count = min(found.parallelism, found.key_groups) if tasks is None else tasks
        imported, parts = _parts(made, plan, task_groups(found.key_groups, count), progress)
        committed = made.commit(parts)
    return Imported(str(place), committed, found.name, version, plan.key, found.key_groups, count, tuple(imported))


def _parts(
    made: NewStore, plan: ImportPlan, tasks: Sequence[range], progress: Progress
) -> tuple[list[ImportedState], list[SnapshotPart]]:
    """Write all states, one after another, and return them with the parts of the snapshot."""
    key_groups_of_store = plan.operator.key_groups
    tables: list[dict[str, StateSegment]] = [{} for _ in tasks]
    imported, position, done = [], 0, 0
    pieces = [planned.at.parts([]) for planned in plan.states]
    bounds = [part.rows for parts_of in pieces for part in parts_of]
    most = None if None in bounds else sum(bound or 0 for bound in bounds)
    for planned, parts_of in zip(plan.states, pieces, strict=True):
        runs = made.scratch / _RUNS
        rows = GroupedRows(table_schema(plan.key, planned.spec), key_groups_of_store, runs)
        for batch in imported_rows(planned, parts_of, plan.key, plan.fields):
            keys = [batch.column(name) for name in plan.key.names]
            rows.add(batch, key_groups(keys, key_groups_of_store))
            position = max(position, _last_position(planned, batch))
            done += batch.num_rows
            progress(planned.source.name, done, most)
        written = 0
        for groups, segments in zip(tasks, tables, strict=True):
            segment = store_segment(made.storage, plan.key, planned.spec, rows, groups)
            if segment is not None:
                segments[planned.spec.name] = segment
                written += segment.groups[-1]
        shutil.rmtree(runs, ignore_errors=True)
        imported.append(ImportedState(planned.spec.name, planned.source.name, description(planned.spec), written))
    specs = tuple(planned.spec for planned in plan.states)
    parts = [
        SnapshotPart("full", uuid.uuid4().hex, groups, specs, position, segments, {}, {})
        for groups, segments in zip(tasks, tables, strict=True)
    ]
    return imported, parts


def _last_position(planned: PlannedState, batch: pa.RecordBatch) -> int:
    """The last position of an element in a batch of a list state."""
    if planned.spec.kind != "list" or not batch.num_rows:
        return 0
    return int(batch.column("position").to_numpy().max())


def _place(source: str | os.PathLike[str], store: str | os.PathLike[str]) -> Location:
    """The place of the new store.

    Raises InvalidInputError STORE_EXISTS, INVALID_LOCATION for a place in the source, UnsupportedError
    UNSUPPORTED_PATH.
    """
    location, read = parse_location(store), parse_location(source)
    if not location.is_local:
        check_absent(location)
        return location
    path = Path(location.path)
    # realpath leaves a loop of links as it is, where Path.resolve raises an error of its own.
    if read.is_local and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(read.path)):
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION, f"{path} is in the source {read}, which stays unchanged; name another place"
        )
    check_absent(location)
    return location


def _source(path: str | os.PathLike[str], options: Mapping[str, str]) -> Source:
    held = open_warehouse(path, options).held
    if not isinstance(held, EngineStates):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_ENGINE, f"{path} has stores of statestore itself; name the state of an engine"
        )
    return held.source


# The store that an import makes: nobody sees it before its first version is complete.
#
# In a local warehouse it is made in a hidden folder beside its place and then renamed. In an object store, where
# nothing is renamed, its files are in a folder of their own, and its description, by which it exists, is put last.


class NewStore(Protocol):
    """A store that is being made. ``scratch`` is a local folder for what the import needs meanwhile."""

    @property
    def storage(self) -> Storage: ...

    @property
    def scratch(self) -> Path: ...

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        """Commit the first snapshot and return its version."""


@dataclass(frozen=True)
class _InFolder:
    """A store in a hidden folder of a local warehouse."""

    store: KeyedStore
    scratch: Path

    @property
    def storage(self) -> Storage:
        return self.store.files()

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        return self.store.commit(parts)


@dataclass(frozen=True)
class _InObjects:
    """A store in an object store that has no description yet."""

    spec: StoreSpec
    storage: Storage
    scratch: Path

    def commit(self, parts: Sequence[SnapshotPart]) -> int:
        return first_snapshot(self.storage, self.spec, parts)


@contextmanager
def new_store(place: Location, plan: ImportPlan) -> Iterator[NewStore]:
    """Yield the new store, which gets its place when the block ends well. Raises InvalidInputError STORE_EXISTS."""
    if place.is_local:
        with _in_folder(Path(place.path), plan) as made:
            yield made
    else:
        with _in_objects(place, plan) as made:
            yield made


def check_absent(place: Location) -> None:
    """Raise InvalidInputError STORE_EXISTS for a place that is taken, UnsupportedError UNSUPPORTED_PATH."""
    if place.is_local:
        path = Path(place.path)
        if os.path.lexists(path) or (path.parent.is_dir() and path.name in Catalog(path.parent).stores()):
            raise _exists(place)
    elif is_described(storage_at(place)):
        raise _exists(place)


def _exists(place: Location) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STORE_EXISTS,
        f"{place} exists; import into a new store, or remove it first: statestore.connect({str(place.parent)!r})"
        f".drop_store({place.name!r})",
    )


@contextmanager
def _in_folder(path: Path, plan: ImportPlan) -> Iterator[NewStore]:
    root, name = connect(path.parent).root, path.name
    with rebuilt_folder(root, name) as folder:
        hidden = Catalog(folder)
        with hidden.create_store(name, "keyed", key=plan.key, key_groups=plan.operator.key_groups) as store:
            yield _InFolder(store, folder)
        with disk_errors("make the store", root / name):
            try:
                (folder / name).rename(root / name)
            except OSError:
                if os.path.lexists(root / name):
                    raise _exists(Location(str(root / name))) from None
                raise
            sync_folder(root)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_objects(place: Location, plan: ImportPlan) -> Iterator[NewStore]:
    from statestore.catalog.upkeep.store_objects import Place, marks_of, stays

    whole = connect(place.parent.uri).object_storage(place.name)
    marks = marks_of(whole)
    if is_described(whole):
        raise _exists(place)
    folder = uuid.uuid4().hex
    storage = whole.within(folder)
    spec = replace(new_keyed_spec(place.name, plan.key, plan.operator.key_groups), folder=folder)
    try:
        spec = write_first_entry(storage, spec)
        with temporary_directory() as scratch:
            yield _InObjects(spec, storage, scratch)
        try:
            whole.create(STORE_FILE, encode_spec(spec))
        except StorageExistsError:
            raise _exists(place) from None
    except BaseException as error:
        if not isinstance(error, UnsettledError):  # else the description may yet appear
            with contextlib.suppress(StateStoreError):  # vacuum of a later store of this name removes what stays
                storage.delete_many([item.name for item in storage.list("")])
        raise
    if not stays(whole, Place(storage, spec, marks), spec):
        raise _exists(place)
