"""Backends that a worker process keeps open from one micro-batch to the next, so that nothing has to be restored.

A backend is taken out while it is used, and put back with the identity of the part that it has just written. It is used
again only if that very part is in the version that the next batch builds on. What failed, was repeated elsewhere or was
overtaken by another commit has another part there, so the backend is disposed of and a new one restored.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.connector.keyed.keyed_job import KeyedBatch, open_keyed, part_id

KEPT = 8
_REUSED_WORKER = "SPARK_REUSE_WORKER"
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"  # Spark tells its workers where they may write


class _Kept(NamedTuple):
    """``part`` is what it wrote last, in a batch that built on version ``base``."""

    backend: KeyedBackend
    part: str
    base: int


_Name = tuple[Path, str, range]
"""Folder and identity of a store, and key groups: copies of a store have one identity."""
_kept: OrderedDict[_Name, _Kept] = OrderedDict()


def take_backend(batch: KeyedBatch, task: int) -> KeyedBackend:
    """The backend of a task, as the batch's base has it. It belongs to the caller."""
    _dispose_stale(batch)
    groups = batch.groups[task]
    found = _kept.pop(_name(batch, groups), None)
    if found is not None and found.part == batch.parts[task]:
        return _confirmed(found.backend, batch.base)
    if found is not None:
        found.backend.dispose()
    with open_keyed(batch.job.folder) as store:
        return store.backend(groups, version=batch.base, directory=_directory())


def keep_backend(batch: KeyedBatch, backend: KeyedBackend, part: SnapshotPart) -> None:
    """Give back a backend whose snapshot is done, to be kept if that may be of use."""
    if not batch.keeps or os.environ.get(_REUSED_WORKER) != "1":
        backend.dispose()
        return
    _kept[_name(batch, backend.key_groups)] = _Kept(backend, part_id(part), batch.base)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)[1].backend.dispose()


def _dispose_stale(batch: KeyedBatch) -> None:
    """Also those of other tasks, which would hold their files for nothing; but not those of this very batch."""
    current = dict(zip(batch.groups, batch.parts, strict=True))
    for name, kept in list(_kept.items()):
        groups = name[2]
        if name == _name(batch, groups) and kept.base != batch.base and kept.part != current.get(groups):
            del _kept[name]
            kept.backend.dispose()


def _name(batch: KeyedBatch, groups: range) -> _Name:
    return batch.job.folder, batch.job.store_id, groups


def _confirmed(backend: KeyedBackend, version: int) -> KeyedBackend:
    try:
        backend.notify_complete(version)
    except BaseException:
        backend.dispose()
        raise
    return backend


def _directory() -> Path | None:
    """In Spark's own scratch space, which it removes in the end."""
    given = os.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
    return Path(given, "statestore-keyed") if given else None
