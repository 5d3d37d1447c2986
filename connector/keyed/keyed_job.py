"""The checked arguments of a keyed run: store and key, the function, the schemas of its input and output rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import pyarrow as pa
import xxhash

from statestore.catalog.catalog import Catalog
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind, SnapshotPart
from statestore.catalog.log.storage import Storage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.state_table import column_names
from statestore.formats.table_columns import unknown_row_column
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.key_codec import Row, ValueCodec
from statestore.formats.values.types import type_name

Emitted: TypeAlias = "Row | pa.RecordBatch"


@dataclass(frozen=True)
class TaskRows:
    """The rows of a task in one batch, their ``keys`` in the types of the store's key, and their ``arrival``: positions
    in the DataFrame, ascending in its order."""

    rows: pa.Table
    keys: list[pa.Array]
    arrival: pa.Array


class Work(Protocol):
    """The computation of a task on its rows and its backend; picklable."""

    def __call__(self, batch: KeyedBatch, task: int, backend: KeyedBackend, task_rows: TaskRows) -> Iterator[Emitted]:
        """Yield the rows to emit, checked against the job's ``output``."""


@dataclass(frozen=True)
class KeyedJob:
    """The part of a keyed run that is the same in every batch; picklable.

    ``place`` and ``storage`` are where the store is, and where its files are. ``key``: positions of the key columns in
    ``rows``, in order of the store's key ``columns``.
    """

    place: Location
    storage: Storage
    store_id: str
    columns: pa.Schema
    key_groups: int
    key: tuple[int, ...]
    rows: pa.Schema
    output: pa.Schema
    work: Work
    snapshot: SnapshotKind


@dataclass(frozen=True)
class KeyedBatch:
    """One batch of a job; picklable.

    ``groups`` are the key groups of each task. ``parts`` are the identities (`part_id`) of the parts with exactly these
    groups in the snapshot of version ``base`` (0: none). ``keeps``: backends stay open for the next batch. ``time`` is
    the start of the batch in epoch microseconds. ``label`` names the batch in errors.
    """

    job: KeyedJob
    label: str
    base: int
    groups: tuple[range, ...]
    parts: tuple[str | None, ...]
    keeps: bool
    time: int = 0


def place_of(store: Any) -> Location:
    """The place of a store like "warehouse/sessions" or "s3://bucket/warehouse/sessions", with the absolute path: tasks
    may run in another working directory.

    Raises InvalidInputError WRONG_INPUT or INVALID_LOCATION.
    """
    if not isinstance(store, str | Path):
        raise InvalidInputError(
            ErrorCode.WRONG_INPUT, f'store is {type(store).__name__}; expected a path, like "warehouse/sessions"'
        )
    return parse_location(store)


def open_keyed(place: Location) -> KeyedStore:
    """Open the keyed store at a place. Raises NotFoundError STORE_NOT_FOUND, InvalidInputError WRONG_INPUT,
    UnsupportedError UNSUPPORTED_PATH."""
    if place.is_local and not Path(place.path).parent.is_dir():
        raise NotFoundError(
            ErrorCode.STORE_NOT_FOUND, f'no store at {place}; make it with create_store(…, kind="keyed", key=…)'
        )
    store = Catalog(place.parent).open_store(place.name)
    if not isinstance(store, KeyedStore):
        store.close()
        raise InvalidInputError(
            ErrorCode.WRONG_INPUT, f'store {place.name!r} is of kind {store.spec.kind}; expected one of kind "keyed"'
        )
    return store


def make_job(
    store: KeyedStore,
    place: Location,
    key: str | Sequence[str],
    rows: pa.Schema,
    output: pa.Schema,
    work: Work,
    snapshot: Any,
) -> KeyedJob:
    """Check the arguments of a keyed run. Raises InvalidInputError INVALID_OPTION, COLUMN_NOT_FOUND, WRONG_KEY or
    WRONG_SCHEMA, UnsupportedError UNSUPPORTED_TYPE."""
    if snapshot not in ("full", "incremental"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"snapshot is {snapshot!r}; expected full or incremental")
    spec = store.spec
    names = list(column_names(key, "key"))
    if len(names) != len(spec.key):
        raise InvalidInputError(
            ErrorCode.WRONG_KEY,
            f"key is {names}; store {spec.name!r} is keyed by {', '.join(spec.key.names)}: name a column for each of "
            "these, in order",
        )
    indexes = tuple(_key_index(name, rows) for name in names)
    for index, field in zip(indexes, spec.key, strict=True):
        key_column(pa.array([], rows.field(index).type), field, rows.field(index).name)
    ValueCodec(output)  # refuses types that no column can have
    kind = cast(SnapshotKind, snapshot)
    return KeyedJob(place, store.files(), spec.store_id, spec.key, spec.key_groups, indexes, rows, output, work, kind)


def key_column(column: Any, field: pa.Field, name: str) -> Any:
    """Cast a column to the type of the store's key without loss. InvalidInputError WRONG_SCHEMA, NULL_KEY."""
    try:
        key = cast_exactly(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"column {name!r} is {column.type}; the store's key {field.name!r} is {type_name(field.type)} ({error}); "
            "cast it in the DataFrame",
        ) from None
    if key.null_count:
        raise InvalidInputError(
            ErrorCode.NULL_KEY, f"column {name!r} is null in {key.null_count} rows; a key has no nulls: filter them out"
        )
    return key


def part_id(part: SnapshotPart) -> str:
    """The identity of a part: two parts have the same one only if they have the same state, since file names are
    unique."""
    return xxhash.xxh3_128_hexdigest(json.dumps(part.to_json(), sort_keys=True).encode())


def _key_index(name: Any, rows: pa.Schema) -> int:
    """The position of a column. Case is ignored, as in Spark, unless columns differ by case only."""
    matches = rows.get_all_field_indices(name) if isinstance(name, str) else []
    matches = matches or [i for i, other in enumerate(rows.names) if other.lower() == str(name).lower()]
    if not matches:
        raise unknown_row_column(name, "the rows", rows.names)
    if len(matches) > 1:
        raise InvalidInputError(
            ErrorCode.COLUMN_NOT_FOUND, f"more than one column {name!r} for the key in {rows.names}"
        )
    return int(matches[0])
