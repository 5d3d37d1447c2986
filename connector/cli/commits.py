"""Writes of the command line: texts become schemas and rows, and each command is one commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from statestore.catalog.catalog import Catalog, connect, spec_of
from statestore.catalog.stores.versioned.captured_commits import check_takes_rows
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.data_files import read_file, wrong_file
from statestore.connector.key_text import cells_of
from statestore.connector.terminal import say
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.values.times import from_us, parse_time

TIME = pa.field("timestamp", pa.int64())
CHANGE_TYPE = "_change_type"


@dataclass(frozen=True)
class Written:
    """The version of a commit, and the number of rows that were too old for the store and are not in it."""

    version: int
    dropped: int


def create_store(path: str, store: str, kind: str, key: str, value: str | None, options: Mapping[str, Any]) -> None:
    """Create a store, and the warehouse where it does not exist; neither where an option is wrong.

    Raises InvalidInputError as `Catalog.create_store`, for --key and --value INVALID_OPTION, and instead of its
    UnsupportedError.
    """
    columns: dict[str, Any] = {"key": columns_of(key, "--key")}
    if value is not None:
        columns["value"] = columns_of(value, "--value")
    elif kind != "keyed":
        raise InvalidInputError(ErrorCode.MISSING_OPTION, f"a {kind} store needs --value, like --value price:double")
    try:
        spec_of(store, kind, **columns, **options)
    except UnsupportedError as error:
        raise InvalidInputError(error.code, error.message) from error
    connect(path).create_store(store, kind, **columns, **options).close()


def columns_of(text: str, option: str) -> dict[str, str]:
    """Return the types by the names of columns, of a text like a:string,b:decimal(10,2)."""
    columns: dict[str, str] = {}
    for part in _parts(text):
        name, colon, kind = part.partition(":")
        name = name.strip()
        if not colon or not name or not kind.strip() or name in columns:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"{option} is {text!r}; expected names with types, each once: a:string,b:double",
            )
        columns[name] = kind.strip()
    return columns


def _parts(text: str) -> list[str]:
    """Return the text cut at commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def existing(path: str, store: str) -> Catalog:
    """Return the warehouse of a store that exists and can be written.

    Raises NotFoundError TABLE_NOT_FOUND, ReadOnlyError READ_ONLY for an engine's state.
    """
    warehouse = open_warehouse(path)
    (found,) = warehouse.stores(store)
    if found != store:
        raise NotFoundError(ErrorCode.TABLE_NOT_FOUND, f"{store!r} is a table of the store {found!r}; name the store")
    warehouse.upkeep(store)
    return connect(path)


def drop_store(path: str, store: str) -> None:
    """Remove a store."""
    existing(path, store).drop_store(store)


def put_value(path: str, store: str, key: str, value: str, timestamp: str | None) -> Written:
    """Commit one value.

    Raises InvalidInputError WRONG_KEY, WRONG_VALUE or INVALID_OPTION.
    """
    with _open(existing(path, store), store) as handle:
        spec = handle.spec
        row = cells_of(spec.key, key, ErrorCode.WRONG_KEY) | cells_of(spec.value, value, ErrorCode.WRONG_VALUE)
        fields = [*spec.key, *spec.value]
        if spec.kind in ("versioned", "key_value"):
            given = time.time_ns() // 1_000_000 if timestamp is None else from_us(parse_time(timestamp, "--timestamp"))
            row, fields = row | {TIME.name: given}, [*fields, TIME]
        elif timestamp is not None:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"--timestamp: the times of a {spec.kind} store are in the key; leave it out"
            )
        return _written(handle, pa.Table.from_pylist([row], schema=pa.schema(fields)))


def load_rows(path: str, store: str, file: Path, form: str, columns: tuple[str, ...] | None, timestamp: str) -> Written:
    """Commit the rows of a file. Raises InvalidInputError WRONG_INPUT, WRONG_SCHEMA."""
    with _open(existing(path, store), store) as handle:
        spec = handle.spec
        known = pa.schema([*spec.key, *spec.value])
        reader = read_file(file, form, known)
        names = list(columns or reader.schema.names)
        missing = [name for name in names if name not in reader.schema.names]
        if missing:
            raise InvalidInputError(
                ErrorCode.WRONG_INPUT, f"{file} has no column {missing[0]}; it has {', '.join(reader.schema.names)}"
            )
        takes = {*known.names, CHANGE_TYPE, timestamp}
        extra = [name for name in names if name not in takes]
        if extra:
            hint = "name the columns to take with --columns, and that of the times with --timestamp"
            if "valid_from" in extra:  # an export; only the feed of changes says which rows ended without a successor
                wanted = ",".join([*(name for name in names if name in takes), "valid_from"])
                hint = f"to begin each row at its own start, add --columns {wanted} --timestamp valid_from"
                if CHANGE_TYPE not in names:
                    hint += ", which leaves the ends of rows out; export --changes has them, as deletes"
            raise InvalidInputError(
                ErrorCode.WRONG_INPUT, f"{file} has the column {extra[0]}, and {store} has none; {hint}"
            )
        renamed = [TIME.name if name == timestamp else name for name in names]
        schema = reader.schema
        if timestamp in names and pa.types.is_string(schema.field(timestamp).type):
            at = schema.get_field_index(timestamp)
            schema = schema.set(
                at, schema.field(at).with_type(pa.timestamp("us", "UTC"))
            )  # a time without a zone fails
        taken = pa.schema([schema.field(name) for name in names])
        batches = (batch.select(names).cast(taken).rename_columns(renamed) for batch in reader)
        schema = pa.schema([field.with_name(new) for field, new in zip(taken, renamed, strict=True)])
        try:
            return _written(handle, pa.RecordBatchReader.from_batches(schema, batches))
        except pa.ArrowInvalid as error:
            raise wrong_file(file, form, error) from error


def _open(catalog: Catalog, store: str) -> Any:
    check_takes_rows(catalog.locate(store)[1])
    handle = catalog.open_store(store)
    if handle.spec.kind == "keyed":
        handle.close()
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_KIND, f"{store!r} is a keyed store, which run_keyed writes; put into another kind"
        )
    return handle


def _written(handle: Any, rows: Any) -> Written:
    before = handle.dropped_records
    version = handle.write(rows)
    return Written(version, handle.dropped_records - before)


def say_written(written: Written, store: str) -> None:
    """Print the version; exit with 1 if rows were too old."""
    say(f"version {written.version} of {store}")
    if written.dropped:
        rows = "1 row is" if written.dropped == 1 else f"{written.dropped} rows are"
        say(f"{rows} older than {store} keeps, and {'was' if written.dropped == 1 else 'were'} left out")
        raise typer.Exit(1)
