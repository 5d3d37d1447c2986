"""Several schemas of one serde, as users give them: files by id, a folder of such files, or a registry's URL.

    5=a.avsc,6=b.avsc             a file for each id
    FOLDER                        files named ID.avsc or SUBJECT-ID.avsc
    http://HOST:PORT              a registry, asked for each id that occurs
    reader=6,FOLDER               the same, read by the schema of id 6; or by a file: reader=b.avsc,...

Without ``reader`` the schema of the highest id is the reader's, because a registry counts its ids up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.schemas.schema_registry import fetch_schema, is_registry
from statestore.formats.kafka.schemas.schema_sets import SchemaSet

MOST_FILES = 1000
_MOST_TEXT = 16 << 20
_MOST_ID = (1 << 31) - 1
_PART = re.compile(r"\s*(reader|\d{1,10})=(.*)", re.DOTALL)
_FILE = re.compile(r"(?:(?P<subject>.+)-)?(?P<id>\d{1,10})\.(?:avsc|json)")
Read = Callable[[str], str]
Names = Callable[[str], Sequence[str] | None]


@dataclass(frozen=True)
class _Given:
    """The schemas that a user names after "avro:": files by id, a reader, and a folder or a registry."""

    files: Mapping[int, str]
    reader: str | None
    place: str | None


def given_schemas(text: str, read: Read, names: Names) -> SchemaSet | None:
    """Return the schemas that a text gives; None where it is the path of one file.

    ``read`` returns the text of a file, ``names`` the names in a folder, None for what is no folder. Raises
    InvalidInputError WRONG_SCHEMA, StorageError REGISTRY_FAILED.
    """
    given = _parsed(text)
    listed = None if given.place is None or is_registry(given.place) else names(given.place)
    if given.place is not None and not is_registry(given.place) and listed is None:
        if given.reader is None and not given.files:
            return None
        raise _wrong(text, f"{given.place!r}, which is no folder and no URL")
    files = dict(given.files)
    if listed is not None and given.place is not None:
        files.update(_files_of(given.place, listed, given.reader is not None))
    found = SchemaSet(_read_all(files, read), registry=given.place if listed is None else None)
    if given.reader is not None:
        return _with_reader(text, found, given.reader, read)
    if found.registry is not None or not found.schemas:
        return found
    number = max(found.schemas)
    return replace(found, reader=found.schemas[number], reader_id=number)


def with_sampled_reader(found: SchemaSet, sample: Iterable[bytes]) -> SchemaSet:
    """The set with the schema of the highest id in sampled values as its reader; unchanged where there is none.

    Raises as `fetch_schema`.
    """
    ids = {int.from_bytes(value[1:5], "big") for value in sample if len(value) >= 5 and value[0] == 0}
    ids = {number for number in ids if number <= _MOST_ID} | set(found.schemas)
    if found.reader is not None or found.registry is None or not ids:
        return found
    number = max(ids)
    texts = found.schemas.get(number) or fetch_schema(found.registry, number, "AVRO")
    return replace(found, schemas={**found.schemas, number: texts}, reader=texts, reader_id=number)


def _parsed(text: str) -> _Given:
    if _PART.match(text) is None:
        return _Given({}, None, text.strip())
    files: dict[int, str] = {}
    reader: str | None = None
    place: str | None = None
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            if place is not None or not part.strip():
                raise _wrong(text, shown(part))
            place = part.strip()
        elif match[1] == "reader":
            if reader is not None:
                raise _wrong(text, "two readers")
            reader = match[2].strip()
        elif int(match[1]) > _MOST_ID or int(match[1]) in files:
            raise _wrong(text, f"id {match[1]}, too large or twice")
        else:
            files[int(match[1])] = match[2].strip()
    return _Given(files, reader, place)


def _files_of(folder: str, names: Collection[str], named: bool) -> dict[int, str]:
    """The files of a folder by id."""
    found: dict[int, str] = {}
    subjects = set()
    for name in sorted(names):
        match = _FILE.fullmatch(name)
        if match is None or int(match["id"]) > _MOST_ID:
            continue
        subjects.add(match["subject"])
        if int(match["id"]) in found:
            both = f"{found[int(match['id'])]} and {folder}/{name}"
            raise _wrong(folder, f"{both}, two files of one id")
        found[int(match["id"])] = f"{folder.rstrip('/')}/{name}"
    if not found:
        raise _wrong(folder, "no file named by an id in this folder")
    if len(found) > MOST_FILES:
        raise _wrong(folder, f"more than {MOST_FILES} schemas in this folder")
    if len(subjects) > 1 and not named:
        several = ", ".join(repr(subject or "none") for subject in sorted(subjects, key=str)[:5])
        raise _wrong(folder, f"files of several subjects ({several}), and no reader=ID")
    return found


def _read_all(files: Mapping[int, str], read: Read) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    size = 0
    for number, path in files.items():
        content = read(path)
        size += len(content)
        if size > _MOST_TEXT:
            raise _wrong(path, f"more than {_MOST_TEXT} characters in all schemas")
        found[number] = (content,)
    return found


def _with_reader(text: str, found: SchemaSet, reader: str, read: Read) -> SchemaSet:
    if not reader.isdecimal():
        return replace(found, reader=(read(reader),), named=True)
    number = int(reader)
    if number in found.schemas:
        return replace(found, reader=found.schemas[number], reader_id=number, named=True)
    if found.registry is None or number > _MOST_ID:
        raise _wrong(
            text, f"reader {number}, which is none of the ids {', '.join(map(str, sorted(found.schemas)[:20]))}"
        )
    texts = fetch_schema(found.registry, number, "AVRO")
    return replace(found, schemas={**found.schemas, number: texts}, reader=texts, reader_id=number, named=True)


def _wrong(text: str, found: str) -> InvalidInputError:
    place = shown(text) if "@" not in text else "the schemas"
    return InvalidInputError(
        ErrorCode.WRONG_SCHEMA,
        f"Avro schemas {place}: found {found}; expected ID=FILE,ID=FILE, a folder with files named ID.avsc or "
        "SUBJECT-ID.avsc, or the URL of a registry, and reader=ID or reader=FILE before it where a schema is chosen",
    )
