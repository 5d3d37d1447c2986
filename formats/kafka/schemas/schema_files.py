"""Serdes with a schema: their names have the path of its file at first, and its content once the file is read.

    avro:FILE                     avro:{...}
    avro:5=FILE,6=FILE            avro:{"schemas": ...}             also of a folder or a registry, see `given_schemas`
    protobuf:FILE#MESSAGE         protobuf:base64,...#MESSAGE
    protobuf:5=FILE,6=FILE        protobuf:{"schemas": ...}#MESSAGE  the message also as sampled values name it
    json-schema:5=FILE,6=FILE     json-schema:{"schemas": ...}

Both also as ``avro-plain:`` and ``protobuf-plain:``, with the ids of other registries (`schema_ids`) as ``avro-glue:``
and the like, and inside ``Time-Windowed<...>``.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.schemas import protobuf_schema
from statestore.formats.kafka.schemas.given_schemas import (
    MOST_FILES,
    Kind,
    SchemaSet,
    given_schemas,
    set_as_text,
    set_of_text,
    with_sampled_reader,
)
from statestore.formats.kafka.schemas.protobuf_schema import messages_at
from statestore.formats.kafka.schemas.registry_requests import public_url, without_credentials
from statestore.formats.kafka.schemas.schema_ids import id_form
from statestore.formats.kafka.schemas.schema_registry import fetch_schema
from statestore.formats.places.regular_files import open_regular

_SERDE = re.compile(
    r"(?s)((?:[\w-]+<)*)((?:avro(?:-plain|-apicurio|-glue)?|protobuf(?:-plain)?|json-(?:schema|apicurio|glue)):)(.*)"
)
_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
_SHOWN = 60
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class _Name:
    """The parts of the name of a serde: "Time-Windowed<", "protobuf:", what is between, the message, and ">"."""

    wrappers: str
    prefix: str
    place: str
    message: str | None
    closing: str

    @property
    def kind(self) -> Kind:
        return Kind(_TYPES[re.split("[-:]", self.prefix)[0]], id_form(self.prefix))

    @property
    def several(self) -> SchemaSet | None:
        return set_of_text(self.place)

    def __str__(self) -> str:
        mark = "" if self.message is None else f"#{self.message}"
        return f"{self.wrappers}{self.prefix}{self.place}{mark}{self.closing}"


def _name(serde: str) -> _Name | None:
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return None
    wrappers, prefix, place = found.groups()
    closing = ">" * wrappers.count("<")
    place = place.removesuffix(closing)
    if not prefix.startswith("protobuf"):
        return _Name(wrappers, prefix, place, None, closing)
    path, mark, message = place.rpartition("#")
    return _Name(wrappers, prefix, path if mark else place, message if mark else None, closing)


def has_schema(serde: str) -> bool:
    """Return whether a serde of this name has a schema."""
    return _name(serde) is not None


def with_schema(
    serde: str, read: Callable[[str], bytes], names: Callable[[str], Sequence[str] | None] = lambda _: None
) -> str:
    """The name of a serde with the schema in place of the path of its file; others stay.

    ``read`` returns the content of the file at a path, ``names`` the names in a folder, None for what is no folder.
    Raises InvalidInputError WRONG_SCHEMA, StorageError REGISTRY_FAILED.
    """
    found = _name(serde)
    if found is None or found.several is not None or found.place.startswith(protobuf_schema.CONTENT):
        return serde
    is_protobuf = found.kind.type == "PROTOBUF"
    if not is_protobuf and found.place.lstrip()[:1] in ("{", '"', "["):
        return serde

    def text(path: str) -> str:
        content = read(path)
        if is_protobuf and not path.endswith(".proto"):
            return protobuf_schema.CONTENT + base64.b64encode(content).decode()
        try:
            return content.decode().strip()
        except UnicodeDecodeError as error:
            raise _wrong_schema(
                f"{found.kind.type.capitalize()} schema: {path} is not UTF-8 ({error}); expected the text of a schema"
            ) from error

    several = given_schemas(found.place, found.kind, text, names)
    public = without_credentials(repr(serde))
    if several is None:
        if found.kind.type == "JSON":
            raise _wrong_schema(f"serde {public}: found one file; name json-schema alone, which needs no schema")
        if is_protobuf and not (found.message and found.place):
            raise _wrong_schema(
                f"serde {public}: found no message, expected {found.prefix}FILE#package.Message, a descriptor set "
                "that protoc has written or a .proto file, and a message in it"
            )
        content = text(found.place)
        if is_protobuf and not content.startswith(protobuf_schema.CONTENT):
            content = protobuf_schema.CONTENT + base64.b64encode(protobuf_schema.set_of(content)).decode()
        return str(replace(found, place=content))
    if "-plain:" in found.prefix:
        raise _wrong_schema(
            f"serde {found.prefix}...: found schemas by id, expected one file, because values without an id say "
            f"nothing of their schema; name one file, or {found.prefix.replace('-plain', '')}... for values with an id"
        )
    return str(replace(found, place=set_as_text(several), message=(found.message or "") if is_protobuf else None))


def _wrong_schema(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_SCHEMA, found)


def with_schema_file(serde: str, where: str, folder: Path | None = None) -> str:
    """The name of a serde with the schema in place of the path of its local file; others stay.

    A relative path begins at a folder, or else the current one; ``where`` says for errors where the name was given.
    Raises InvalidInputError WRONG_SCHEMA, CorruptError NOT_A_FILE, StorageError DISK_FAILED.
    """
    base = folder or Path()
    return with_schema(serde, lambda file: _content(base / file, where), lambda path: _names(base / path, where))


def with_sample(serde: str, sample: Iterable[bytes]) -> str:
    """The name of a serde with what only values tell: the reader's schema, and the message. Others stay.

    Raises InvalidInputError WRONG_SCHEMA where values name several messages.
    """
    found = _name(serde)
    several = None if found is None else found.several
    if found is None or several is None or not _lacks(found, several):
        return serde
    values = list(sample)
    several = with_sampled_reader(several, found.kind, values)
    message = found.message
    if message == "" and several.reader is not None:
        message = _sampled_message(several, found.kind, values)
    return str(replace(found, place=set_as_text(several), message=message))


def needs_sample(serde: str | None) -> bool:
    """Return whether a serde is one to which `with_sample` adds something."""
    found = None if serde is None else _name(serde)
    several = None if found is None else found.several
    return found is not None and several is not None and _lacks(found, several)


def _lacks(found: _Name, several: SchemaSet) -> bool:
    return found.message == "" or (several.reader is None and found.kind.type != "JSON")


def _sampled_message(several: SchemaSet, kind: Kind, sample: Iterable[bytes]) -> str:
    """The message that sampled values name by their index, "" where there are none."""
    indexes: dict[int, set[tuple[int, ...]]] = {}
    for value in sample:
        number, index = kind.ids.id_in(value), protobuf_schema.message_index(value[kind.ids.end :])
        if number is not None and index is not None:
            indexes.setdefault(number, set()).add(index)
    found: set[str] = set()
    for number, places in indexes.items():
        texts = several.schemas.get(number)
        if texts is None and several.registry is not None:
            texts = fetch_schema(several.registry, number, kind.type, kind.ids)
        for index in places if texts is not None else ():
            found.update(messages_at(texts or ()).get(index, ()))
    if len(found) > 1:
        names = ", ".join(sorted(found)[:20])
        raise _wrong_schema(
            f"serde protobuf:...: found messages {names} in values; name one, protobuf:...#{min(found)}"
        )
    return next(iter(found), "")


def _names(path: Path, where: str) -> list[str] | None:
    try:
        if not path.is_dir():
            return None
        names = [each.name for each in itertools.islice(path.iterdir(), 10 * MOST_FILES)]
    except (OSError, ValueError) as error:
        raise _no_schema(f"{where}: {error}") from error
    return names


def _content(path: Path, where: str) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _no_schema(f"{where}: {error}") from error
    if len(content) > MOST_BYTES:
        raise _no_schema(f"{where}: {path} has more than {MOST_BYTES} bytes")
    return content


def _no_schema(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.WRONG_SCHEMA, f"{found}; give the path of a schema's file")


def public_serde(serde: str) -> str:
    """The name of a serde without the password of its registry."""
    found = _name(serde)
    several = None if found is None else found.several
    if found is None or several is None or several.registry is None:
        return serde
    return str(replace(found, place=set_as_text(replace(several, registry=public_url(several.registry)))))


def shown_serde(serde: str) -> str:
    """The name of a serde for users, without the content of its schema."""
    found = _name(serde)
    if found is None:
        return serde
    several, ids = found.several, found.kind.ids
    if several is not None:
        parts = [public_url(several.registry)] if several.registry else []
        parts += [f"ids {', '.join(map(ids.text_of, several.schemas))}"] if several.schemas else []
        parts += [] if several.reader is None else [f"reader: {several.shown_reader(ids)}"]
        parts += [found.message] if found.message else []
        return f"{found.wrappers}{found.prefix}{'; '.join(parts)}"
    if found.message is not None:
        return f"{found.wrappers}{found.prefix}{found.message}{found.closing}"
    text = " ".join(found.place.split())
    return f"{found.wrappers}{found.prefix}{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
