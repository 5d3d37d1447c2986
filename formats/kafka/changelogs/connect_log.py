"""Records of the files that Kafka Connect's sinks write for a topic: JSON, Avro or Parquet (``connect_names``).

Values are in a file, keys in one beside it where the sink was told to store them, row by row. Else a field of the value
can be named as the key, which is refused otherwise: without keys there is no state.

A name has the offset of the first record. A sink that leaves no record out writes consecutive offsets, so those of a
file are known where the next file begins right behind it; else only the first one is. Files of a partition that lie in
one folder follow one another. Those of several folders may have been written side by side, so their order is known only
without gaps. A file of keys without values holds tombstones, which sinks write apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, shown
from statestore.formats.kafka.changelogs.avro_container import avro_arrays, avro_rows
from statestore.formats.kafka.changelogs.connect_names import ConnectFile, connect_file
from statestore.formats.kafka.changelogs.connect_values import JsonCells, lines
from statestore.formats.kafka.changelogs.export_forms import RecordOptions, encoding_of, named_columns
from statestore.formats.kafka.changelogs.export_streams import opened
from statestore.formats.kafka.changelogs.file_batches import parser_errors
from statestore.formats.kafka.changelogs.file_columns import FilePlace, TextEncoding, bytes_of, integers_of
from statestore.formats.kafka.changelogs.record_log import LogFindings
from statestore.formats.kafka.changelogs.records import UNKNOWN_OFFSET, UNKNOWN_TIME, ListedHeaders, Records

_BATCH_ROWS = 1 << 16
_FIELDS = ("key", "value", "timestamp")
_Lot = dict[str, pa.Array]


@dataclass(frozen=True)
class _Fields:
    """Fields of the value that a user has named, by the column of RECORDS; the encodings are those of texts."""

    names: dict[str, str]
    encoding: TextEncoding
    key_encoding: TextEncoding

    def encoding_of(self, column: str) -> TextEncoding:
        return self.key_encoding if column == "key" else self.encoding


@dataclass(frozen=True)
class _Piece:
    """The files of the same records; ``value`` is None for tombstones."""

    offset: int
    rows: int
    value: ConnectFile | None
    key: ConnectFile | None
    consecutive: bool = False

    @property
    def path(self) -> str:
        found = self.value or self.key
        return "" if found is None else found.path


@dataclass(frozen=True)
class ConnectLog:
    """The records of one partition in a sink's files; a `RecordLog`."""

    findings: LogFindings
    pieces: tuple[_Piece, ...]
    fields: _Fields

    @property
    def partition(self) -> int:
        return self.findings.partition

    def read(self) -> Iterator[Records]:
        """Yield all records, file by file. Raises CorruptError FILE_DAMAGED, InvalidInputError KAFKA_RECORDS."""
        cells, seen = JsonCells(), 0
        all_known = self.findings.missing_offsets is not None
        try:
            for piece in self.pieces:
                row = 0
                for lot in _lots(piece, self.fields, cells):
                    count = len(lot["key"])
                    offset = np.arange(piece.offset + row, piece.offset + row + count)
                    if not piece.consecutive:
                        offset[int(row == 0) :] = UNKNOWN_OFFSET
                    missing = offset - np.arange(seen, seen + count) if all_known else None
                    row, seen = row + count, seen + count
                    yield Records(
                        self.partition,
                        offset,
                        lot["timestamp"].to_numpy(),
                        missing,
                        cells_of(lot["key"]),
                        cells_of(lot["value"]),
                        ListedHeaders(count, None),
                    )
        finally:
            cells.close()


def connect_logs(paths: Sequence[str], options: RecordOptions) -> Sequence[ConnectLog]:
    """The logs of a topic in its files, which are counted here and read later.

    Raises InvalidInputError INVALID_OPTION, KAFKA_RECORDS for files without keys or in an unknown order, CorruptError.
    """
    fields = _fields(options)
    files = [file for path in paths if (file := connect_file(path)) is not None]
    found = []
    for partition in sorted({file.partition for file in files}):
        mine = [file for file in files if file.partition == partition]
        pieces = _ordered(_pieces(mine, fields))
        if pieces:
            has_headers = any(file.part == "headers" for file in mine)
            found.append(ConnectLog(_findings(partition, pieces, fields, has_headers), pieces, fields))
    return found


def _fields(options: RecordOptions) -> _Fields:
    names = {} if options.columns is None else named_columns(options.columns)
    wrong = [name for name, column in names.items() if name not in _FIELDS or '"' in column]
    if wrong:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"option recordColumns is {shown(options.columns)}; expected fields of the value as {', '.join(_FIELDS)}, "
            "because files of Kafka Connect have partitions and offsets in their names",
        )
    return _Fields(names, encoding_of(options, None) or "utf-8", encoding_of(options, None, "key") or "utf-8")


def _pieces(files: Sequence[ConnectFile], fields: _Fields) -> list[_Piece]:
    values = {file.stem: file for file in files if not file.part}
    keys = {file.stem: file for file in files if file.part == "keys"}
    for found, part in ((values, ""), (keys, "keys")):
        twice = next((file for file in files if file.part == part and found[file.stem] is not file), None)
        if twice is not None:
            raise _not_in_order(twice.path, found[twice.stem].path, "which begin at the same offset")
    pieces = []
    for stem in sorted({*values, *keys}):
        value, key = values.get(stem), keys.get(stem)
        if key is None and "key" not in fields.names:
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {stem}: found values without a file of keys beside them, and only keys say what a record "
                "replaces; name a field of the value with option recordColumns, such as key=id, or let the sink store "
                "keys (store.kafka.keys=true)",
            )
        if value is None and "key" in fields.names:
            key = keys[stem]
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS,
                f"file {key.path}: found keys without values, so a field of the value is not there; leave out key "
                "from option recordColumns",
            )
        key = None if "key" in fields.names else key
        used = [each for each in (value, key) if each is not None]
        counts = [_rows(each) for each in used]
        if len(set(counts)) > 1:
            raise CorruptError(
                ErrorCode.FILE_DAMAGED,
                f"file {used[1].path}: found {counts[1]} keys, expected {counts[0]}, one for each value; restore both",
            )
        pieces.append(_Piece(used[0].offset, counts[0], value, key))
    return sorted(pieces, key=lambda piece: (piece.offset, piece.path))


def _ordered(pieces: Sequence[_Piece]) -> tuple[_Piece, ...]:
    """The pieces with rows, in their order. Raises InvalidInputError KAFKA_RECORDS where that is unknown."""
    there = [piece for piece in pieces if piece.rows]
    found = []
    for piece, following in pairwise(there):
        end = piece.offset + piece.rows
        if end > following.offset:
            raise _not_in_order(piece.path, following.path, "whose offsets overlap")
        if end < following.offset and Path(piece.path).parent != Path(following.path).parent:
            raise _not_in_order(piece.path, following.path, f"in two folders, with offsets missing from {end} on")
        consecutive = end == following.offset or piece.rows == 1
        found.append(_Piece(piece.offset, piece.rows, piece.value, piece.key, consecutive))
    if there:
        last = there[-1]
        found.append(_Piece(last.offset, last.rows, last.value, last.key, last.rows == 1))
    return tuple(found)


def _not_in_order(path: str, other: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.KAFKA_RECORDS,
        f"file {path}: found another file, {other}, {why}: which of their records came first is unknown; leave out "
        "files that were written twice, or export the topic with the default partitioner",
    )


def _findings(partition: int, pieces: Sequence[_Piece], fields: _Fields, has_headers: bool) -> LogFindings:
    records = sum(piece.rows for piece in pieces)
    unknown = sum(piece.rows - 1 for piece in pieces if not piece.consecutive)
    remarks = []
    if unknown:
        remarks.append(
            f"partition {partition}: the offsets of {unknown} of {records} records are unknown: the name of a file has "
            "that of its first record, and the next file does not begin right behind it"
        )
    if has_headers:
        remarks.append(f"partition {partition}: headers lie in files of their own, which are not read")
    return LogFindings(
        partition,
        pieces[0].offset,
        pieces[-1].offset + 1,
        records,
        None if unknown else pieces[-1].offset + 1 - records,
        markers_known=False,
        times_known="timestamp" in fields.names,
        offsets_partly_known=bool(unknown),
        remarks=tuple(remarks),
    )


# Reading


def _rows(file: ConnectFile) -> int:
    """The number of records in a file, by its frame alone."""
    if file.form == "bin":
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {file.path}: found bytes of records with a separator between them that the records may hold, too; "
            "expected JSON, Avro or Parquet: let the sink write one of these (format.class)",
        )
    with parser_errors(file.path, file.form), opened(file.path) as stream:
        if file.form == "avro":
            return avro_rows(stream, file.path)
        if file.form == "parquet":
            import pyarrow.parquet as pq

            return int(pq.ParquetFile(stream).metadata.num_rows)
        return sum(map(len, lines(stream, file.path)))


def _lots(piece: _Piece, fields: _Fields, cells: JsonCells) -> Iterator[_Lot]:
    """Yield columns key, value and timestamp of the records."""
    if piece.value is None:
        for key in _keys(piece, cells, fields):
            gone = pa.nulls(len(key), pa.binary())
            yield {"key": key, "value": gone, "timestamp": _no_times(len(key))}
        return
    keys = None if piece.key is None else _keys(piece, cells, fields)
    held = pa.array([], pa.binary())
    for lot in _values(piece.value, fields, cells):
        count = len(lot["value"])
        if keys is not None:
            while len(held) < count and (more := next(keys, None)) is not None:
                held = pa.concat_arrays([held, more])
            lot["key"], held = held.slice(0, count), held.slice(count)
        if len(lot["key"]) != count:
            raise CorruptError(
                ErrorCode.FILE_DAMAGED, f"file {piece.path}: changed while it was read; read it again when it is whole"
            )
        yield lot


def _keys(piece: _Piece, cells: JsonCells, fields: _Fields) -> Iterator[pa.Array]:
    if piece.key is not None:
        for lot in _values(piece.key, replace(fields, names={}), cells, "key"):
            yield lot["key"]


def _values(file: ConnectFile, fields: _Fields, cells: JsonCells, part: str = "value") -> Iterator[_Lot]:
    """Yield what ``part`` names of the rows of a file, and the fields that are named."""
    first = 0
    with parser_errors(file.path, file.form), opened(file.path) as stream:
        for rows in _raw(stream, file):
            place = FilePlace(file.path, first)
            first += len(rows)
            lot = {
                name: _cells(rows, fields.names.get(name), name, place, fields.encoding_of(name), file.form, cells)
                for name in dict.fromkeys((part, *fields.names))
                if name != "timestamp"
            }
            if part == "value":
                lot["timestamp"] = _times(rows, fields.names.get("timestamp"), place, file.form, cells)
            yield lot


def _raw(stream: Any, file: ConnectFile) -> Iterator[pa.Array]:
    """Yield lines of JSON, or records as structs or whatever the schema says."""
    if file.form == "json":
        yield from lines(stream, file.path)
    elif file.form == "avro":
        yield from avro_arrays(stream, file.path)
    else:
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(stream, page_checksum_verification=True).iter_batches(_BATCH_ROWS):
            batch.validate(full=True)  # texts of a file may be no UTF-8
            yield pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))


def _cells(
    rows: pa.Array,
    field: str | None,
    name: str,
    place: FilePlace,
    encoding: TextEncoding,
    form: str,
    cells: JsonCells,
) -> pa.Array:
    if form == "json":
        return bytes_of(cells.of_lines(rows, field, place), name, place, encoding)
    return cells.of_column(rows if field is None else _field(rows, field, place), name, place, encoding)


def _field(rows: pa.Array, field: str, place: FilePlace) -> pa.Array:
    names = [each.name for each in rows.type] if pa.types.is_struct(rows.type) else []
    if names.count(field) != 1:
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {place}: found fields {', '.join(names) or f'none, but {rows.type}'}, expected a field {field}, "
            "which option recordColumns names",
        )
    return pc.struct_field(rows, field)


def _times(rows: pa.Array, field: str | None, place: FilePlace, form: str, cells: JsonCells) -> pa.Array:
    if field is None:
        return _no_times(len(rows))
    if form != "json":
        found = _field(rows, field, place)
        return integers_of(found, "timestamp", place, pa.int64())
    text = cells.of_lines(rows, field, place)
    fits = pc.match_substring_regex(text, "^-?[0-9]{1,18}$").fill_null(False)
    if not pc.all(fits).as_py():
        row = pc.index(fits, False).as_py()
        raise InvalidInputError(
            ErrorCode.KAFKA_RECORDS,
            f"file {place.row(row)}: found {shown(text[row].as_py(), 80)} as timestamp, expected epoch milliseconds",
        )
    return text.cast(pa.int64())


def _no_times(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(UNKNOWN_TIME, pa.int64()), count)
