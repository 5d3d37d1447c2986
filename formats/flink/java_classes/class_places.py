"""Jars and folders in which the classes of a job lie, in any storage, and the class files that they have.

A jar is looked into when a class is asked for, and only the entries of classes that are asked for are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError
from statestore.formats.flink.java_classes.class_file import MOST_BYTES
from statestore.formats.flink.java_classes.zip_entries import (
    NotZip,
    ReadAt,
    ZipDirectory,
    read_directory,
    read_entry,
)
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.foreign_storages import STORAGE_ERRORS
from statestore.formats.places.listings import EntryKind, entry_at
from statestore.formats.places.locations import Location, no_access, parse_location, reach_location

_FOLDERS = ("", "BOOT-INF/classes/", "WEB-INF/classes/")
"""The folders of a jar in which classes lie. Those of ``META-INF/versions`` are other forms of classes in the first."""
_LONGEST_NAME = 4096


@dataclass(frozen=True)
class ClassPlace:
    """A jar of ``size`` bytes, or a folder of class files, whose size is -1.

    ``stamp`` is when it changed, in nanoseconds. That of a folder is when it was given, for its time does not say when
    a file in it changed.
    """

    location: Location
    size: int
    stamp: int

    def __str__(self) -> str:
        return str(self.location)


def places_of(text: str) -> tuple[ClassPlace, ...]:
    """The jars and folders that a user names, with a comma between two.

    Raises InvalidInputError INVALID_OPTION for one that is not there, and the errors of `reach_location`.
    """
    return tuple(_place(part.strip()) for part in text.split(",") if part.strip())


def _place(text: str) -> ClassPlace:
    location = parse_location(text)
    filesystem, path = reach_location(location)
    try:
        found = entry_at(filesystem, path)
    except STORAGE_ERRORS as error:
        raise no_access(str(location), error) from error
    if found.kind is EntryKind.FOLDER:
        return ClassPlace(location, -1, time.time_ns())
    if found.kind is not EntryKind.FILE:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option classes: {location} is no file and no folder; expected the job's jar, or a folder of class files",
        )
    return ClassPlace(location, found.size or 0, found.mtime_ns or 0)


def find_class_file(
    places: Sequence[ClassPlace], name: str, directories: dict[ClassPlace, ZipDirectory]
) -> tuple[bytes, str] | None:
    """The class file of the first place that has a class of this binary name, and how to call it in errors.

    ``directories`` are those of jars that were read before. Raises InvalidInputError INVALID_OPTION for a jar or an
    entry of one that is damaged or too large.
    """
    if not _may_be_a_class(name):
        return None
    wanted = f"{name.replace('.', '/')}.class"
    for place in places:
        found = _in_folder(place, wanted) if place.size < 0 else _in_jar(place, wanted, directories)
        if found is not None:
            return found
    return None


def _may_be_a_class(name: str) -> bool:
    """Whether a name, which is from the bytes of a state, leads into a folder and not out of it."""
    parts = name.split(".")
    return len(name) <= _LONGEST_NAME and all(parts) and not any(sign in name for sign in "/\\\0;[:")


def _in_folder(place: ClassPlace, wanted: str) -> tuple[bytes, str] | None:
    folder = folder_at(place.location)
    *parents, name = wanted.split("/")
    at = folder.at(*parents)
    path = f"{place}/{wanted}"
    try:
        with at.stream(name) as stream:
            data = stream.read(MOST_BYTES + 1)
    except NotFoundError:
        return None
    except CorruptError as error:  # something other than a file
        raise _refused(path, error.message, "a class file") from error
    if len(data) > MOST_BYTES:
        raise _refused(path, f"found more than {MOST_BYTES} bytes", "a class file")
    return data, path


def _in_jar(place: ClassPlace, wanted: str, directories: dict[ClassPlace, ZipDirectory]) -> tuple[bytes, str] | None:
    with opened_jar(place, directories) as (read_at, directory):
        entry = directory.find(wanted, _FOLDERS)
        if entry is None:
            return None
        path = f"{place}, entry {entry.name}"
        try:
            return read_entry(read_at, entry, MOST_BYTES), path
        except NotZip as error:
            raise _no_jar(path, error) from error


@contextmanager
def opened_jar(
    place: ClassPlace, directories: dict[ClassPlace, ZipDirectory], whole: int = 0
) -> Iterator[tuple[ReadAt, ZipDirectory]]:
    """A jar's function to read it, and its directory; a jar elsewhere of up to ``whole`` bytes is read at once.

    Raises InvalidInputError INVALID_OPTION for a jar that is damaged or not there any more.
    """
    path, holder = str(place), _holder(place)
    try:
        with holder.random_access(place.location.name, place.size) as file:
            read_at: ReadAt = file.read_at
            if not holder.is_local and place.size <= whole:
                data = file.read_at(0, place.size)
                read_at = partial(_part_of, data)
            if place not in directories:
                directories[place] = read_directory(read_at, place.size)
            yield read_at, directories[place]
    except NotZip as error:
        raise _no_jar(path, error) from error
    except (CorruptError, NotFoundError) as error:  # of another size, or removed since it was given
        raise _refused(path, error.message, "a jar that stays as it is while it is read") from error


def _part_of(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def _no_jar(path: str, error: NotZip) -> InvalidInputError:
    return _refused(path, f"found {error}", "a jar of the job, as it was built")


def _holder(place: ClassPlace) -> Folder:
    return folder_at(place.location.parent)


def _refused(path: str, found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.INVALID_OPTION, f"option classes: {path}: {found}; expected {expected}, build or copy it again"
    )
