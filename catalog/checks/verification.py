"""Verification of a store: every checksum, every log entry, every invariant, and a statement of what is verified.

The caches of this process are not used, nothing is written, and no lock is taken, so a store can be verified while
others read and write it. Memory is bounded by the largest segment. All problems are collected, not only the first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from statestore.catalog.checks.verify_changelogs import verify_changelogs
from statestore.catalog.checks.verify_data import verify_data
from statestore.catalog.checks.verify_keyed import KeyedFindings, is_keyed, verify_keyed
from statestore.catalog.checks.verify_log import LogFindings, verify_log
from statestore.catalog.checks.verify_report import Problem, Progress, Report, problem_of
from statestore.catalog.commits.owners.owner_names import OWNER
from statestore.catalog.commits.owners.tier_size import CACHE, tier_bytes
from statestore.catalog.commits.writer_lock import LOCK_FILE
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.leases import HELD, Lease, take_lease
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_names import LOG_CHECKPOINTS
from statestore.catalog.log.log_state import file_names
from statestore.catalog.log.storage import LocalStorage, ObjectInfo, Storage, local_root
from statestore.catalog.log.storage_places import described, spec_at, storage_at
from statestore.catalog.log.store_spec import DESCRIPTION_COPY, KEYED, STORE_FILE, StoreSpec, decode_spec
from statestore.catalog.reads.results.shown_object import Facts, ShowsItself
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError, shown
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import Location, is_object_store, parse_location

MOST_SHOWN = 10  # problems and notes in the text of a result
ATTEMPTS = 5  # to check a store that is replaced during the check
NOTHING_IN_IT = {LOCK_FILE, DESCRIPTION_COPY}


@dataclass(frozen=True, repr=False)
class Verification(ShowsItself):
    """The result of verifying one store. ``ok``: there is no problem; ``verified`` states in words what is verified.

    ``files`` and ``bytes`` were read and compared. ``rows`` counts the rows of the newest layout. ``versions`` is the
    oldest and the newest version that can be read. ``unreferenced`` has (name, bytes) of files that no commit needs.
    ``cache_bytes`` is the size of the hot tier, which is not read: a lost hot tier is recreated. ``snapshots`` counts
    the kept snapshots of a keyed store, whose ``segments`` are files of any kind; it is None for other stores.
    ``log_begins`` is the first version of a log that vacuum trimmed behind the horizon.
    """

    store: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    files: int
    bytes: int
    segments: int
    rows: int
    log_entries: int
    checkpoints: int
    versions: tuple[int, int] | None
    uncommitted: int
    unreferenced: tuple[tuple[str, int], ...]
    cache_bytes: int
    snapshots: int | None = None
    log_begins: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            said = "; it is called verified" if name == "vouches" else ""
            raise AttributeError(f"a Verification has no attribute {name!r}{said}")

    def _about(self) -> tuple[str, Facts]:
        facts = [("verified", self.verified)]
        facts += [(problem.code, f"{problem.file}: {problem.message}") for problem in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            facts.append(("further problems", str(len(self.problems) - MOST_SHOWN)))
        facts += [("note", note) for note in self.notes[:MOST_SHOWN]]
        return f"verification of {self.store!r}: {'ok' if self.ok else f'{len(self.problems)} problems'}", facts

    @property
    def verified(self) -> str:
        """Return in words which properties of the store are verified."""
        if self.problems or self.versions is None:
            return "nothing: see the problems"
        log = (
            f"every byte of {self.files} files is what was committed; versions {self.log_begins} to "
            f"{self.versions[1]} follow one another without a gap, and {self.checkpoints} checkpoints say the same"
        )
        if self.snapshots is not None:
            return (
                f"{log}; each of {self.snapshots} kept snapshots has every key group once; their {self.rows} rows, in "
                f"{self.segments} files, can be read and lie in the key groups of their keys"
            )
        return (
            f"{log}; {self.rows} rows in "
            f"{self.segments} segments have the order, statistics, key index and ends that reads rely on; no key has "
            f"two rows at one moment, as versions {self.versions[0]} and {self.versions[1]} believe; "
            f"{self.uncommitted} acknowledged puts are whole and wait for a commit"
        )


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
    path: str | os.PathLike[str], store: str | None = None, progress: Callable[[Progress], None] = lambda event: None
) -> list[Verification]:
    """Check the stores of the warehouse at ``path`` (or the one store at ``path``), or only ``store``.

    Damage is returned, not raised. Raises NotFoundError PATH_NOT_FOUND, NOTHING_HERE or STORE_NOT_FOUND.
    """
    return [verify_store(storage, name, progress) for storage, name in stores_to_verify(path, store)]


def stores_to_verify(path: str | os.PathLike[str], store: str | None = None) -> list[tuple[Storage, str]]:
    """Return the storages and names of the stores at a path, including a store that has lost its description.

    In an object store a store that has lost its description is not found, because dropping a store removes it first.
    """
    location = parse_location(path)
    if location.is_local:
        return [(LocalStorage(folder), folder.name) for folder in _folders_to_verify(Path(location.path), store)]
    if location.path and spec_at(location) is not None:
        places = [location]
    else:
        places = _stores_in_objects(location) if is_object_store(location) else []
    chosen = [place for place in places if store is None or place.name == store]
    if not places:
        raise NotFoundError(
            ErrorCode.NOTHING_HERE, f"{location} holds no store; expected a warehouse made with statestore.connect"
        )
    if not chosen:
        raise _no_store(store, str(location), [place.name for place in places])
    return [(described(storage_at(place))[0], place.name) for place in chosen]


def _stores_in_objects(location: Location) -> list[Location]:
    from statestore.catalog.upkeep.store_objects import store_names  # which loads obstore

    return [location.at(name) for name in store_names(location)]


def _folders_to_verify(root: Path, store: str | None) -> list[Path]:
    with disk_errors("look at", root):
        if not root.is_dir():
            raise NotFoundError(
                ErrorCode.PATH_NOT_FOUND, f"{root} is not a directory; expected a warehouse or a store directory"
            )
        if _is_store(root):
            there = [root.resolve()]
        else:
            there = sorted(p for p in root.iterdir() if p.is_dir() and _is_store(p))
    folders = [folder for folder in there if not folder.name.startswith(".")]
    if not folders:
        raise NotFoundError(
            ErrorCode.NOTHING_HERE, f"{root} holds no store; expected a warehouse made with statestore.connect"
        )
    chosen = [folder for folder in folders if store is None or (isinstance(store, str) and folder.name == store)]
    if not chosen:
        raise _no_store(store, str(root), [folder.name for folder in folders])
    return chosen


def _no_store(store: object, root: str, names: list[str]) -> NotFoundError:
    return NotFoundError(ErrorCode.STORE_NOT_FOUND, f"no store {shown(store)} in {root}, which has {', '.join(names)}")


def _is_store(folder: Path) -> bool:
    files = (STORE_FILE, entry_name(0), LOG_CHECKPOINTS)  # a trimmed log begins with a checkpoint
    return any((folder / name).exists() for name in files)
