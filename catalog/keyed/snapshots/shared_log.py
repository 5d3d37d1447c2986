"""The log of a keyed store in the memory of this process; each read adds only the entries that were committed since."""

from __future__ import annotations

from collections import OrderedDict

from statestore.catalog.keyed.snapshots.snapshot_log import LOG_CHECKPOINT_INTERVAL, SnapshotLog, folded, read_log
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import LocalStorage, Storage
from statestore.catalog.log.store_spec import STORE_FILE, replaced, stored_identity
from statestore.formats.errors import NotFoundError
from statestore.formats.places.object_cache import in_parallel

KEPT = 64
_known: OrderedDict[tuple[Storage, str], SnapshotLog] = OrderedDict()


def shared_log(storage: Storage, store_id: str) -> SnapshotLog:
    """Return the log of the store with this identity in ``storage``.

    Raises CorruptError LOG_CORRUPT, and NotFoundError STORE_REPLACED if that store is no longer there: what was opened
    on it must not continue with another store.
    """
    name = storage, store_id
    log = newer_log(storage, store_id, _known.get(name, SnapshotLog(())))
    _known.pop(name, None)
    _known[name] = log
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return log


def newer_log(storage: Storage, store_id: str, base: SnapshotLog) -> SnapshotLog:
    """Return the current log, read from the end of ``base`` on; errors are those of `shared_log`."""
    if not _stays(storage, store_id, base):
        base = SnapshotLog(())  # an older copy of the store has taken its place
    newest = read_log(storage, base)
    if newest.newest > base.newest:
        _check_identity(storage, store_id)  # the entries belong to this store, not to one that replaced it meanwhile
    # Without folding, a long-running process would keep the parts of all snapshots that ever existed.
    crossed = newest.newest // LOG_CHECKPOINT_INTERVAL > base.newest // LOG_CHECKPOINT_INTERVAL
    return folded(newest) if crossed else newest


def _stays(storage: Storage, store_id: str, base: SnapshotLog) -> bool:
    """Return whether the log goes on where ``base`` ends, after a check of the store's identity."""

    def look(number: int) -> bool:
        if number:
            return storage.exists(entry_name(base.newest))
        _check_identity(storage, store_id)
        return True

    asked = range(2 if base.entries else 1)
    if isinstance(storage, LocalStorage):
        return all(look(number) for number in asked)
    return all(in_parallel(look, asked))


def _check_identity(storage: Storage, store_id: str) -> None:
    try:
        identity = stored_identity(storage.read(STORE_FILE))
    except NotFoundError:
        identity = None
    if identity != store_id:
        raise replaced(f"keyed store in {storage}", store_id)
