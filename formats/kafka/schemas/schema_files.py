"""Serdes with a schema: their names have the path of its file at first, and its content once the file is read.

    avro:FILE                     avro:{...}
    avro:5=FILE,6=FILE            avro:{"schemas": ...}      also of a folder or a registry, see `given_schemas`
    protobuf:FILE#MESSAGE         protobuf:base64,...#MESSAGE

Both also as ``avro-plain:`` and ``protobuf-plain:``, and inside ``Time-Windowed<...>`` and the like.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.schemas import avro_schema, protobuf_schema
from statestore.formats.kafka.schemas.given_schemas import MOST_FILES, given_schemas, with_sampled_reader
from statestore.formats.kafka.schemas.schema_registry import is_registry, public_url
from statestore.formats.kafka.schemas.schema_sets import set_as_text, set_of_text
from statestore.formats.places.regular_files import open_regular

_SERDE = re.compile(r"(?s)((?:[\w-]+<)*)((?:avro|protobuf)(?:-plain)?:)(.*)")
_BY_ID = re.compile(r"\s*(?:reader|\d+)=")
_SHOWN = 60
MOST_BYTES = 16 << 20


def has_schema(serde: str) -> bool:
    """Return whether a serde of this name has a schema."""
    return _SERDE.fullmatch(serde.strip()) is not None


def with_schema(
    serde: str, read: Callable[[str], bytes], names: Callable[[str], Sequence[str] | None] = lambda _: None
) -> str:
    """The name of a serde with the schema in place of the path of its file; others stay.

    ``read`` returns the content of the file at a path, ``names`` the names in a folder, None for what is no folder.
    Raises InvalidInputError WRONG_SCHEMA, StorageError REGISTRY_FAILED.
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

        def text(path: str) -> str:
            try:
                return read(path).decode().strip()
            except UnicodeDecodeError as error:
                raise InvalidInputError(
                    ErrorCode.WRONG_SCHEMA, f"Avro schema: {path} is not UTF-8 ({error}); expected JSON"
                ) from error

        several = given_schemas(place, text, names)
        if several is None:
            return f"{wrappers}{prefix}{text(place)}{closing}"
        if prefix == avro_schema.PLAIN_PREFIX:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"serde {prefix}...: found schemas by id, expected one file, because values without an id say nothing "
                "of their schema; name one file, or avro:... for values with an id",
            )
        return f"{wrappers}{prefix}{set_as_text(several)}{closing}"
    if place.startswith(protobuf_schema.CONTENT):
        return serde
    path, mark, message = place.rpartition("#")
    if is_registry(place) or _BY_ID.match(place):
        what = public_url(path or place) if is_registry(place) else "schemas by id"
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"serde {prefix}...: found {what}, expected {prefix}FILE#package.Message; write a descriptor set from the "
            "newest .proto with protoc --descriptor_set_out=FILE --include_imports: one reads messages of all ids",
        )
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
    base = folder or Path()
    return with_schema(serde, lambda file: _content(base / file, where), lambda path: _names(base / path, where))


def with_sample(serde: str, sample: Iterable[bytes]) -> str:
    """The name of a serde whose reader's schema only the values tell, with the one of sampled values; others stay."""
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return serde
    wrappers, prefix, place = found.groups()
    closing = ">" * wrappers.count("<")
    several = set_of_text(place.removesuffix(closing))
    if several is None or several.reader is not None:
        return serde
    return f"{wrappers}{prefix}{set_as_text(with_sampled_reader(several, sample))}{closing}"


def needs_sample(serde: str | None) -> bool:
    """Return whether a serde is one to which `with_sample` gives a reader's schema."""
    found = None if serde is None else _SERDE.fullmatch(serde.strip())
    if found is None:
        return False
    several = set_of_text(found[3].removesuffix(">" * found[1].count("<")))
    return several is not None and several.reader is None


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
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return serde
    wrappers, prefix, place = found.groups()
    closing = ">" * wrappers.count("<")
    several = set_of_text(place.removesuffix(closing))
    if several is None or several.registry is None:
        return serde
    return f"{wrappers}{prefix}{set_as_text(replace(several, registry=public_url(several.registry)))}{closing}"


def shown_serde(serde: str) -> str:
    """The name of a serde for users, without the content of its schema."""
    found = _SERDE.fullmatch(serde.strip())
    if found is None:
        return serde
    wrappers, prefix, place = found.groups()
    if place.startswith(protobuf_schema.CONTENT):
        return f"{wrappers}{prefix}{place.rpartition('#')[2]}"
    several = set_of_text(place.removesuffix(">" * wrappers.count("<")))
    if several is not None:
        parts = [public_url(several.registry)] if several.registry else []
        parts += [f"ids {', '.join(map(str, several.schemas))}"] if several.schemas else []
        parts += [] if several.reader is None else [f"reader: {several.shown_reader}"]
        return f"{wrappers}{prefix}{'; '.join(parts)}"
    text = " ".join(place.split())
    return f"{wrappers}{prefix}{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
