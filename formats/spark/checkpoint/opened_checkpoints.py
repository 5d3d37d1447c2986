"""Cache of the checkpoint at a location, which is opened repeatedly: for its schema, its splits and each of them.

A checkpoint that is not local is kept open as long as the files in ``commits`` are the same, so that opening it again
is one request. Files of a checkpoint's metadata are never rewritten; one that is made anew has other times. Where the
storage reports no times, or parts of the checkpoint are missing and may be restored, nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from statestore.formats.errors import NotFoundError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import Location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_in
from statestore.formats.spark.checkpoint.checkpoint_files import SPARK_FILES
from statestore.formats.spark.checkpoint.given_types import NOTHING_GIVEN, Given

KEPT = 16
_Commits = frozenset[tuple[str, int | None, int | None]]
_opened: OrderedDict[tuple[Location, int | None, Given], tuple[_Commits, Checkpoint]] = OrderedDict()
_lock = Lock()


def open_located(location: Location, batch_id: int | None = None, given: Given = NOTHING_GIVEN) -> Checkpoint:
    """Open as `open_checkpoint`; also raises the errors of `open_location`."""
    return _forgetting(_open(location, batch_id, folder_at(location, SPARK_FILES).remembering(), given))


def open_now(
    location: Location,
    batch_id: int | None = None,
    seen: Checkpoint | None = None,
    given: Given = NOTHING_GIVEN,
) -> Checkpoint:
    """Open as `open_located`, for one question: the root keeps what was listed and read for it, and is listed once.

    ``seen`` is the checkpoint as it was opened for the same question as of another batch; what was ``given`` for that
    goes on.
    """
    root = seen.root.remembering() if seen is not None else folder_at(location, SPARK_FILES).remembering()
    return _open(location, batch_id, root, given if seen is None else seen.given)


def _open(location: Location, batch_id: int | None, root: Folder, given: Given) -> Checkpoint:
    """The checkpoint with the memory of the root, or of a newer look where a query removed what the root had listed."""
    if root.is_local:
        return _open_again(root, batch_id, given)
    commits = frozenset((info.base_name, info.size, info.mtime_ns) for info in root.at("commits").entries())
    key = (location, batch_id, given)
    with _lock:
        found = _opened.get(key)
        if found is not None and found[0] == commits:
            _opened.move_to_end(key)
            return replace(found[1], root=root)
    checkpoint = _open_again(root, batch_id, given)
    if checkpoint.root is not root or not _is_whole(checkpoint) or any(changed is None for _, _, changed in commits):
        return checkpoint
    with _lock:
        _opened[key] = _opened[location, checkpoint.batch.batch_id, given] = commits, _forgetting(checkpoint)
        while len(_opened) > KEPT:
            _opened.popitem(last=False)
    return checkpoint


def _open_again(root: Folder, batch_id: int | None, given: Given) -> Checkpoint:
    """Open a checkpoint, and once more if a file is missing: a running query may have removed what was listed."""
    with contextlib.suppress(NotFoundError):
        return open_in(root, batch_id, given)
    return open_in(root.fresh().remembering(), batch_id, given)


def _is_whole(checkpoint: Checkpoint) -> bool:
    absent = any(store.absent for operator in checkpoint.operators for store in operator.stores)
    return checkpoint.batch.logged and not absent


def _new_lock() -> None:
    """Replace the lock in a fork: a thread that the child lacks may have held it."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_new_lock)


def _forgetting(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, root=checkpoint.root.fresh())
