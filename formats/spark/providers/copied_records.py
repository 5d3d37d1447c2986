"""Records of whole keys in a large local file, found once for the file and its copies.

An edit looks for its rows in its source, and then in its target, most of whose files are copies. A copy is read again,
too, from the disk, but only to be compared byte by byte with the file in which the records were found. That takes a
small part of the time in which it is unpacked and searched, and says as much: equal bytes have equal records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from statestore.formats.notices import is_verification
from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import MOST_OF_A_RESULT, kept_result
from statestore.formats.places.regular_files import same_content
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.providers.change_runs import SMALL_BYTES
from statestore.formats.spark.providers.stored_rows import KeyBounds, whole_keys

_MOST_KEYS = 2000
T = TypeVar("T")


@dataclass(frozen=True)
class _Found:
    """The records that were found in a file, by the paths of it and of its checksums."""

    paths: tuple[str, str]
    records: Sequence[Any]


def is_searched_alone(folder: Folder, file: DataFile, ranges: Sequence[KeyBounds]) -> bool:
    """Return whether what is found in a file may be kept for its copies."""
    fits = folder.is_local and file.size > SMALL_BYTES and not is_verification()
    return fits and len(ranges) <= _MOST_KEYS and whole_keys(ranges) is not None


def found_in_copies(
    folder: Folder,
    file: DataFile,
    form: tuple[object, ...],
    ranges: Sequence[KeyBounds],
    search: Callable[[], Iterable[T]],
    size_of: Callable[[T], int],
) -> Sequence[T] | None:
    """Return what ``search`` finds in a file, or has found in one with the same bytes.

    ``form`` is all else on which its result depends. None: it has to be searched, because too much would be kept, or
    the file is not that of its name and size which was searched before. Raises the errors of ``search``.
    """
    keys = whole_keys(ranges) or ()
    paths = (folder.at(file.name).path, folder.at(side_name(file.name)).path)

    def searched() -> tuple[_Found | None, int]:
        found: list[T] = []
        size = sum(map(len, keys))
        for each in search():
            found.append(each)
            size += size_of(each)
            if size > MOST_OF_A_RESULT:
                return None, 0
        return _Found(paths, found), size

    kept = kept_result(("copies", form, file.name, file.size, keys), paths, searched)
    if kept is None or not (kept.paths == paths or all(map(same_content, kept.paths, paths))):
        return None
    return kept.records
