"""Backends that a worker process keeps open from one micro-batch to the next, so that nothing has to be restored.

A backend is taken out while it is used, and put back with the identity of the part that it has just written. It is used
again only if that very part is in the version that the next batch builds on. What failed, was repeated elsewhere or was
overtaken by another commit has another part there, so the backend is disposed of and a new one restored.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from statestore.catalog.stores.keyed.backend import KeyedBackend
from statestore.catalog.stores.keyed.snapshot_handle import Handle
from statestore.connector.keyed.request import KeyedBatch, open_keyed, part_id

KEPT = 8
_REUSED_WORKER = "SPARK_REUSE_WORKER"
_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"  # Spark tells its workers where they may write

_kept: OrderedDict[tuple[str, range], tuple[KeyedBackend, str]] = OrderedDict()


def take_backend(batch: KeyedBatch, task: int) -> KeyedBackend:
    """The backend of a task, as the batch's base has it. It belongs to the caller."""
    groups, part = batch.groups[task], batch.parts[task]
    found = _kept.pop((batch.job.store_id, groups), None)
    if found is not None:
        backend, stands_at = found
        if part == stands_at:
            backend.notify_complete(batch.base)
            return backend
        backend.dispose()
    with open_keyed(batch.job.folder) as store:
        return store.backend(groups, version=batch.base, directory=_directory())


def keep_backend(batch: KeyedBatch, backend: KeyedBackend, part: Handle) -> None:
    """Give back a backend whose snapshot is done, to be kept if that may be of use."""
    if not batch.keeps or os.environ.get(_REUSED_WORKER) != "1":
        backend.dispose()
        return
    _kept[batch.job.store_id, backend.key_groups] = backend, part_id(part)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)[1][0].dispose()


def _directory() -> Path | None:
    """In Spark's own scratch space, which it removes in the end."""
    given = os.environ.get(_LOCAL_FOLDERS, "").split(",")[0]
    return Path(given, "statestore-keyed") if given else None
