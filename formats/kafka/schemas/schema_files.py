"""Serdes with a schema: their names have the path of its file at first, and its content once the file is read.

    avro:FILE                     avro:{...}
    protobuf:FILE#MESSAGE         protobuf:base64,...#MESSAGE

Both also as ``avro-plain:`` and ``protobuf-plain:``, and inside ``Time-Windowed<...>`` and the like.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.schemas import avro_schema, protobuf_schema
from statestore.formats.places.regular_files import open_regular

_SERDE = re.compile(r"(?s)((?:[\w-]+<)*)((?:avro|protobuf)(?:-plain)?:)(.*)")
_SHOWN = 60
MOST_BYTES = 16 << 20


def has_schema(serde: str) -> bool:
    """Return whether a serde of this name has a schema."""
    return _SERDE.fullmatch(serde.strip()) is not None


def with_schema(serde: str, read: Callable[[str], bytes]) -> str:
    """The name of a serde with the schema in place of the path of its file; others stay.

    ``read`` returns the content of the file at a path. Raises InvalidInputError WRONG_SCHEMA.
    """
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return serde
    wrappers, prefix, place = found.groups()
    closing = ">" * wrappers.count("<")
    place = place.removesuffix(closing)
    if prefix in (avro_schema.PREFIX, avro_schema.PLAIN_PREFIX):
        if place.lstrip()[:1] in ("{", '"', "["):
            return serde
        try:
            content = read(place).decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA, f"Avro schema: {place} is not UTF-8 ({error}); expected JSON"
            ) from error
        return f"{wrappers}{prefix}{content.strip()}{closing}"
    if place.startswith(protobuf_schema.CONTENT):
        return serde
    path, mark, message = place.rpartition("#")
    if not mark or not path:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"serde {serde!r}: found no message, expected {prefix}FILE#package.Message, a descriptor set that protoc "
            "has written, and a message in it",
        )
    return f"{wrappers}{prefix}{protobuf_schema.CONTENT}{base64.b64encode(read(path)).decode()}#{message}{closing}"


def with_schema_file(serde: str, where: str, folder: Path | None = None) -> str:
    """The name of a serde with the schema in place of the path of its local file; others stay.

    A relative path begins at a folder, or else the current one; ``where`` says for errors where the name was given.
    Raises InvalidInputError WRONG_SCHEMA, CorruptError NOT_A_FILE, StorageError DISK_FAILED.
    """
    return with_schema(serde, lambda file: _content((folder or Path()) / file, where))


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


def shown_serde(serde: str) -> str:
    """The name of a serde for users, without the content of its schema."""
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return serde
    wrappers, prefix, place = found.groups()
    if place.startswith(protobuf_schema.CONTENT):
        return f"{wrappers}{prefix}{place.rpartition('#')[2]}"
    text = " ".join(place.split())
    return f"{wrappers}{prefix}{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
