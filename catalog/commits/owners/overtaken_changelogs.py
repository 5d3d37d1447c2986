"""Changelogs of this machine whose writes were not committed before another machine took the store over.

They are never committed by themselves: other writes were committed since, which they would undo. The next owner on this
machine moves them from ``changelog/`` to ``overtaken/``, where `TierOwner.take_back` finds them. A rename keeps a file
whole wherever it is interrupted, and the log knows by its name how much of it was committed.
"""

from __future__ import annotations

from pathlib import Path

from statestore.catalog.commits.changelog_ownership import FOLDER as CHANGELOGS
from statestore.catalog.commits.changelog_ownership import OURS
from statestore.catalog.commits.consumed_changelogs import consumed_ends
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, make_directories, sync_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.changelogs.changelog import read_changelog, store_of
from statestore.formats.errors import StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in

FOLDER = "overtaken"


def waiting_changelogs(storage: Storage, spec: StoreSpec, log_state: LogState, root: Path) -> list[Path]:
    """Return the changelogs of this machine with writes of the store that no commit has taken in, oldest first."""
    return _waiting(storage, spec, log_state, root / CHANGELOGS)


def overtaken_changelogs(storage: Storage, spec: StoreSpec, log_state: LogState, root: Path) -> list[Path]:
    """Return the changelogs that were set aside, and have such writes."""
    return _waiting(storage, spec, log_state, root / FOLDER)


def set_aside(root: Path, changelogs: list[Path]) -> None:
    """Move changelogs aside. The position of the hot tier, which names them, has to be removed before."""
    _move(changelogs, root / FOLDER)


def take_back(root: Path, changelogs: list[Path]) -> None:
    """Move changelogs back that were set aside; the next owner adopts them, into a tier that is made anew."""
    _move(changelogs, root / CHANGELOGS)


def _move(changelogs: list[Path], folder: Path) -> None:
    with disk_errors("move changelogs to", folder):
        make_directories(folder)
        for path in changelogs:
            path.rename(folder / path.name)
        sync_folder(folder)
        sync_folder(changelogs[0].parent)


def _waiting(storage: Storage, spec: StoreSpec, log_state: LogState, folder: Path) -> list[Path]:
    paths = [folder / name for name in sorted(names_in(folder)) if OURS.fullmatch(name)]
    paths = [path for path in paths if _is_of(path, spec)]
    done = consumed_ends(storage, log_state, [path.name for path in paths]) if paths else {}
    return [path for path in paths if _has_rows(path, done.get(path.name, 0))]


def _is_of(path: Path, spec: StoreSpec) -> bool:
    try:
        return store_of(path) in ("", spec.store_id)
    except FileNotFoundError:
        return False
    except StateStoreError:  # reading the file reports the damage
        return True


def _has_rows(path: Path, done: int) -> bool:
    try:
        return any(batch.num_rows for batch, _ in read_changelog(path, None, done))
    except FileNotFoundError:  # committed in the meantime
        return False
    except StateStoreError:
        return True
