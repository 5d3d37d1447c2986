"""Changelog records from files, one or several: Arrow, Parquet, JSON lines, and exports of other programs.

The columns are key, value, timestamp, offset, partition and headers (see ``file_columns``), under these names or as
``export_forms`` finds them. ``key``, ``value`` and ``timestamp`` are required, in JSON by the first line; a null value
deletes. Exports of others may lack ``timestamp``. Without ``partition`` all records count as partition 0. Without
``offset`` one file is read in its own order, and its offsets are unknown; several files need offsets, because nothing
else orders them. Without ``headers`` they are unknown. With a column ``topic`` of several topics one is to be named.
Other columns are ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.kafka.changelogs.console_lines import line_batches, lines_form
from statestore.formats.kafka.changelogs.csv_lines import csv_batches
from statestore.formats.kafka.changelogs.export_forms import (
    NO_OPTIONS,
    RecordForm,
    RecordOptions,
    encoding_of,
    form_of,
    with_key_encoding,
)
from statestore.formats.kafka.changelogs.export_streams import CODECS, array_lines, opened
from statestore.formats.kafka.changelogs.file_columns import (
    ENCODINGS,
    FilePlace,
    TextEncoding,
    bytes_of,
    headers_of,
    integers_of,
    order_broken,
    times_of,
)
from statestore.formats.kafka.changelogs.json_lines import json_batches
from statestore.formats.kafka.changelogs.log_dumps import dump_batches, is_dump
from statestore.formats.kafka.changelogs.record_log import LogFindings
from statestore.formats.kafka.changelogs.records import COLUMNS, RECORDS, UNKNOWN_TIME, ListedHeaders, Records
from statestore.formats.kafka.changelogs.saved_messages import message_batches
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors, storage_error

SUFFIXES = {
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow stream",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "lines",
}
"""Forms of files by their names."""

_BATCH_ROWS = 1 << 16
_FIRST_BYTES = 1 << 20
_TEXTS = ("json", "csv", "lines")
_REPLACEMENT = "\ufffd"
_WIDE = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class RecordFile:
    """A file of records and how it is read."""

    path: str
    form: str
    written: RecordForm
    topic: str | None


@dataclass(frozen=True)
class FileLog:
    """The records of one partition in files; a `RecordLog`. ``sorted`` is false where offsets do not rise.

    ``held`` are the records of all partitions where the files were read into memory.
    """

    findings: LogFindings
    files: tuple[RecordFile, ...]
    has_offsets: bool
    sorted: bool
    held: tuple[pa.RecordBatch, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def partition(self) -> int:
        return self.findings.partition

    def read(self) -> Iterator[Records]:
        """Yield all records by offset. A log whose offsets do not rise from row to row is read into memory whole."""
        seen = 0
        for batch in self._batches() if self.sorted else self._in_order():
            offset = batch.column("offset").to_numpy() if self.has_offsets else None
            known = offset is not None and self.findings.missing_offsets is not None
            missing = offset - np.arange(seen, seen + batch.num_rows) if known else None
            seen += batch.num_rows
            yield Records(
                self.partition,
                offset,
                batch.column("timestamp").to_numpy(),
                missing,
                _cells(batch, "key"),
                _cells(batch, "value"),
                ListedHeaders(batch.num_rows, batch.column("headers")),
            )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in _whole(self.files) if self.held is None else self.held:
            mine = pc.equal(batch.column("partition"), self.partition)
            chosen = batch.filter(mine)
            if chosen.num_rows:
                yield chosen

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(list(self._batches()), RECORDS)
        order = pc.sort_indices(whole.column("offset"))
        for begin in range(0, len(order), _BATCH_ROWS):
            yield whole.take(order.slice(begin, _BATCH_ROWS)).combine_chunks().to_batches()[0]


def held(logs: Sequence[FileLog]) -> tuple[FileLog, ...]:
    """The logs of files that are asked again and again: with their records in memory, which are read once for all."""
    if not logs:
        return ()
    batches = tuple(_whole(logs[0].files))
    return tuple(replace(log, held=batches) for log in logs)


def _whole(files: Sequence[RecordFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from _read(file, COLUMNS)


def _cells(batch: pa.RecordBatch, name: str) -> Cells:
    return cells_of(batch.column(name))


def record_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    encoding: TextEncoding | None = None,
    topic: str | None = None,
    options: RecordOptions = NO_OPTIONS,
) -> tuple[FileLog, ...]:
    """The logs of the partitions in a file, in all files of a folder, or in the files of a list.

    ``encoding``: how bytes are written where key, value or a header is text, by default hexadecimal or as the form of
    the file says. ``topic``: of a column of that name. ``options``: what a user says about the form.
    Raises NotFoundError PATH_NOT_FOUND or NOTHING_HERE, InvalidInputError KAFKA_RECORDS for columns that do not fit,
    and CorruptError FILE_DAMAGED for an offset that is there twice or a file that cannot be read.
    """
    if encoding is not None and encoding not in ENCODINGS:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"encoding: found {encoding!r}, expected one of {', '.join(ENCODINGS)}"
        )
    files = tuple(RecordFile(name, form, _written(name, form, options, encoding), topic) for name, form in _files(path))
    survey = _Survey(len(files) > 1)
    for file in files:
        survey.file(file)
    return tuple(survey.log(partition, files) for partition in sorted(survey.offsets))


def file_records(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    encoding: TextEncoding | None = None,
    topic: str | None = None,
    columns: tuple[str, ...] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the records, partition by partition, in the order of offsets. Arguments and errors as
    `record_files`; ``columns`` are names of RECORDS."""
    for log in record_files(path, encoding=encoding, topic=topic):
        for records in log.read():
            yield records.batch(columns)


def _files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[tuple[str, str]]:
    if not isinstance(path, str | os.PathLike):
        return [found for each in path for found in _files(each)]
    given = Path(path)
    if given.is_dir():
        with disk_errors("list", given):
            names = sorted(entry for entry in given.iterdir() if entry.is_file())
        found = [(str(name), form) for name in names if (form := _form(name)) is not None]
        if not found:
            raise NotFoundError(
                ErrorCode.NOTHING_HERE, f"{given}: found no file of records, expected {', '.join(SUFFIXES)}"
            )
        return found
    if not given.exists():
        raise NotFoundError(ErrorCode.PATH_NOT_FOUND, f"{given}: found nothing, expected a file or folder of records")
    form = _form(given)
    if form is None:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS, f"file {given}: expected a name that ends in {', '.join(SUFFIXES)}"
        )
    return [(str(given), form)]


def _form(path: Path) -> str | None:
    """The form that a name says; None: none. Only texts are compressed."""
    if path.suffix in CODECS:
        form = SUFFIXES.get(Path(path.stem).suffix)
        return form if form in _TEXTS else None
    return SUFFIXES.get(path.suffix)


def _written(path: str, form: str, options: RecordOptions, encoding: TextEncoding | None) -> RecordForm:
    return with_key_encoding(_recognised(path, form, options, encoding), options)


def _recognised(path: str, form: str, options: RecordOptions, encoding: TextEncoding | None) -> RecordForm:
    if form not in _TEXTS:
        return form_of(form, b"", path, options, encoding)
    with parser_errors(path, form), opened(path) as stream:
        start = stream.read(_FIRST_BYTES)
    if start.startswith(_WIDE):
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {path}: found text in UTF-16, as some shells redirect output, expected UTF-8; "
            "convert it: iconv -f UTF-16 -t UTF-8",
        )
    if form == "lines" and options.columns is None and is_dump(start):
        return RecordForm(encoding="utf-8", raw=True, is_export=True, layout="log dump")
    if form == "lines":
        return lines_form(start, path, options, encoding_of(options, encoding))
    if form == "json" and start.lstrip()[:1] == b"[":
        return replace(form_of(form, array_lines(start), path, options, encoding), in_array=True)
    return form_of(form, start, path, options, encoding)


@dataclass
class _TextFaults:
    """Faults of an export's texts: counts over the records of a partition. ``nulls`` may be texts that were no null."""

    replaced: int = 0
    nulls: int = 0
    null_text: str = ""
    without_time: int = 0

    @property
    def times_known(self) -> bool:
        """Return whether each record has a timestamp."""
        return not self.without_time

    def note(self, batch: pa.RecordBatch, form: RecordForm) -> None:
        """Count the faults of a batch of RECORDS that was read from a file of this form."""
        self.without_time += _count(pc.less(batch.column("timestamp"), 0))
        cells = [batch.column(name) for name in ("key", "value")]
        if "utf-8" in (form.encoding, form.key_encoding):
            replaced = [pc.match_substring(each, _REPLACEMENT.encode()).fill_null(False) for each in cells]
            self.replaced += _count(pc.or_(*replaced))
        if (form.null is not None and not form.null_given) or form.omits:
            self.nulls += _count(pc.or_(*(each.is_null() for each in cells)))
            self.null_text = "left out, as empty ones are" if form.omits else f"the text {(form.null or b'').decode()}"

    def remarks(self, subject: str) -> tuple[str, ...]:
        """Sentences for who reads the records."""
        found = []
        if self.replaced:
            found.append(
                f"{subject}: {self.replaced} records have U+FFFD in key or value, which programs put in place of bytes "
                "that are no UTF-8: these bytes may be lost; export the topic with kcat -J or in hexadecimal"
            )
        if self.nulls:
            found.append(
                f"{subject}: {self.nulls} records have a key or value that is {self.null_text}, and it is read as null"
            )
        return tuple(found)


def _count(mask: pa.BooleanArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


@dataclass
class _Seen:
    """The topics in files, and whether all files have a column of partitions."""

    topics: set[str] = field(default_factory=set)
    partition_known: bool = True


class _Survey:
    """The first reading: which partitions there are, and whether their offsets rise."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self.offsets: dict[int, list[Ints]] = {}
        self._has_offsets = True
        self._faults: dict[int, _TextFaults] = {}
        self._seen = _Seen()

    def file(self, file: RecordFile) -> None:
        columns = COLUMNS if file.written.is_export else ("partition", "offset")
        for batch in _read(file, columns, self._seen):
            if len(self._seen.topics) > 1:
                raise InvalidInputError(
                    ErrorCode.MISSING_OPTION,
                    f"file {file.path}: found records of topics {', '.join(sorted(self._seen.topics))}, expected one; "
                    "name it with topic=",
                )
            offset = batch.column("offset")
            if offset.null_count:
                self._has_offsets = False
                if self._several:
                    raise InvalidInputError(
                        ErrorCode.KAFKA_RECORDS,
                        f"file {file.path}: found no column offset, expected one, because only offsets order the "
                        "records of several files",
                    )
            partitions = batch.column("partition").to_numpy()
            for partition in np.unique(partitions).tolist():
                mine = offset.to_numpy(zero_copy_only=False)[partitions == partition]
                self.offsets.setdefault(partition, []).append(mine)
                if file.written.is_export:
                    faults = self._faults.setdefault(partition, _TextFaults())
                    faults.note(batch.filter(pc.equal(batch.column("partition"), partition)), file.written)

    def log(self, partition: int, files: tuple[RecordFile, ...]) -> FileLog:
        parts = self.offsets[partition]
        count = sum(map(len, parts))
        if not self._has_offsets:
            findings = LogFindings(partition, None, 0, count, None, markers_known=False)
            return FileLog(self._judged(findings), files, False, True)
        offsets = np.concatenate(parts)
        rising = bool((offsets[1:] > offsets[:-1]).all())
        if not rising:
            offsets = np.sort(offsets)
            twice = offsets[1:][offsets[1:] == offsets[:-1]]
            if len(twice) and not self._seen.partition_known:
                raise InvalidInputError(
                    ErrorCode.KAFKA_RECORDS,
                    f"file {files[0].path}: found offset {int(twice[0])} twice and no column partition, expected one, "
                    "because each partition has offsets of its own",
                )
            if len(twice):
                raise order_broken(files[0].path if len(files) == 1 else "files", partition, int(twice[0]))
        after = int(offsets[-1]) + 1
        missing = after - count
        findings = LogFindings(partition, int(offsets[0]), after, count, missing, markers_known=False)
        return FileLog(self._judged(findings), files, True, rising)

    def _judged(self, findings: LogFindings) -> LogFindings:
        """The findings with what the files do not say, and what their texts have lost."""
        faults = self._faults.get(findings.partition, _TextFaults())
        remarks = faults.remarks(f"partition {findings.partition}" if self._seen.partition_known else "the records")
        known = self._seen.partition_known
        if self._faults and not known:  # offsets of several partitions do not show what is missing
            findings = replace(findings, missing_offsets=None)
        return replace(findings, times_known=faults.times_known, partition_known=known, remarks=remarks)


def _read(file: RecordFile, columns: tuple[str, ...], seen: _Seen | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns of RECORDS, of the chosen topic; ``seen`` collects what is there."""
    first = 0
    schema = pa.schema([RECORDS.field(name) for name in columns])
    with parser_errors(file.path, file.form):
        for batch in _raw(file, columns):
            place = FilePlace(file.path, first)
            first += batch.num_rows
            batch.validate(full=True)  # texts of a file may be no UTF-8
            batch = _renamed(batch, file.written)
            if seen is not None:
                seen.partition_known &= "partition" in batch.schema.names
            chosen = [_column(batch, name, place, file.written) for name in columns]
            found = pa.RecordBatch.from_arrays(chosen, schema=schema)
            if "topic" in batch.schema.names:
                if file.topic is not None:
                    found = found.filter(pc.equal(batch.column("topic"), file.topic))
                elif seen is not None:
                    seen.topics.update(
                        text for text in pc.unique(batch.column("topic")).to_pylist() if text is not None
                    )
            if found.num_rows:
                yield found


@contextlib.contextmanager
def parser_errors(path: str, form: str) -> Iterator[None]:
    """Convert an error of a parser inside the block with `unreadable`.

    Parsers of Arrow and Parquet raise OSError, too, but without the number that an error of the system has.
    """
    try:
        yield
    except StateStoreError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(path, form, error) from error
    except OSError as error:
        if error.errno is not None:
            raise storage_error(error, "read", path) from error
        raise unreadable(path, form, error) from error


def unreadable(path: str, form: str, error: Exception) -> CorruptError:
    """The error for a file whose bytes a parser does not accept."""
    return CorruptError(
        ErrorCode.FILE_DAMAGED,
        f"file {path}: cannot be read as {form}: {str(error)[:300]}; restore it from a copy",
    )


def _renamed(batch: pa.RecordBatch, form: RecordForm) -> pa.RecordBatch:
    """The columns that are named, under the names of RECORDS."""
    if all(name == column for name, column in form.columns.items()):
        return batch
    names = {column: name for name, column in form.columns.items() if column in batch.schema.names}
    return pa.RecordBatch.from_arrays([batch.column(column) for column in names], names=list(names.values()))


def _column(batch: pa.RecordBatch, name: str, place: FilePlace, form: RecordForm) -> pa.Array:
    if name in batch.schema.names:
        column = batch.column(name)
        if name in ("key", "value"):
            return bytes_of(column, name, place, form.encoding_of(name))
        if name == "headers" and form.is_export and pa.types.is_struct(column.type):
            return pa.nulls(len(column), RECORDS.field(name).type)  # by name: their order and repetitions are unknown
        if name == "headers":
            found = headers_of(column, place, form.encoding)
            return pc.if_else(found.is_valid(), found, pa.scalar([], HEADERS)) if form.no_headers else found
        if name == "timestamp" and form.is_export:
            column = times_of(column, place)
            column = column.fill_null(UNKNOWN_TIME) if pa.types.is_integer(column.type) else column
        return integers_of(column, name, place, RECORDS.field(name).type)
    if name == "partition":
        return pa.array(np.zeros(batch.num_rows, np.int32))
    if name == "timestamp":
        return pa.repeat(pa.scalar(UNKNOWN_TIME), batch.num_rows)
    return pa.nulls(batch.num_rows, RECORDS.field(name).type)


def _raw(file: RecordFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield batches as they are in the file, of Parquet only the columns that are needed."""
    with opened(file.path, over_lines=file.written.over_lines, in_array=file.written.in_array) as stream:
        if file.form == "parquet":
            import pyarrow.parquet as pq

            found = pq.ParquetFile(stream, page_checksum_verification=True)
            names = found.schema_arrow.names
            _require(names, file)
            yield from found.iter_batches(_BATCH_ROWS, columns=_wanted(file.written, names, columns))
            return
        for batch in _batches(stream, file):
            _require(batch.schema.names, file)
            yield batch


def _batches(stream: Any, file: RecordFile) -> Iterator[pa.RecordBatch]:
    if file.written.layout == "saved messages":
        return message_batches(stream, file.path)
    if file.written.layout == "log dump":
        return dump_batches(stream, file.path)
    if file.form == "json":
        return json_batches(stream, file.path, file.written)
    if file.form == "csv":
        return csv_batches(stream, file.written, file.path)
    return line_batches(stream, file.written, file.path) if file.form == "lines" else _arrow(stream)


def _wanted(form: RecordForm, names: list[str], columns: tuple[str, ...]) -> list[str]:
    wanted = {form.columns[name] for name in (*columns, "topic")}
    return [name for name in names if name in wanted]


def _require(names: list[str], file: RecordFile) -> None:
    form = file.written
    required = ("key", "value") if form.is_export else ("key", "value", "timestamp")
    for name in (form.columns[each] for each in dict.fromkeys((*required, *form.named))):
        if name not in names:
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {file.path}: found columns {', '.join(names)}, expected a column {name}; name columns that are "
                "called otherwise with option recordColumns, such as value=payload,timestamp=ts",
            )


def _arrow(stream: Any) -> Iterator[pa.RecordBatch]:
    """Both forms of Arrow's files are recognised by their first bytes."""
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    source = pa.PythonFile(_Bounded(stream), "r")
    if is_file:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from pa.ipc.open_stream(source)


class _Bounded:
    """A file that is never asked for more bytes than are left, because the lengths in a damaged one may be any."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self.seek, self.tell = stream.seek, stream.tell

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self.tell())
        found: bytes = self._stream.read(left if size < 0 else min(size, left))
        return found
