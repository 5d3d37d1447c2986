"""Whether the code of a job says that the job has Flink's Scala API, whose Kryo writes other bytes.

Its own class in a jar says so, as that of Flink's ``flink-scala``, and each class that refers to it: it could not run
elsewhere. A job in Java may have it, too, where it is in the ``lib`` of its Flink. Then nothing in its own jar says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.java_classes.class_file import MOST_BYTES
from statestore.formats.flink.java_classes.class_places import ClassPlace, find_class_file, opened_jar
from statestore.formats.flink.java_classes.zip_entries import NotZip, ZipDirectory, read_entry
from statestore.formats.places.folder import Folder, folder_at

_OWN = "org.apache.flink.runtime.types.FlinkScalaKryoInstantiator"
_NAMED = b"org/apache/flink/api/scala/"
_SUFFIX = ".class"
_MOST_CLASSES = 1 << 14
_MOST_TOTAL = 128 << 20
"""Upper bounds of the classes of a place that are looked at, and of their bytes."""
_MOST_REMOTE = 64 << 20
"""Bytes of a jar in an object store that are read at once; larger ones are not looked through."""
_MOST_DEEP = 32


def has_scala_api(places: Sequence[ClassPlace], directories: dict[ClassPlace, ZipDirectory]) -> bool:
    """Return whether the classes in some places say so. Raises InvalidInputError INVALID_OPTION for a damaged jar."""
    if find_class_file(places, _OWN, directories) is not None:
        return True
    return any(_refers(place, directories) for place in places)


def _refers(place: ClassPlace, directories: dict[ClassPlace, ZipDirectory]) -> bool:
    total = 0
    found = _files(folder_at(place.location), 0) if place.size < 0 else _entries(place, directories)
    for number, data in enumerate(found):
        total += len(data)
        if _NAMED in data:
            return True
        if number >= _MOST_CLASSES or total > _MOST_TOTAL:
            return False
    return False


def _files(folder: Folder, depth: int) -> Iterator[bytes]:
    """The class files in a folder and those in it."""
    for name, size in folder.files().items():
        if name.endswith(_SUFFIX) and size <= MOST_BYTES:
            try:
                with folder.stream(name) as stream:
                    yield stream.read(MOST_BYTES)
            except (NotFoundError, CorruptError):
                continue
    if depth < _MOST_DEEP:
        for name in folder.folders():
            yield from _files(folder.at(name), depth + 1)


def _entries(place: ClassPlace, directories: dict[ClassPlace, ZipDirectory]) -> Iterator[bytes]:
    """The class files of a jar; those that are damaged are left out, as nobody has asked for them."""
    if not folder_at(place.location.parent).is_local and place.size > _MOST_REMOTE:
        return
    with opened_jar(place, directories, _MOST_REMOTE) as (read_at, directory):
        for entry in directory.entries(_SUFFIX):
            try:
                yield read_entry(read_at, entry, MOST_BYTES)
            except NotZip:
                continue
