"""The table files of a column family that hold all that was written since an earlier checkpoint of a database.

These are the files that its memory was flushed to. A compaction writes what other files hold into new ones and adds
nothing, so its files need not be read. A MANIFEST tells the two apart: it is a log, which begins with what it was at an
earlier checkpoint, and an edit of a compaction also removes files.
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry, changes_after


def flushed_since(
    earlier: Mapping[str, bytes], later: Mapping[str, bytes], family: FamilyFiles, where: str, *, filtered: bool
) -> tuple[TableEntry, ...] | None:
    """Return the files of a column family that hold all rows which were written between two checkpoints.

    ``earlier`` and ``later`` are files of each by name, with its MANIFEST; ``family`` is as of the later one.
    ``filtered``: compactions may remove rows by themselves, such as those that have expired.

    None where files alone do not tell: the database was opened anew or a compaction has taken in files of the time
    between, or dropped some. Raises CorruptError ROCKSDB_FILE, and `Unreadable` for an edit that is not known.
    """
    (before,), (after,) = ([name for name in each if name.startswith("MANIFEST-")] for each in (earlier, later))
    if before != after or not later[after].startswith(earlier[before]):
        return None
    flushed: set[int] = set()
    for change in changes_after(earlier[before], later[after], where):
        if change.family != family.number:
            continue
        added, removed = {each.number for each in change.added}, set(change.removed)
        if change.other or not flushed.isdisjoint(removed - added):
            return None
        if not removed:
            if any(each.level for each in change.added):  # rows that were not written here
                return None
            flushed |= added
        elif added != removed and (filtered or not added):
            return None
    found = tuple(file for file in family.files if file.number in flushed)
    return found if len(found) == len(flushed) else None
