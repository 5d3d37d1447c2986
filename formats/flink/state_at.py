"""The rows of one state in one snapshot: a `StateAt`, in parts by key groups that tasks read alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from statestore.formats.engine import Source, StateAt, StateFile, WholePart
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.flink.changelog.changelog_reading import read_changelog
from statestore.formats.flink.columns.faults import NullMapKeyError
from statestore.formats.flink.found_classes import Change, rows_with_classes
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.serializers.flink_types import AvroOf, FlinkType, children, replaced
from statestore.formats.flink.snapshot.handles import ChangelogHandle, KeyGroupHandle, RocksHandle
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import (
    DAMAGED,
    KEYED,
    MISSING,
    TABLE,
    SnapshotFiles,
    handles_of_keyed,
    naming_files,
    naming_metadata,
    needed_files,
)
from statestore.formats.flink.stored_parts import GroupsPart, asked_groups, asked_ranges, names_keys, parts_of
from statestore.formats.flink.streams.keyed_reading import KeyedReading, read_database, read_heap, read_savepoint
from statestore.formats.flink.streams.keyed_reading import read_timers as read_raw_timers
from statestore.formats.flink.streams.operator_rows import OperatorForm, coordinator_rows, operator_rows
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.flink.streams.stored_states import StoredElements, StoredKeyed, StoredTimers
from statestore.formats.flink.suggested_types import with_option
from statestore.formats.values.filters import Filter
from statestore.formats.values.wider_types import cast_wider


@dataclass(frozen=True)
class Origin:
    """The source that a state at a version is from, and the state's name there.

    A state travels to a task as its origin, and a process of tasks parses the metadata once for all parts that it
    reads: a handle may have megabytes of state in it, and one of 40 files would be 3 KB in each part of 16 MiB.
    """

    source: Source
    state: str

    def again(self, version: int) -> StateAt:
        """The state at a version, looked up in the source. Raises NotFoundError VERSION_GONE where it was removed."""
        try:
            return self.source.at(self.state, version)
        except NotFoundError as error:
            found = self.explain_loss(error, [version])
            if found is error:
                raise
            raise found from error

    def explain_loss(self, error: StateStoreError, versions: Sequence[int]) -> StateStoreError:
        """The error in place of one of a read (`statestore.formats.engine.Reader.explain_loss`)."""
        return self.source.explain_loss(error, self.state, versions)


_OTHER_SCHEMA = (
    "; or, if the job was started with another Avro class and has not registered this state since, read a snapshot "
    "from before: Flink writes the schema of the new class with the rows of the old one"
)
UNREADABLE = pa.schema([pa.field("key", pa.binary())])


@dataclass(frozen=True)
class OperatorAt(StateAt):
    """State of an operator in one snapshot. ``number`` is the version of the snapshot, ``files_of`` has its files."""

    origin: Origin = field(repr=False, compare=False)
    number: int
    files_of: SnapshotFiles
    operator: OperatorSnapshot

    def __reduce__(self) -> tuple[object, ...]:
        return Origin.again, (self.origin, self.number)

    @property
    def version(self) -> int:
        return self.number

    def files(self) -> Iterator[StateFile]:
        return needed_files(self.files_of, self.operator)

    def has_checksum(self, file: StateFile) -> bool | None:
        return None if file.role in (MISSING, DAMAGED) else file.role == TABLE

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return self.origin.explain_loss(error, versions)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return naming_metadata(error, self.files_of.path)


@dataclass(frozen=True)
class KeyedAt(OperatorAt):
    """A keyed state. ``stored`` are the subtasks that may have rows of it, each with the form in which it wrote them;
    ``columns`` hold the values of all, and ``form`` is that of the first. ``groups`` is the max parallelism.

    ``key`` is the type of keys as stored, ``label`` names the state in errors, ``others`` are the forms of the
    operator's states by stored name. ``code`` has the job's classes.
    """

    form: KeyedForm
    columns: pa.Schema
    key: FlinkType | None
    groups: int
    stored: tuple[tuple[StoredKeyed | StoredTimers, KeyedForm], ...]
    label: str
    others: Mapping[str, KeyedForm]
    code: JobCode

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def has_checksum(self, file: StateFile) -> bool | None:
        """Compressed key groups have checksums, and table files."""
        if file.role == KEYED and self.stored:
            return all(
                isinstance(each, StoredKeyed) and each.header.compressed and not each.materialized
                for each, _ in self.stored
            )
        return super().has_checksum(file)

    def parts(self, filters: Sequence[Filter]) -> Sequence[GroupsPart]:
        return self.parts_in(asked_groups(self.form, self.key, self.groups, filters), filters)

    def parts_in(self, asked: set[int] | None, filters: Sequence[Filter]) -> Sequence[GroupsPart]:
        """Parts with the rows of some key groups (None: all) that pass the filters."""
        return parts_of(
            [each.handle for each, _ in self.stored],
            asked,
            is_local=self.files_of.folder.is_local,
            is_lookup=names_keys(self.form, self.key, filters),
        )

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        return rows_with_classes(self.code, lambda change: self._rows(part, columns, filters, change))

    def _rows(
        self, part: Any, columns: Collection[str], filters: Sequence[Filter], change: Change | None
    ) -> Iterator[pa.RecordBatch]:
        wanted = {*columns, *(item.column for item in filters)}
        (stored, form), others = self.stored[part.stored], self.others
        if change is not None:
            stored, form = replaced(stored, change), replaced(form, change)
            others = {name: replaced(each, change) for name, each in others.items()}
        reading = replace(self.reading(part.first, part.last, wanted), form=form, others=others, asked=part.groups)
        found = self._stored_rows(reading, stored, part, filters)
        if form.schema != self.columns:
            found = (_in_columns(batch, self.columns, wanted) for batch in found)
        with self.explaining(form, stored.handle):
            yield from found

    def reading(self, first: int, last: int, columns: Collection[str]) -> KeyedReading:
        """A read of columns of some key groups."""
        return KeyedReading(self.files_of, self.form, self.groups, first, last, columns, self.label, self.others)

    @contextmanager
    def explaining(self, form: KeyedForm, handle: KeyGroupHandle | RocksHandle | ChangelogHandle) -> Iterator[None]:
        """Let errors of the rows of a subtask name its files, and what a user can do."""
        try:
            yield
        except NullMapKeyError as error:
            raise with_option(error, self.origin.state, form) from error
        except CorruptError as error:
            more = _OTHER_SCHEMA if error.code == ErrorCode.FLINK_ROW and _has_avro(form.stored) else ""
            handles = (stream for _, stream in handles_of_keyed(handle, ""))
            raise naming_files(CorruptError(error.code, f"{error.message}{more}"), handles) from error

    def _stored_rows(
        self, reading: KeyedReading, stored: StoredKeyed | StoredTimers, part: Any, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(stored, StoredTimers):
            yield from read_raw_timers(reading, stored)
        elif isinstance(stored.handle, ChangelogHandle):
            ranges = asked_ranges(self.form, self.key, self.groups, part, filters)
            yield from read_changelog(reading, stored, stored.handle, ranges)
        elif isinstance(stored.handle, RocksHandle):
            ranges = asked_ranges(self.form, self.key, self.groups, part, filters)
            if ranges:
                yield from read_database(reading, stored.handle, ranges)
        elif stored.handle.form == "heap":
            yield from read_heap(reading, stored, stored.handle)
        else:
            yield from read_savepoint(reading, stored, stored.handle)


def _has_avro(kind: FlinkType) -> bool:
    return isinstance(kind, AvroOf) or any(map(_has_avro, children(kind)))


def _in_columns(batch: pa.RecordBatch, schema: pa.Schema, wanted: Collection[str]) -> pa.RecordBatch:
    """The rows of one subtask in columns that hold the values of all; what its type lacks is null."""
    fields = [field for field in schema if field.name in batch.schema.names or field.name in wanted]
    columns = [
        cast_wider(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True)
class ElementsAt(OperatorAt):
    """A list or broadcast state of an operator."""

    form: OperatorForm
    stored: tuple[StoredElements, ...]
    label: str
    code: JobCode

    @property
    def schema(self) -> pa.Schema:
        return self.form.schema

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        return rows_with_classes(self.code, lambda change: self._rows(columns, change))

    def _rows(self, columns: Collection[str], change: Change | None) -> Iterator[pa.RecordBatch]:
        form = self.form if change is None else replaced(self.form, change)
        for each in self.stored:
            with self.files_of.open_at(each.handle.stream) as stream:
                try:
                    yield from operator_rows(
                        form, stream, each.handle, each.subtask, each.header.compressed, columns, self.label
                    )
                except NullMapKeyError as error:
                    raise with_option(error, self.origin.state, form) from error
                except CorruptError as error:
                    raise naming_files(error, [each.handle.stream]) from error


@dataclass(frozen=True)
class CoordinatorAt(OperatorAt):
    """The state of an operator's coordinator, which is in ``_metadata``; ``content`` is None where it has none."""

    form: OperatorForm
    content: bytes | None = field(repr=False)
    label: str

    @property
    def schema(self) -> pa.Schema:
        return self.form.schema

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        if self.content is not None:
            yield coordinator_rows(self.form, self.content, self.label)


@dataclass(frozen=True)
class UnreadableAt(StateAt):
    """State of an operator that cannot be read: its error is that of every read. ``columns`` are those that the
    readable subtasks have."""

    number: int
    error: StateStoreError
    columns: pa.Schema = UNREADABLE

    @property
    def version(self) -> int:
        return self.number

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def parts(self, filters: Sequence[Filter]) -> Sequence[WholePart]:
        raise self.error

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        raise self.error
