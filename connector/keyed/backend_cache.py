"""Backends that a worker process keeps open between micro-batches, so that they need not be restored.

A backend is taken out while it is used, and put back with the identity of the part that it has just written. It is used
again only if the version that the next batch builds on contains exactly this part. After a failure, a repetition
elsewhere or a commit by another writer, that version contains another part; the backend is then disposed of and a new
one is restored.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.log.storage import Storage
from statestore.connector.keyed.keyed_job import KeyedBatch, open_keyed, part_id

KEPT = 8
_REUSED_WORKER = "SPARK_REUSE_WORKER"
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"  # set by Spark to the folders in which its workers may write


class _Kept(NamedTuple):
    """A kept backend. ``part`` is the part it wrote last, in a batch that built on version ``base``."""

    backend: KeyedBackend
    part: str
    base: int


_Name = tuple[Storage, str, range]
"""Storage and identity of a store, and key groups. The storage is needed because copies share an identity."""
_kept: OrderedDict[_Name, _Kept] = OrderedDict()


def take_backend(batch: KeyedBatch, task: int) -> KeyedBackend:
    """Return the backend of a task with the state of the batch's base. The caller owns it."""
    _dispose_stale(batch)
    groups = batch.groups[task]
    found = _kept.pop(_name(batch, groups), None)
    if found is not None and found.part == batch.parts[task]:
        return _confirmed(found.backend, batch.base)
    if found is not None:
        found.backend.dispose()
    with open_keyed(batch.job.place) as store:
        return store.backend(groups, version=batch.base, directory=_directory())


def keep_backend(batch: KeyedBatch, backend: KeyedBackend, part: SnapshotPart) -> None:
    """Give back a backend whose snapshot is done; it is kept if a later batch may use it."""
    if not batch.keeps or os.environ.get(_REUSED_WORKER) != "1":
        backend.dispose()
        return
    _kept[_name(batch, backend.key_groups)] = _Kept(backend, part_id(part), batch.base)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)[1].backend.dispose()


def _dispose_stale(batch: KeyedBatch) -> None:
    """Dispose of backends that no task can use again, also of other tasks, because they hold files open. Backends of
    this batch are kept."""
    current = dict(zip(batch.groups, batch.parts, strict=True))
    for name, kept in list(_kept.items()):
        groups = name[2]
        if name == _name(batch, groups) and kept.base != batch.base and kept.part != current.get(groups):
            del _kept[name]
            kept.backend.dispose()


def _name(batch: KeyedBatch, groups: range) -> _Name:
    return batch.job.storage, batch.job.store_id, groups


def _confirmed(backend: KeyedBackend, version: int) -> KeyedBackend:
    try:
        backend.notify_complete(version)
    except BaseException:
        backend.dispose()
        raise
    return backend


def _directory() -> Path | None:
    """A folder in Spark's own scratch space, which Spark removes at the end."""
    given = os.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
    return Path(given, "statestore-keyed") if given else None
