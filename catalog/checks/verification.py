"""Verification of a store: every checksum, every log entry, every invariant, and a statement of what is verified.

The caches of this process are not used, nothing is written, and no lock is taken, so a store can be verified while
others read and write it. Memory is bounded by the largest segment. All problems are collected, not only the first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path

from statestore.catalog.checks.verify_changelogs import verify_changelogs
from statestore.catalog.checks.verify_data import verify_data
from statestore.catalog.checks.verify_engine import verify_nothing, verify_state
from statestore.catalog.checks.verify_keyed import KeyedFindings, is_keyed, verify_keyed
from statestore.catalog.checks.verify_log import LogFindings, verify_log
from statestore.catalog.checks.verify_report import Progress, Report, Verification, problem_of
from statestore.catalog.commits.store_owners import OWNER
from statestore.catalog.commits.writer_lock import LOCK_FILE
from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.engines.located_states import (
    nothing_here,
    one_state,
    selected_states,
    served_states,
    states_at,
)
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.leases import HELD, Lease, take_lease
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_names import LOG_CHECKPOINTS, STORE_FILE
from statestore.catalog.log.log_state import file_names
from statestore.catalog.log.storage import LocalStorage, ObjectInfo, Storage, local_root
from statestore.catalog.log.store_locations import CACHE, described, spec_at, storage_at, tier_bytes
from statestore.catalog.log.store_spec import DESCRIPTION_COPY, KEYED, StoreSpec, decode_spec
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.engines import expected
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, shown
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import Location, is_object_store, parse_location

Check = Callable[[Callable[[Progress], None]], Verification]
ATTEMPTS = 5  # to check a store that is replaced during the check
NO_OPTIONS: Mapping[str, str] = {}
NOTHING_IN_IT = {LOCK_FILE, DESCRIPTION_COPY}


def verify_store(
    storage: Storage,
    name: str,
    progress: Callable[[Progress], None] = lambda event: None,
    runs: TaskRuns | None = None,
) -> Verification:
    """Check the store in ``storage`` completely, and report every step to ``progress``. Damage is returned, not raised.

    With ``runs``, tasks check the data files, and this process the log and whether keys have one row at a moment.

    A store that is rebuilt or dropped during the check, or replaced by another one, is not damaged: the store that is
    then there is checked. Files that a compaction replaces meanwhile stay, because the check holds them. Where the file
    system has no locks they may go, and the check begins again; after the fifth time NotFoundError FILES_REPLACED.
    """
    attempts = 0
    while True:
        attempts += 1
        before = _state_of(storage)
        try:
            verified = _verified(storage, name, progress, runs)
        except NotFoundError as error:  # where no hold can be taken
            if error.code != ErrorCode.FILES_REPLACED or attempts >= ATTEMPTS:
                raise
            continue
        if verified.ok or attempts >= ATTEMPTS or _state_of(storage) == before:
            return verified


def _state_of(storage: Storage) -> Hashable:
    with contextlib.suppress(StateStoreError):
        return storage.state(STORE_FILE)
    return None


def _verified(storage: Storage, name: str, progress: Callable[[Progress], None], runs: TaskRuns | None) -> Verification:
    _hold = _taken_hold(storage)
    listed = storage.list("")
    report = Report(name, progress, sum(item.bytes for item in listed if not item.name.startswith(CACHE)))
    spec = _spec(storage, report)
    if spec.kind == KEYED if spec is not None else is_keyed(storage):
        return _keyed_verification(name, listed, verify_keyed(storage, spec, listed, report), report)
    log = verify_log(storage, listed, report, "" if spec is None else spec.store_id)
    verify_data(storage, spec, log, listed, report, runs)
    uncommitted = verify_changelogs(storage, spec, log.log_state, report)
    _drop_overtaken(storage, log, report)
    report.finish()
    return _verification(name, storage, listed, log, report, uncommitted)


def _taken_hold(storage: Storage) -> Lease | None:
    """Keep vacuum from removing files of the newest version and later ones; None where that is not possible."""
    root = local_root(storage)
    if root is None:
        return None
    try:
        return take_lease(root, load_log_state(storage).version, HELD)
    except StateStoreError:  # a damaged log is reported by its own check
        return None


def _keyed_verification(name: str, listed: list[ObjectInfo], findings: KeyedFindings, report: Report) -> Verification:
    report.finish()
    needed = {*report.checked, *NOTHING_IN_IT}
    spare = [(item.name, item.bytes) for item in listed if item.name not in needed]
    if spare:
        report.note(f"{len(spare)} files ({sum(size for _, size in spare)} bytes) belong to no kept snapshot")
    log = findings.log
    kept = None if log is None else list(log.kept_snapshots())
    return Verification(
        store=name,
        problems=tuple(report.problems),
        notes=tuple(report.notes),
        files=len(report.checked),
        bytes=report.compared,
        segments=findings.files,
        rows=findings.rows,
        log_entries=findings.entries,
        checkpoints=findings.log_checkpoints,
        versions=None if log is None else (min(kept or (log.newest,)), log.newest),
        uncommitted=0,
        unreferenced=tuple(spare),
        cache_bytes=0,
        snapshots=None if kept is None else len(kept),
    )


def _verification(
    name: str, storage: Storage, listed: list[ObjectInfo], log: LogFindings, report: Report, uncommitted: int
) -> Verification:
    log_state = log.log_state
    needed = {*report.checked, *log.references, *NOTHING_IN_IT}
    needed |= {item.name for item in listed if item.name.startswith(CACHE) or OWNER.fullmatch(item.name)}
    spare = [(item.name, item.bytes) for item in listed if item.name not in needed]
    cache = tier_bytes(storage, listed)
    if spare:
        report.note(f"{len(spare)} files ({sum(size for _, size in spare)} bytes) belong to no commit")
    if cache:
        report.note(f"{CACHE} ({cache} bytes) is a cache and was not read; it is recreated if it is lost")
    oldest = 0 if log_state is None or log_state.horizon is None else log_state.horizon.version
    return Verification(
        store=name,
        problems=tuple(report.problems),
        notes=tuple(report.notes),
        files=len(report.checked),
        bytes=report.compared,
        segments=0 if log_state is None else len(log_state.segments),
        rows=0 if log_state is None else sum(meta.rows for meta in log_state.segments),
        log_entries=log.entries,
        checkpoints=log.log_checkpoints,
        versions=None if log_state is None else (oldest, log_state.version),
        uncommitted=uncommitted,
        unreferenced=tuple(spare),
        cache_bytes=cache,
        log_begins=log.begins,
    )


def _spec(storage: Storage, report: Report) -> StoreSpec | None:
    try:
        data = storage.read(STORE_FILE)
        report.read(STORE_FILE, len(data))
        return decode_spec(data, STORE_FILE)
    except StateStoreError as error:
        report.add(problem_of(error, STORE_FILE, "every read and write of the store"))
        return None


def _drop_overtaken(storage: Storage, log: LogFindings, report: Report) -> None:
    """Drop problems of files that are missing because another process compacted and vacuumed during the check."""
    missing = {p.file for p in report.problems if p.code == ErrorCode.FILE_NOT_FOUND} & log.references.keys()
    if not missing:
        return
    try:
        overtaken = missing - file_names(load_log_state(storage))
    except StateStoreError:
        return
    report.problems[:] = [p for p in report.problems if p.code != ErrorCode.FILE_NOT_FOUND or p.file not in overtaken]


def verify(
    path: str | os.PathLike[str],
    store: str | None = None,
    progress: Callable[[Progress], None] = lambda event: None,
    *,
    deep: bool = False,
) -> list[Verification]:
    """Check the stores of the warehouse at ``path`` (or the one store at ``path``), or only ``store``.

    Of the state of an engine, the newest version of each state is read in full, or only that of the state ``store``;
    with ``deep``, each version that is kept. Stores are always checked in full. Damage is returned, not raised: that of
    files by which state is opened as the one problem of the whole. Raises NotFoundError PATH_NOT_FOUND, NOTHING_HERE,
    STORE_NOT_FOUND or TABLE_NOT_FOUND, and the other errors of `inspect` for state that cannot be opened at all.
    """
    return [check(progress) for check in checks_at(path, store, deep=deep)]


def checks_at(
    path: str | os.PathLike[str],
    store: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    *,
    deep: bool = False,
) -> list[Check]:
    """Return the checks that `verify` makes, one for each store or state; each is called with a listener of progress.

    ``options`` are those of a read of an engine's state. Raises as `verify`.
    """
    location = parse_location(path)
    try:
        states = _states_at(location, options)
    except CorruptError as error:  # what says which states there are is damaged
        damage = error
        return [lambda _: verify_nothing(location, damage, deep=deep)]
    if states is not None:
        if store is not None and not states.knows(store):
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND,
                f"{location} has no state {shown(store)}; there are {', '.join(states.names) or 'none'}",
            )
        names = states.names if store is None else [states.open(store.partition("$")[0]).name]
        return [partial(verify_state, states, name, deep=deep) for name in names]
    return [partial(verify_store, storage, name) for storage, name in stores_to_verify(path, store)]


def _states_at(location: Location, options: Mapping[str, str]) -> EngineStates | None:
    """Return the state of an engine at a location; None for stores, whole or damaged."""
    served = served_states(location, options)
    if served is not None:
        return served
    if options:
        return selected_states(location, options)
    if location.is_local:
        root = Path(location.path)
        with disk_errors("look at", root):
            if root.is_file():
                return states_at(location)
            return one_state(location, {}) if not root.is_dir() else None if _is_store(root) else states_at(location)
    return None if is_object_store(location) and _places_in_objects(location) else states_at(location)


def stores_to_verify(path: str | os.PathLike[str], store: str | None = None) -> list[tuple[Storage, str]]:
    """Return the storages and names of the stores at a path, including a store that has lost its description.

    In an object store a store that has lost its description is not found, because dropping a store removes it first.
    """
    location = parse_location(path)
    if location.is_local:
        return [(LocalStorage(folder), folder.name) for folder in _folders_to_verify(Path(location.path), store)]
    places = _places_in_objects(location) if is_object_store(location) else []
    chosen = [place for place in places if store is None or place.name == store]
    if not places:
        raise NotFoundError(
            ErrorCode.NOTHING_HERE, f"{location} holds no store; expected a warehouse made with statestore.connect"
        )
    if not chosen:
        raise _no_store(store, str(location), [place.name for place in places])
    return [(described(storage_at(place))[0], place.name) for place in chosen]


def _places_in_objects(location: Location) -> list[Location]:
    """Return the store at a location in an object store, or the stores of the warehouse there."""
    from statestore.catalog.upkeep.store_objects import store_names  # which loads obstore

    if location.path and spec_at(location) is not None:
        return [location]
    return [location.at(name) for name in store_names(location)]


def _folders_to_verify(root: Path, store: str | None) -> list[Path]:
    with disk_errors("look at", root):
        if not root.is_dir():
            raise NotFoundError(
                ErrorCode.PATH_NOT_FOUND, f"{root} is not a directory; expected a warehouse, a store or {expected()}"
            )
        if _is_store(root):
            there = [root.resolve()]
        else:
            there = sorted(p for p in root.iterdir() if p.is_dir() and _is_store(p))
    folders = [folder for folder in there if not folder.name.startswith(".")]
    if not folders:
        raise nothing_here(folder_at(Location(str(root))), root)
    chosen = [folder for folder in folders if store is None or (isinstance(store, str) and folder.name == store)]
    if not chosen:
        raise _no_store(store, str(root), [folder.name for folder in folders])
    return chosen


def _no_store(store: object, root: str, names: list[str]) -> NotFoundError:
    return NotFoundError(ErrorCode.STORE_NOT_FOUND, f"no store {shown(store)} in {root}, which has {', '.join(names)}")


def _is_store(folder: Path) -> bool:
    files = (STORE_FILE, entry_name(0), LOG_CHECKPOINTS)  # a trimmed log begins with a checkpoint
    return any((folder / name).exists() for name in files)
