"""The zip of a version of RocksDBStateStoreProvider: the files of a RocksDB checkpoint but for its table files.

``<version>.zip`` holds MANIFEST, CURRENT, OPTIONS and ``metadata``: a line "v1", then JSON that maps each local file
name to one in ``SSTs/``, and names of column families to their ids. No name, size or path in it is trusted.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

from statestore.formats.places.folder import MAX_SMALL_BYTES, Folder
from statestore.formats.spark.checkpoint.checkpoint_files import PURGED, DataFile, parse_json
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, unsupported

_MEMBER = re.compile(r"MANIFEST-\d{1,20}|CURRENT|OPTIONS-\d{1,20}|\d{1,20}\.log|metadata")
_LOCAL_TABLE = re.compile(r"\d{1,20}\.sst")
_SHARED_TABLE = re.compile(r"[0-9A-Za-z-]{1,200}\.sst")
_MAX_MEMBERS = 1000
_FAMILY_IDS = 1 << 15


@dataclass(frozen=True)
class Zip:
    """Contents of a zip's metadata; ``tables`` maps local names of table files to names in ``SSTs/`` and sizes.

    ``keys`` is the number of keys of all families that are not Spark's own; None if Spark did not count them.
    """

    tables: Mapping[str, tuple[str, int]]
    families: Mapping[str, int]
    keys: int | None = None


def read_zip(folder: Folder, file: DataFile) -> Zip:
    """Read the metadata of a zip, and no rows."""
    path = folder.at(file.name).path
    with _opened(folder, file.name, path) as members:
        return _zip_metadata(members, path)


def unzipped(folder: Folder, file: DataFile) -> tuple[Zip, dict[str, bytes]]:
    """Read a zip: its metadata, and its members by name.

    Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE, UnsupportedError SPARK_STATE_UNSUPPORTED.
    """
    path = folder.at(file.name).path
    with _opened(folder, file.name, path) as members:
        return _zip_metadata(members, path), _members(members, path)


@contextmanager
def _opened(folder: Folder, name: str, path: str) -> Iterator[zipfile.ZipFile]:
    data = BytesIO(folder.read_small(name, gone=PURGED))
    try:
        members = zipfile.ZipFile(data)
    except Exception as error:  # BadZipFile, and errors of struct and of UTF-8 for what it does not check
        raise corrupt_file(path, f"not a readable zip ({error})") from error
    with members:
        yield members


def _member(members: zipfile.ZipFile, name: str, path: str, most: int = MAX_SMALL_BYTES) -> bytes:
    """Read a member of at most ``most`` bytes."""
    try:
        with members.open(name) as stream:
            found = stream.read(most + 1)
    except KeyError as error:
        raise corrupt_file(path, f"found no member {name}") from error
    except Exception as error:  # zlib.error, BadZipFile and other errors of a damaged stream
        raise corrupt_file(path, f"member {name} cannot be read ({error})") from error
    if len(found) > most:
        raise corrupt_file(path, f"found members of more than {MAX_SMALL_BYTES} bytes, up to {name}")
    return found


def _zip_metadata(members: zipfile.ZipFile, path: str) -> Zip:
    lines = _member(members, "metadata", path).decode("utf-8", "replace").split("\n", 1)
    if lines[0].strip() != "v1" or len(lines) < 2:
        raise corrupt_file(path, f"found metadata of version {lines[0][:20]!r}, expected v1 and a line of JSON")
    document = parse_json(lines[1], path)
    try:
        if document.get("logFiles"):
            raise unsupported(
                f"{path}: state in write-ahead log files; expected table files only, as Spark writes by default"
            )
        tables = {
            str(f["localFileName"]): (str(f["dfsSstFileName"]), int(f["sizeBytes"])) for f in document["sstFiles"]
        }
        families = {str(name): int(number) for name, number in (document.get("columnFamilyMapping") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise corrupt_file(path, "expected sstFiles and columnFamilyMapping in its metadata") from error
    strange = [number for number in families.values() if not 0 <= number < _FAMILY_IDS]
    if strange:
        raise corrupt_file(path, f"found column family id {strange[0]}, expected one of 16 bits")
    for local, (shared, _) in tables.items():
        if not _LOCAL_TABLE.fullmatch(local) or not _SHARED_TABLE.fullmatch(shared):
            raise corrupt_file(
                path, f"found table file {local[:80]!r} as {shared[:80]!r}, expected plain names of .sst files"
            )
    keys = document.get("numKeys")
    return Zip(tables, families, keys if type(keys) is int and keys >= 0 else None)


def _members(members: zipfile.ZipFile, path: str) -> dict[str, bytes]:
    names = members.namelist()
    strange = [name for name in names if not _MEMBER.fullmatch(name)]
    if strange or len(names) > _MAX_MEMBERS or len(set(names)) < len(names):
        raise corrupt_file(
            path, f"found {len(names)} members, {strange[:3]} among them; expected those of a RocksDB checkpoint"
        )
    left = MAX_SMALL_BYTES  # limit for all members together: a small zip may claim to hold terabytes
    found = {}
    for name in names:
        found[name] = _member(members, name, path, left)
        left -= len(found[name])
    return found
