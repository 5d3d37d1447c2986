"""The log of a keyed store in the memory of this process; each read adds only the entries that were committed since."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from statestore.catalog.keyed.snapshots.snapshot_log import CHECKPOINT_INTERVAL, SnapshotLog, folded, read_log
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.store_identity import stored_identity
from statestore.catalog.log.store_spec import STORE_FILE
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError

KEPT = 64
_known: OrderedDict[tuple[str, str], SnapshotLog] = OrderedDict()


def shared_log(root: Path, store_id: str) -> SnapshotLog:
    """Return the log of the store with this identity in the folder ``root``.

    Raises CorruptError LOG_CORRUPT, and NotFoundError STORE_NOT_FOUND if the folder no longer has that store: what was
    opened on it must not continue with another store.
    """
    name = str(root), store_id
    found = newer_log(LocalStorage(root), store_id, _known.get(name, SnapshotLog(())))
    _known.pop(name, None)
    _known[name] = found
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return found


def newer_log(storage: LocalStorage, store_id: str, known: SnapshotLog) -> SnapshotLog:
    """Return the current log, read from the end of ``known`` on; errors are those of `shared_log`."""
    _check_identity(storage, store_id)
    if known.entries and not storage.exists(entry_name(known.newest)):
        known = SnapshotLog(())  # an older copy of the store has taken its place
    found = read_log(storage, known)
    if found.newest > known.newest:
        _check_identity(storage, store_id)  # the entries belong to this store, not to one that replaced it meanwhile
    # Without folding, a long-running process would keep the parts of all snapshots that ever existed.
    crossed = found.newest // CHECKPOINT_INTERVAL > known.newest // CHECKPOINT_INTERVAL
    return folded(found) if crossed else found


def _check_identity(storage: LocalStorage, store_id: str) -> None:
    try:
        found = stored_identity(storage.read(STORE_FILE))
    except NotFoundError:
        found = None
    if found != store_id:
        raise NotFoundError(
            ErrorCode.STORE_NOT_FOUND,
            f"the keyed store that was opened in {storage.root} no longer exists: it was dropped, or "
            "another store has taken its place; open it again",
        )
