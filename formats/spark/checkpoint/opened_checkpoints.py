"""Cache of the checkpoint at a location, which is opened repeatedly: for each question, its schema and its splits.

A checkpoint is kept open as long as what was read of it is the same: in an object store the files in ``commits``, so
that opening it again is one request; on a local disk each file and folder that was read, by their stamps. Files of a
checkpoint's metadata are never rewritten; one that is made anew has other times. Where the storage reports no times, or
parts of the checkpoint are missing and may be restored, nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

from statestore.formats.errors import NotFoundError
from statestore.formats.places.file_stamps import FileStamps, settled_stamps
from statestore.formats.places.folder import Folder, Seen, folder_at
from statestore.formats.places.locations import Location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_in
from statestore.formats.spark.checkpoint.checkpoint_files import SPARK_FILES
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.checkpoint.given_types import NOTHING_GIVEN, Given

KEPT = 16
_Commits = frozenset[tuple[str, int | None, int | None]]
_Key = tuple[Location, int | None, Given]


@dataclass(frozen=True)
class _Kept:
    """An open checkpoint with what must be the same for it to be used again. ``memory`` is what was read of it."""

    unchanged: _Commits | FileStamps
    checkpoint: Checkpoint
    memory: Seen | None = None


_opened: OrderedDict[_Key, _Kept] = OrderedDict()
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
    key = (location, batch_id, given)
    if root.is_local:
        return _open_local(root, key)
    commits = frozenset((info.base_name, info.size, info.mtime_ns) for info in root.at("commits").entries())
    found = _kept(key)
    if found is not None and found.unchanged == commits:
        return replace(found.checkpoint, root=root)
    checkpoint = _open_again(root, batch_id, given)
    if checkpoint.root is root and _is_whole(checkpoint) and all(changed is not None for _, _, changed in commits):
        _keep(key, _Kept(commits, _forgetting(checkpoint)))
    return checkpoint


def _open_local(root: Folder, key: _Key) -> Checkpoint:
    is_new = root.seen == Seen()
    found = _kept(key)
    if found is not None and isinstance(found.unchanged, FileStamps) and found.unchanged.still_hold():
        assert found.memory is not None
        return replace(found.checkpoint, root=replace(root, seen=_copied(found.memory)) if is_new else root)
    begun = time.time()
    checkpoint = _open_again(root, *key[1:])
    memory = checkpoint.root.seen
    # A root that had read something before may have read it before something changed.
    if memory is not None and is_new and _is_whole(checkpoint):
        stamps = settled_stamps(_paths_of(memory), begun)
        if stamps is not None:
            _keep(key, _Kept(stamps, _forgetting(checkpoint), _without_data(memory, root)))
    return checkpoint


def _paths_of(memory: Seen) -> Iterator[str]:
    """Yield the folders and files that were read, and the files of checksums beside the latter."""
    yield from memory.listings
    for path in memory.files:
        folder, name = posixpath.split(path)
        yield from (path, posixpath.join(folder, side_name(name)))


def _copied(memory: Seen) -> Seen:
    return Seen(dict(memory.listings), dict(memory.files), dict(memory.made))


def _without_data(memory: Seen, root: Folder) -> Seen:
    """The memory without the folders of partitions: the stamp of a folder says nothing of the sizes of its files."""
    data = re.compile(re.escape(root.path.rstrip("/")) + r"/state/\d+/\d+(/|$)")
    listings = {path: found for path, found in memory.listings.items() if not data.match(path)}
    made = {key: found for key, found in memory.made.items() if not data.match(key[0])}
    return Seen(listings, dict(memory.files), made)


def _kept(key: _Key) -> _Kept | None:
    with _lock:
        found = _opened.get(key)
        if found is not None:
            _opened.move_to_end(key)
        return found


def _keep(key: _Key, kept: _Kept) -> None:
    location, _, given = key
    with _lock:
        _opened[key] = _opened[location, kept.checkpoint.batch.batch_id, given] = kept
        while len(_opened) > KEPT:
            _opened.popitem(last=False)


def _open_again(root: Folder, batch_id: int | None, given: Given) -> Checkpoint:
    """Open a checkpoint, and once more if a file is missing: a running query may have removed what was listed."""
    with contextlib.suppress(NotFoundError):
        return open_in(root, batch_id, given)
    return open_in(root.fresh().remembering(), batch_id, given)


def _is_whole(checkpoint: Checkpoint) -> bool:
    absent = any(store.absent for operator in checkpoint.operators for store in operator.stores)
    recorded = all(store.families[0].recorded for operator in checkpoint.operators for store in operator.stores)
    return checkpoint.batch.logged and not absent and recorded


def _new_lock() -> None:
    """Replace the lock in a fork: a thread that the child lacks may have held it."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_new_lock)


def _forgetting(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, root=checkpoint.root.fresh())
