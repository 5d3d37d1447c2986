"""Several schemas of one serde, as users give them: files by id, a folder of such files, or a registry's URL.

    5=a.avsc,6=b.avsc             a file for each id
    FOLDER                        files named ID.avsc or SUBJECT-ID.avsc; .desc or .proto for Protobuf
    http://HOST:PORT              a registry, asked for each id that occurs
    reader=6,FOLDER               the same, read by the schema of id 6; or by a file: reader=b.avsc,...

Without ``reader`` the schema of the highest id is the reader's, because a registry counts its ids up. Ids that are
UUIDs do not, so of several of them the reader is named.

A set is text, because it stands in the name of a serde where the text of one schema would stand:

    {"schemas": {"5": ["{...}"], "6": ["{...}"]}, "reader": ["{...}"], "reader_id": 6, "named": false, "registry": null}

A schema is a list: first the schemas that it refers to, at last its own. ``named`` is true where the user chose the
reader. With a ``registry`` more schemas are asked for when their ids occur.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.schemas.registry_requests import is_registry, without_credentials
from statestore.formats.kafka.schemas.schema_ids import GLUE, IdForm
from statestore.formats.kafka.schemas.schema_registry import fetch_schema

MOST_FILES = 1000
_MOST_TEXT = 16 << 20
_MARK = '{"schemas": '
_ENDS = {"AVRO": ("avsc", "json"), "PROTOBUF": ("desc", "proto", "pb"), "JSON": ("json",)}
"""Ends of the names of files with schemas, by the type that a registry gives them."""
Texts = tuple[str, ...]
Read = Callable[[str], str]
Names = Callable[[str], Sequence[str] | None]


@dataclass(frozen=True)
class Kind:
    """The type of schemas, as a registry calls it, and the form of their ids."""

    type: str
    ids: IdForm

    @functools.cached_property
    def part(self) -> re.Pattern[str]:
        """Matches what names a file by an id, or the reader."""
        return re.compile(rf"\s*(reader|{self.ids.pattern})=(.*)", re.DOTALL)

    @functools.cached_property
    def file(self) -> re.Pattern[str]:
        """Matches the name of a file in a folder of schemas."""
        return re.compile(rf"(?:(?P<subject>.+)-)?(?P<id>{self.ids.pattern})\.(?:{'|'.join(_ENDS[self.type])})")


@dataclass(frozen=True)
class SchemaSet:
    """Schemas by id; ``reader`` is None until it is known, and ``reader_id`` None where it has no id."""

    schemas: Mapping[int, Texts] = field(default_factory=dict)
    reader: Texts | None = None
    reader_id: int | None = None
    named: bool = False
    registry: str | None = None

    def shown_reader(self, ids: IdForm) -> str:
        """Words for the reader's schema."""
        return "the schema that was named" if self.reader_id is None else f"schema id {ids.text_of(self.reader_id)}"


def set_as_text(found: SchemaSet) -> str:
    """Return the text of a set."""
    return json.dumps(
        {
            "schemas": {str(number): list(texts) for number, texts in sorted(found.schemas.items())},
            "reader": None if found.reader is None else list(found.reader),
            "reader_id": found.reader_id,
            "named": found.named,
            "registry": found.registry,
        }
    )


@functools.lru_cache(maxsize=64)
def set_of_text(text: str) -> SchemaSet | None:
    """Return the set whose text `set_as_text` has made; None: the text is that of one schema."""
    if not text.startswith(_MARK):
        return None
    found = json.loads(text)
    reader = found["reader"]
    return SchemaSet(
        {int(number): tuple(texts) for number, texts in found["schemas"].items()},
        None if reader is None else tuple(reader),
        found["reader_id"],
        found["named"],
        found["registry"],
    )


@dataclass(frozen=True)
class _Given:
    """The schemas that a user names, such as after "avro:": files by id, a reader, and a folder or a registry."""

    files: Mapping[int, str]
    reader: str | None
    place: str | None


def given_schemas(text: str, kind: Kind, read: Read, names: Names) -> SchemaSet | None:
    """Return the schemas that a text gives; None where it is the path of one file.

    ``read`` returns the text of a file, ``names`` the names in a folder, None for what is no folder. Raises
    InvalidInputError WRONG_SCHEMA, StorageError REGISTRY_FAILED.
    """
    given = _parsed(text, kind)
    at_registry = given.place is not None and is_registry(given.place)
    listed = None if given.place is None or at_registry else names(given.place)
    if at_registry and kind.ids is GLUE:
        raise _wrong(text, kind, "a URL, and the interface of Glue is not read: write its schemas into files")
    if given.place is not None and not at_registry and listed is None:
        if given.reader is None and not given.files:
            return None
        raise _wrong(text, kind, f"{given.place!r}, which is no folder and no URL")
    files = dict(given.files)
    if listed is not None and given.place is not None:
        files.update(_files_of(given.place, listed, kind, given.reader is not None))
    found = SchemaSet(_read_all(files, kind, read), registry=given.place if listed is None else None)
    if given.reader is not None:
        return _with_reader(text, kind, found, given.reader, read)
    if found.registry is not None or not found.schemas:
        return found
    if kind.ids.is_uuid and len(found.schemas) > 1 and kind.type != "JSON":
        raise _wrong(text, kind, "several ids without an order, and no reader=ID")
    number = max(found.schemas)
    return replace(found, reader=found.schemas[number], reader_id=number)


def with_sampled_reader(found: SchemaSet, kind: Kind, sample: Iterable[bytes]) -> SchemaSet:
    """The set with the schema of the highest id in sampled values as its reader; unchanged where there is none.

    Raises as `fetch_schema`.
    """
    ids = {number for value in sample if (number := kind.ids.id_in(value)) is not None} | set(found.schemas)
    if found.reader is not None or found.registry is None or not ids:
        return found
    number = max(ids)
    texts = found.schemas.get(number) or fetch_schema(found.registry, number, kind.type, kind.ids)
    return replace(found, schemas={**found.schemas, number: texts}, reader=texts, reader_id=number)


def _parsed(text: str, kind: Kind) -> _Given:
    if kind.part.match(text) is None:
        return _Given({}, None, text.strip())
    files: dict[int, str] = {}
    reader: str | None = None
    place: str | None = None
    for part in text.split(","):
        match = kind.part.fullmatch(part)
        number = None if match is None or match[1] == "reader" else kind.ids.id_of(match[1])
        if match is None:
            if place is not None or not part.strip():
                raise _wrong(text, kind, shown(part))
            place = part.strip()
        elif match[1] == "reader":
            if reader is not None:
                raise _wrong(text, kind, "two readers")
            reader = match[2].strip()
        elif number is None or number in files:
            raise _wrong(text, kind, f"id {match[1]}, too large or twice")
        else:
            files[number] = match[2].strip()
    return _Given(files, reader, place)


def _files_of(folder: str, names: Collection[str], kind: Kind, named: bool) -> dict[int, str]:
    """The files of a folder by id."""
    found: dict[int, str] = {}
    subjects = set()
    for name in sorted(names):
        match = kind.file.fullmatch(name)
        number = None if match is None else kind.ids.id_of(match["id"])
        if match is None or number is None:
            continue
        subjects.add(match["subject"])
        if number in found:
            raise _wrong(folder, kind, f"{found[number]} and {folder}/{name}, two files of one id")
        found[number] = f"{folder.rstrip('/')}/{name}"
    if not found:
        raise _wrong(folder, kind, "no file named by an id in this folder")
    if len(found) > MOST_FILES:
        raise _wrong(folder, kind, f"more than {MOST_FILES} schemas in this folder")
    if len(subjects) > 1 and not named:
        several = ", ".join(repr(subject or "none") for subject in sorted(subjects, key=str)[:5])
        raise _wrong(folder, kind, f"files of several subjects ({several}), and no reader=ID")
    return found


def _read_all(files: Mapping[int, str], kind: Kind, read: Read) -> dict[int, Texts]:
    found: dict[int, Texts] = {}
    size = 0
    for number, path in files.items():
        content = read(path)
        size += len(content)
        if size > _MOST_TEXT:
            raise _wrong(path, kind, f"more than {_MOST_TEXT} characters in all schemas")
        found[number] = (content,)
    return found


def _with_reader(text: str, kind: Kind, found: SchemaSet, reader: str, read: Read) -> SchemaSet:
    if re.fullmatch(kind.ids.pattern, reader) is None:
        return replace(found, reader=(read(reader),), named=True)
    number = kind.ids.id_of(reader)
    if number is not None and number in found.schemas:
        return replace(found, reader=found.schemas[number], reader_id=number, named=True)
    if found.registry is None or number is None:
        known = kind.ids.texts_of(found.schemas)
        raise _wrong(text, kind, f"reader {reader}, which is none of the ids {known}")
    texts = fetch_schema(found.registry, number, kind.type, kind.ids)
    return replace(found, schemas={**found.schemas, number: texts}, reader=texts, reader_id=number, named=True)


def _wrong(text: str, kind: Kind, found: str) -> InvalidInputError:
    place, name = shown(text) if "@" not in text else "the schemas", kind.type.capitalize()
    found = without_credentials(found)
    ends = " or ".join(f"SUBJECT-ID.{end}" for end in _ENDS[kind.type])
    return InvalidInputError(
        ErrorCode.WRONG_SCHEMA,
        f"{name} schemas {place}: found {found}; expected ID=FILE,ID=FILE, a folder with files named {ends}, or the "
        "URL of a registry, and reader=ID or reader=FILE before it where a schema is chosen",
    )
