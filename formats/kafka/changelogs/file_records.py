"""Changelog records from files, one or several: Arrow, Parquet, JSON lines, and exports of other programs.

The columns are key, value, timestamp, offset, partition and headers (see ``file_columns``), under these names or as
``export_forms`` finds them. ``key``, ``value`` and ``timestamp`` are required, in JSON by the first line; a null value
deletes. Exports of others may lack ``timestamp``. Without ``partition`` all records count as partition 0. Without
``offset`` one file is read in its own order, and its offsets are unknown; several files need offsets, because nothing
else orders them. Without ``headers`` they are unknown. With a column ``topic`` of several topics one is to be named.
Other columns are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.kafka.changelogs.console_lines import lines_form
from statestore.formats.kafka.changelogs.export_forms import (
    NO_OPTIONS,
    RecordForm,
    RecordOptions,
    encoding_of,
    form_of,
    with_key_encoding,
)
from statestore.formats.kafka.changelogs.export_streams import CODECS, array_lines, opened
from statestore.formats.kafka.changelogs.file_batches import (
    BATCH_ROWS,
    RecordFile,
    SeenColumns,
    parser_errors,
    read_file,
)
from statestore.formats.kafka.changelogs.file_columns import (
    ENCODINGS,
    TextEncoding,
    order_broken,
)
from statestore.formats.kafka.changelogs.log_dumps import is_dump
from statestore.formats.kafka.changelogs.record_log import LogFindings
from statestore.formats.kafka.changelogs.records import COLUMNS, RECORDS, ListedHeaders, Records
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors

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

_FIRST_BYTES = 1 << 20
_TEXTS = ("json", "csv", "lines")
_REPLACEMENT = "\ufffd"
_WIDE = (b"\xff\xfe", b"\xfe\xff")


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
        for begin in range(0, len(order), BATCH_ROWS):
            yield whole.take(order.slice(begin, BATCH_ROWS)).combine_chunks().to_batches()[0]


def held(logs: Sequence[FileLog]) -> tuple[FileLog, ...]:
    """The logs of files that are asked again and again: with their records in memory, which are read once for all."""
    if not logs:
        return ()
    batches = tuple(_whole(logs[0].files))
    return tuple(replace(log, held=batches) for log in logs)


def _whole(files: Sequence[RecordFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from read_file(file, COLUMNS)


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


class _Survey:
    """The first reading: which partitions there are, and whether their offsets rise."""

    def __init__(self, several: bool) -> None:
        self._several = several
        self.offsets: dict[int, list[Ints]] = {}
        self._has_offsets = True
        self._faults: dict[int, _TextFaults] = {}
        self._seen = SeenColumns()

    def file(self, file: RecordFile) -> None:
        columns = COLUMNS if file.written.is_export else ("partition", "offset")
        for batch in read_file(file, columns, self._seen):
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
