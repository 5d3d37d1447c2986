"""Records as CSV with the names of its columns in the first line, as consoles for Kafka export them.

CSV has no null of its own: an empty key or value is refused unless the user says which text stands for null. A file
that ends within a field, or within a line whose last field is not quoted, may have been cut, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kafka.changelogs.export_forms import RecordForm

_BLOCK = 8 << 20


def csv_batches(stream: Any, form: RecordForm, path: str) -> Iterator[pa.RecordBatch]:
    """Yield batches with the named columns of the file.

    Raises ArrowInvalid, InvalidInputError KAFKA_RECORDS, CorruptError FILE_DAMAGED.
    """
    import pyarrow.csv as pv

    if not stream.read(1):
        return
    stream.seek(0)
    _check_end(stream, path)
    names = form.columns
    types = {names["key"]: pa.string(), names["value"]: pa.string()}
    types |= {names[name]: pa.int64() for name in ("offset", "partition")}
    types |= {names[name]: pa.string() for name in ("timestamp", "topic")}
    null = [] if form.null is None else [form.null.decode()]
    reader = pv.open_csv(
        pa.PythonFile(stream, "r"),
        pv.ReadOptions(block_size=_BLOCK),
        pv.ParseOptions(delimiter=form.separator.decode(), newlines_in_values=True),
        pv.ConvertOptions(column_types=types, null_values=null, strings_can_be_null=bool(null)),
    )
    row = 0
    for batch in reader:
        twice = next((name for name in types if batch.schema.names.count(name) > 1), None)
        if twice is not None:
            raise InvalidInputError(
                ErrorCode.KAFKA_RECORDS, f"file {path}: found two columns {twice}, expected one; rename the other one"
            )
        for name in (names["key"], names["value"]):
            at = -1 if name not in batch.schema.names else pc.index(batch.column(name), "").as_py()
            if at >= 0 and not form.null_given:
                raise InvalidInputError(
                    ErrorCode.KAFKA_RECORDS,
                    f"file {path}, row {row + at}: found an empty {name}, which may be null or an empty text; say "
                    "which text stands for null with option recordNull ('' for an empty one)",
                )
        row += batch.num_rows
        yield batch.select([name for name in batch.schema.names if name in types])


def _check_end(stream: Any, path: str) -> None:
    """Raise CorruptError FILE_DAMAGED where the end may be missing."""
    quotes, last = 0, b"\n"
    while part := stream.read(_BLOCK):
        quotes, last = quotes + part.count(b'"'), part[-1:]
    stream.seek(0)
    if quotes % 2:
        found = "it ends within a text in quotes, or its texts hold quotes that are not doubled; export it again"
    elif last not in b'\r\n"':
        found = (
            "it ends within a line, so the end of that record may be missing; if it is whole, add a line break "
            f"(echo >> {path}), else export it again"
        )
    else:
        return
    raise CorruptError(ErrorCode.FILE_DAMAGED, f"file {path}: cannot be read as csv: {found}")
