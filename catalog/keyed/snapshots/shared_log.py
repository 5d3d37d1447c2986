"""The log of a keyed store as this process knows it: each read takes in only what was committed since the last."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from statestore.catalog.keyed.snapshots.snapshot_log import CHECKPOINT_INTERVAL, SnapshotLog, folded, read_log
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.store_identity import stored_identity
from statestore.catalog.log.store_spec import STORE_FILE
from statestore.formats.errors import NotFoundError

KEPT = 64
_known: OrderedDict[tuple[str, str], SnapshotLog] = OrderedDict()


def shared_log(root: Path, store_id: str) -> SnapshotLog:
    """The log of the store with this identity in the folder ``root``.

    Raises CorruptError LOG_CORRUPT, NotFoundError STORE_NOT_FOUND if the folder has that store no more: what was opened
    on it must not go on with another.
    """
    name = str(root), store_id
    found = newer_log(LocalStorage(root), store_id, _known.get(name, SnapshotLog(())))
    _known.pop(name, None)
    _known[name] = found
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return found


def newer_log(storage: LocalStorage, store_id: str, known: SnapshotLog) -> SnapshotLog:
    """The log as it is now, from what was ``known``; as `shared_log`."""
    _check_identity(storage, store_id)
    if known.entries and not storage.exists(entry_name(known.newest)):
        known = SnapshotLog(())  # an older copy of the store was put in its place
    found = read_log(storage, known)
    if found.newest > known.newest:
        _check_identity(storage, store_id)  # the entries are this store's, and not of one that came meanwhile
    # Else a process that goes on for ever would remember the parts of all snapshots that there ever were.
    crossed = found.newest // CHECKPOINT_INTERVAL > known.newest // CHECKPOINT_INTERVAL
    return folded(found) if crossed else found


def _check_identity(storage: LocalStorage, store_id: str) -> None:
    try:
        found = stored_identity(storage.read(STORE_FILE))
    except NotFoundError:
        found = None
    if found != store_id:
        raise NotFoundError(
            "STORE_NOT_FOUND",
            f"the keyed store that was opened in {storage.root} is not there any more: it was dropped, or another was "
            "put in its place; open it again",
        )
