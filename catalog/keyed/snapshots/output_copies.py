"""Local copies of output files of a keyed store in an object store, where they have no paths."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog
from statestore.catalog.keyed.snapshots.snapshot_part import EMITTED
from statestore.catalog.keyed.snapshots.stored_files import checked
from statestore.catalog.keyed.snapshots.stored_objects import download_files
from statestore.catalog.log.storage import TEMPORARY, LocalStorage, make_directories
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.upkeep.store_objects import OUTPUTS
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in
from statestore.formats.segments.segment_meta import FileRef

ABANDONED = 86_400  # seconds after which a file that is still being made belongs to a killed process


def output_copies(
    storage: ObjectStorage, own: Path, store_id: str, read_log: Callable[[], SnapshotLog], version: int
) -> list[Path]:
    """Return local copies of the outputs of a version, compared with their checksums; only missing ones are fetched.

    ``own`` is what this machine keeps of the store. Copies stay as long as the store keeps the outputs, and go with the
    first call after that. Raises NotFoundError VERSION_NOT_FOUND or SNAPSHOT_FILE_MISSING, CorruptError
    SEGMENT_CORRUPT, StorageError.
    """
    place = LocalStorage(own / OUTPUTS / store_id)
    folder = place.root / EMITTED
    known = names_in(folder)  # before the log is read: another process may copy what a later version has
    log = read_log()
    _remove_unneeded(folder, known, log)
    for other in names_in(own / OUTPUTS):
        if other != store_id:  # an earlier store of the name
            shutil.rmtree(own / OUTPUTS / other, ignore_errors=True)
    files = log.outputs(version)
    missing = [file for file in files if not _is_whole(place, file)]
    if missing:
        with disk_errors("make the directory", folder):
            make_directories(folder)
        _fetch(storage, place, missing)
    return [checked(place, file) for file in files]


def _is_whole(place: LocalStorage, file: FileRef) -> bool:
    try:
        checked(place, file)
    except (NotFoundError, CorruptError):
        return False
    return True


def _fetch(storage: ObjectStorage, place: LocalStorage, files: Sequence[FileRef]) -> None:
    """Make whole copies under temporary names, then give them their names, as other processes may do meanwhile."""
    folder = place.root / EMITTED
    made = {folder / f"{TEMPORARY}{uuid.uuid4().hex}": file for file in files}
    try:
        download_files(storage, made, {})
        for path, file in made.items():
            with disk_errors("rename", path):
                path.replace(place.root / file.name)  # does nothing where both are links to one copy in the cache
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _remove_unneeded(folder: Path, known: Sequence[str], log: SnapshotLog) -> None:
    needed = log.files()
    for name in known:
        with contextlib.suppress(OSError):
            if name.startswith(TEMPORARY):
                unneeded = (folder / name).stat().st_mtime < time.time() - ABANDONED
            else:
                unneeded = f"{EMITTED}/{name}" not in needed
            if unneeded:
                (folder / name).unlink()
