"""Values with a schema as bytes behind the id of it: Avro, Protobuf, and JSON with a schema.

Which id a schema has is known from a registry, or from what is stored: a value that replaces another one keeps the
bytes in front of it, and a new one gets those of another row. Of several schemas Avro values get the reader's, as the
columns are the reader's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import joined_parts
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.columns.avro_encoders import avro_cells
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.protobuf_columns import index_size, protobuf_serde
from statestore.formats.kafka.columns.protobuf_encoders import protobuf_cells
from statestore.formats.kafka.schemas.avro_schema import PLAIN_PREFIX as PLAIN_AVRO
from statestore.formats.kafka.schemas.avro_schema import is_avro, parse_schema
from statestore.formats.kafka.schemas.given_schemas import set_of_text
from statestore.formats.kafka.schemas.protobuf_schema import PLAIN_PREFIX as PLAIN_PROTOBUF
from statestore.formats.kafka.schemas.protobuf_schema import ProtoMessage, is_protobuf, message_of, parse_message
from statestore.formats.kafka.schemas.schema_ids import GLUE, IdForm, id_form
from statestore.formats.kernels.arrays import Ints

_JSON = ("json-schema", "json-apicurio", "json-glue")
Encode = Callable[[pa.Array], Cells]


@dataclass(frozen=True)
class Stored:
    """Cells that are stored where values are written: ``own`` are those that they replace, null where there is none,
    and ``sample`` is any cell of the column."""

    own: pa.Array | None = None
    sample: bytes | None = None

    def present(self, has: pa.Array) -> Stored:
        """Return the bytes of the values that are not null."""
        return self if self.own is None else Stored(self.own.filter(has), self.sample)


NOTHING = Stored()


def is_json_by_schema(name: str) -> bool:
    """Return whether a serde is JSON behind the id of a schema."""
    return name.strip().partition(":")[0].lower() in _JSON


def is_by_schema(name: str) -> bool:
    """Return whether `with_schema_cells` has the values of a serde."""
    return is_avro(name) or is_protobuf(name) or is_json_by_schema(name)


def has_id(name: str) -> bool:
    """Return whether the values of a serde stand behind an id, so that new ones need one."""
    return is_by_schema(name) and not name.startswith((PLAIN_AVRO, PLAIN_PROTOBUF))


def with_schema_cells(name: str, values: pa.Array, what: str, stored: Stored) -> Cells:
    """The bytes of values of a serde with a schema, none null.

    Raises InvalidInputError WRONG_VALUE for a value that the schema has not, EDIT_REFUSED where bytes that are replaced
    hold more than is shown; UnsupportedError EDIT_UNSUPPORTED where no id is known.
    """
    if is_avro(name):
        return _avro(name, values, what, stored)
    if is_protobuf(name):
        return _protobuf(name, values, what, stored)
    return _behind(_fronts(name, id_form(name), len(values), stored, what), cells_of(values))


def _avro(name: str, values: pa.Array, what: str, stored: Stored) -> Cells:
    text = name.split(":", 1)[1]
    found = set_of_text(text)
    if found is None:
        cells = avro_cells(parse_schema(text), values, what)
        if name.startswith(PLAIN_AVRO):
            return cells
        return _behind(_fronts(name, id_form(name), len(values), stored, what), cells)
    ids = id_form(name)
    if found.reader is None or found.reader_id is None:
        raise _no_id(what, "the reader's schema has no id here; name it by its id (avro:reader=ID,...)")
    cells = avro_cells(parse_schema(found.reader[-1], found.reader[:-1]), values, what)
    number = found.reader_id.to_bytes(ids.end - ids.begin, "big")
    front = bytes([ids.first]).ljust(ids.begin, b"\0") + number
    return joined_parts([front, cells], len(cells))


def _protobuf(name: str, values: pa.Array, what: str, stored: Stored) -> Cells:
    message = _message(name, what)
    if stored.own is not None:
        _check_kept(name, message, stored.own.drop_null(), what)
    cells = protobuf_cells(message, values, what)
    if name.startswith(PLAIN_PROTOBUF):
        return cells
    return _behind(_fronts(name, id_form(name), len(values), stored, what), cells)


def _message(name: str, what: str) -> ProtoMessage:
    text = name.split(":", 1)[1]
    place, _, message = text.rpartition("#")
    found = set_of_text(place)
    if found is None:
        return parse_message(text)
    if found.reader is None or not message:
        raise _no_id(what, "no message is known by which values are read; name it (protobuf:...#package.Message)")
    return message_of(found.reader, message)


def _check_kept(name: str, message: ProtoMessage, own: pa.Array, what: str) -> None:
    """Raise InvalidInputError EDIT_REFUSED for stored values that would lose something, such as unknown fields."""
    whole = cells_of(own)
    shown = protobuf_serde(name).decode(whole, Origin(what, own))
    again = protobuf_cells(message, shown, what).binary()
    ends = 0 if name.startswith(PLAIN_PROTOBUF) else _front_sizes(name, whole)
    behind = Cells(whole.data, whole.start + ends, whole.size - ends).binary()
    if not again.equals(behind):
        raise InvalidInputError(
            ErrorCode.EDIT_REFUSED,
            f"{what}: a value that changes has fields that message {message.name} does not name, or that are not in "
            "the form of Protobuf's own serializers, and would lose them; give a newer schema, or read the values as "
            "bytes and give whole ones",
        )


# What is in front of values


def _fronts(name: str, ids: IdForm, count: int, stored: Stored, what: str) -> Cells:
    """Return the prefix of each value: that of the cell which it replaces, or of the sample."""
    own = pa.nulls(count, pa.binary()) if stored.own is None else stored.own.cast(pa.binary())
    if own.null_count:
        if stored.sample is None or ids.id_in(stored.sample) is None:
            why = "no value is stored whose id new ones could have; give the schema by its id (avro:ID=FILE)"
            raise _no_id(what, why)
        own = own.fill_null(pa.scalar(stored.sample, pa.binary()))
    whole = cells_of(own)
    front = Cells(whole.data, whole.start, np.minimum(_front_sizes(name, whole), whole.size))
    if ids is not GLUE:
        return front
    # The value behind is not compressed, whatever that of the stored one is.
    return joined_parts([b"\3\0", front.cut(2)], count)


def _front_sizes(name: str, whole: Cells) -> Ints:
    end = np.full(len(whole), id_form(name).end, np.int64)
    return end + index_size(whole.cut(int(end[0]))) if is_protobuf(name) and len(whole) else end


def _behind(fronts: Cells, values: Cells) -> Cells:
    return joined_parts([fronts, values], len(values))


def _no_id(what: str, why: str) -> UnsupportedError:
    return UnsupportedError(ErrorCode.EDIT_UNSUPPORTED, f"{what}: {why}, or give values as bytes (serde bytes)")
