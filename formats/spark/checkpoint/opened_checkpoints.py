"""Cache of the checkpoint at a location, which is opened repeatedly: for its schema, its splits and each of them.

A checkpoint that is not local is kept open as long as the files in ``commits`` are the same, so that opening it again
is one request. Files of a checkpoint's metadata are never rewritten; one that is made anew has other times.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from statestore.formats.places.locations import Location, open_location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import Folder

KEPT = 16
_Commits = frozenset[tuple[str, int | None, int | None]]
_opened: OrderedDict[tuple[Location, int | None], tuple[_Commits, Checkpoint]] = OrderedDict()
_lock = Lock()


def open_located(location: Location, batch_id: int | None = None) -> Checkpoint:
    """Open as `open_checkpoint`; also raises the errors of `open_location`."""
    filesystem, path = open_location(location)
    root = Folder(filesystem, path)
    if root.is_local:
        return open_checkpoint(filesystem, path, batch_id)
    commits = frozenset((info.base_name, info.size, info.mtime_ns) for info in root.at("commits").entries())
    key = (location, batch_id)
    with _lock:
        found = _opened.get(key)
        if found is not None and found[0] == commits:
            _opened.move_to_end(key)
            return found[1]
    checkpoint = open_checkpoint(filesystem, path, batch_id)
    with _lock:
        _opened[key] = _opened[location, checkpoint.batch.batch_id] = commits, checkpoint
        while len(_opened) > KEPT:
            _opened.popitem(last=False)
    return checkpoint
