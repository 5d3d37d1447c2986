"""The log of a keyed store as this process knows it: each read takes in only what was committed since the last."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from statestore.catalog.log import entry_name
from statestore.catalog.storage import LocalStorage
from statestore.catalog.stores.keyed.snapshot_log import SnapshotLog, read_log

KEPT = 64
_known: OrderedDict[tuple[str, str], SnapshotLog] = OrderedDict()


def shared_log(root: Path, store_id: str) -> SnapshotLog:
    """The log of the store with this identity in the folder ``root``. Raises CorruptError LOG_CORRUPT."""
    storage, name = LocalStorage(root), (str(root), store_id)
    known = _known.pop(name, SnapshotLog(()))
    if known.entries and not storage.exists(entry_name(known.newest)):
        known = SnapshotLog(())  # an older copy of the store was put in its place
    _known[name] = found = read_log(storage, known)
    while len(_known) > KEPT:
        _known.popitem(last=False)
    return found
