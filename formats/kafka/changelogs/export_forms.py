"""Forms of exported records: how a file of records was written, by its maker, or as options of the read say.

    key, value, timestamp, ...      the columns of RECORDS; texts are hexadecimal
    kcat -J                         one object a line; payload, ts; texts are the bytes themselves
    rpk topic consume               one object over several lines; what is empty or null is left out
    Redpanda Console                an array of objects whose keys and values are objects (see ``saved_messages``)
    kafka-ui                        an array of objects with Key, Value, Timestamp, ...; values as it shows them
    kafka-console-consumer          lines of fields without names (see ``console_lines``)
    kafka-dump-log                  lines with the sizes of keys and values (see ``log_dumps``)
    others                          as option recordColumns names their columns

kcat writes bytes into its texts as they are, whether they are UTF-8 or not, so nothing is lost. Other programs put
U+FFFD in place of bytes that are no UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.changelogs.file_columns import ENCODINGS, TextEncoding
from statestore.formats.kafka.changelogs.records import COLUMNS

_FIRST_BYTES = 1 << 20
_TEXTS_BY_COLUMN = re.compile(r"\s*key\s*=\s*(?P<key>[^,]*?)\s*,\s*value\s*=\s*(?P<value>[^,]*?)\s*")
_NAMED = (*COLUMNS, "topic")
_OWN = {name: name for name in _NAMED}
_KCAT = {**_OWN, "value": "payload", "timestamp": "ts"}
_KAFKA_UI = {**_OWN, **{name: name.capitalize() for name in ("key", "value", "timestamp", "partition", "offset")}}
_CONSOLE_CSV = {
    b"timestamp,partitionID,offset,key,value,keySize,valueSize": "Redpanda Console, which puts ; in place of each comma"
    "; save JSON with raw data included",
    b"Value,Offset,Key,Partition,Headers,Timestamp": "kafka-ui, in which a null looks empty and some values have ' in "
    "front; export JSON",
}
"""First lines of CSV files that do not have the records as they were, with what to do."""
SKIPPED = "_"
"""The name of a field of a line that is not read."""


@dataclass(frozen=True)
class RecordOptions:
    """Options of a read about exported records, as texts; None: not given."""

    columns: str | None = None
    text: str | None = None
    separator: str | None = None
    null: str | None = None


NO_OPTIONS = RecordOptions()


@dataclass(frozen=True)
class RecordForm:
    """The form in which the records of a file are written.

    ``encoding``: how texts are bytes, ``key_encoding`` those of keys where these differ.
    ``columns``: the file's name of each column of RECORDS. ``named``: the columns that the user has named; they must be
    there. ``order``: what the fields of a line are, where they have no names. ``raw``: texts are bytes as they are.
    ``null``: the text of a null where a text stands for it; ``null_given``: by the user. ``omits``: a key or a value
    that is empty or null is left out. ``over_lines``, ``in_array``: an object is not one line. ``is_export``:
    timestamps may be absent, and texts may be damaged. ``empty_known``: an empty key or value is no null.
    ``no_headers``: a record without headers has no such field, if another one has. ``layout``: the module that reads
    the records where they have another layout than fields of lines or objects.
    """

    columns: Mapping[str, str] = field(default_factory=lambda: _OWN)
    encoding: TextEncoding = "hex"
    key_encoding: TextEncoding | None = None
    named: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    separator: bytes = b"\t"
    null: bytes | None = None
    null_given: bool = False
    raw: bool = False
    over_lines: bool = False
    in_array: bool = False
    omits: bool = False
    is_export: bool = False
    empty_known: bool = True
    no_headers: bool = False
    layout: Literal["fields", "log dump", "saved messages"] = "fields"

    def encoding_of(self, column: str) -> TextEncoding:
        """Return how texts of a column are bytes."""
        return self.key_encoding if column == "key" and self.key_encoding is not None else self.encoding


def form_of(form: str, start: bytes, path: str, options: RecordOptions, encoding: TextEncoding | None) -> RecordForm:
    """The form of a file of ``form`` whose first bytes are ``start``.

    ``encoding`` is that of texts where it is given. Raises InvalidInputError KAFKA_RECORDS for a form that does not say
    what its fields are, INVALID_OPTION for options that do not fit, MISSING_OPTION where texts may mean two things.
    """
    text = encoding_of(options, encoding)
    lost = next((found for names, found in _CONSOLE_CSV.items() if start.startswith(names)), None)
    if form == "csv" and lost is not None:
        raise InvalidInputError(ErrorCode.KAFKA_RECORDS, f"file {path}: found CSV of {lost}, which is read as it is")
    if options.columns is not None:
        columns = named_columns(options.columns)
        null = None if options.null is None else options.null.encode()
        return RecordForm(
            {**_OWN, **columns},
            text or "utf-8",
            named=tuple(columns),
            separator=separator_of(options, b"\t" if path.split(".")[-1] == "tsv" else b",", 1),
            null=null,
            null_given=null is not None,
            is_export=True,
        )
    if form == "csv":
        first = shown(start.partition(b"\n")[0].decode(errors="replace"), 200)
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found {first}, and the columns of CSV "
            "files differ; name those of key, value and others with option recordColumns, such as "
            "key=Key,value=Value,timestamp=Timestamp",
        )
    return _json_form(start, path, text) if form == "json" else RecordForm(encoding=text or "hex")


def encoding_of(
    options: RecordOptions, encoding: TextEncoding | None, column: Literal["key", "value"] = "value"
) -> TextEncoding | None:
    """The encoding of a column's texts that is given, by an option first. Raises InvalidInputError INVALID_OPTION."""
    if options.text is None:
        return encoding
    named = _TEXTS_BY_COLUMN.fullmatch(options.text)
    wanted = options.text if named is None else named[column]
    found = next((each for each in ENCODINGS if each == wanted), None)
    if found is None:
        every = ", ".join(ENCODINGS)
        raise _wrong_option("recordText", options.text, f"one of {every}, or key=ONE,value=ONE where they differ")
    return found


def with_key_encoding(form: RecordForm, options: RecordOptions) -> RecordForm:
    """The form with the encoding of keys that an option gives apart from that of values."""
    if options.text is None or _TEXTS_BY_COLUMN.fullmatch(options.text) is None:
        return form
    return replace(form, key_encoding=encoding_of(options, None, "key"))


def _json_form(start: bytes, path: str, text: TextEncoding | None) -> RecordForm:
    if start.startswith((b'{\n  "topic":', b'{\r\n  "topic":')):
        return RecordForm(encoding="utf-8", over_lines=True, omits=True, is_export=True, no_headers=True)
    row = first_object(start)
    if "payload" in row and "value" not in row and {"topic", "partition", "offset"} <= row.keys():
        for name in ("key", "payload"):
            if not isinstance(row.get(name), str | None):
                raise InvalidInputError(
                    ErrorCode.KAFKA_RECORDS,
                    f"file {path}: found {name} {shown(row[name], 80)}, expected a text: kcat has decoded it; consume "
                    "with -J and without -s, so that the bytes are in the file",
                )
        return RecordForm(_KCAT, "utf-8", raw=True, is_export=True, no_headers=True)
    if {"Key", "Value", "Timestamp", "Partition", "Offset"} <= row.keys() and text is None:
        return RecordForm(_KAFKA_UI, "utf-8", is_export=True)
    if "partitionID" in row and isinstance(row.get("value"), dict):
        return RecordForm(is_export=True, layout="saved messages")
    if "topic" in row and "value" in row and next(iter(row)) == "topic" and text is None:
        raise InvalidInputError(
            ErrorCode.MISSING_OPTION,
            f"file {path}: found records with a topic, as rpk and others write them, whose texts may be the bytes or "
            "hexadecimal; say which with option recordText (utf-8, hex, base64)",
        )
    omits = "topic" in row and text == "utf-8"
    return RecordForm(encoding=text or "hex", omits=omits, is_export=text == "utf-8", no_headers=omits)


def first_object(start: bytes) -> Mapping[str, Any]:
    """The object in the first line; empty where that is none. The parser of the file says what is wrong with it."""
    line = start.partition(b"\n")[0]
    try:
        row = json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def named_columns(text: str) -> dict[str, str]:
    """The pairs of an option such as value=payload,timestamp=ts. Raises InvalidInputError INVALID_OPTION."""
    found: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, column = (each.strip() for each in pair.partition("="))
        if name not in _NAMED or not equals or not column or name in found:
            raise _wrong_option(
                "recordColumns", text, f"pairs such as value=payload,timestamp=ts of {', '.join(_NAMED)}"
            )
        found[name] = column
    return found


def separator_of(options: RecordOptions, usual: bytes, most: int) -> bytes:
    """The bytes between fields, at most ``most``. Raises InvalidInputError INVALID_OPTION for none or line breaks."""
    if options.separator is None:
        return usual
    found = {"\\t": b"\t", "tab": b"\t"}.get(options.separator, options.separator.encode())
    if not 0 < len(found) <= most or set(found) & set(b"\r\n"):
        expected = f"{'one character' if most == 1 else 'a few characters'}, such as , or | or tab"
        raise _wrong_option("recordSeparator", options.separator, expected)
    return found


def text_type(form: RecordForm) -> pa.DataType:
    """The type as which the texts of keys and values are parsed."""
    return pa.binary() if form.raw else pa.string()


def _wrong_option(name: str, found: str, expected: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} is {shown(found)}; expected {expected}")
