"""The log of a keyed store in the memory of this process; each read adds only the entries that were committed since."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from statestore.catalog.keyed.snapshots.snapshot_log import LOG_CHECKPOINT_INTERVAL, SnapshotLog, folded, read_log
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
    log = newer_log(LocalStorage(root), store_id, _known.get(name, SnapshotLog(())))
    _known.pop(name, None)
    _known[name] = log
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return log


def newer_log(storage: LocalStorage, store_id: str, base: SnapshotLog) -> SnapshotLog:
    """Return the current log, read from the end of ``base`` on; errors are those of `shared_log`."""
    _check_identity(storage, store_id)
    if base.entries and not storage.exists(entry_name(base.newest)):
        base = SnapshotLog(())  # an older copy of the store has taken its place
    newest = read_log(storage, base)
    if newest.newest > base.newest:
        _check_identity(storage, store_id)  # the entries belong to this store, not to one that replaced it meanwhile
    # Without folding, a long-running process would keep the parts of all snapshots that ever existed.
    crossed = newest.newest // LOG_CHECKPOINT_INTERVAL > base.newest // LOG_CHECKPOINT_INTERVAL
    return folded(newest) if crossed else newest


def _check_identity(storage: LocalStorage, store_id: str) -> None:
    try:
        identity = stored_identity(storage.read(STORE_FILE))
    except NotFoundError:
        identity = None
    if identity != store_id:
        raise NotFoundError(
            ErrorCode.STORE_NOT_FOUND,
            f"the keyed store that was opened in {storage.root} no longer exists: it was dropped, or "
            "another store has taken its place; open it again",
        )
