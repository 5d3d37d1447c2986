"""A reading as an Arrow dataset, which every release of DuckDB scans.

DuckDB asks the dataset for a scanner with the columns and filters of each query. Dead rows are cut out before DuckDB
sees a batch. Filters on key columns are pushed, because tables find keys by index. On all other columns DuckDB filters
finished batches several times faster than Arrow would. Those columns are declared as an extension type: DuckDB reads it
as the type it wraps and pushes no comparison into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from statestore.connector.duckdb.pushed_filter import read_pushed
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.formats.errors import StateStoreError


class ReadingDataset(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset that DuckDB scans with the columns and filters of each query."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(_declared(reading).empty_table())
        self._reading = reading

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object) -> _Scan:
        try:
            return _Scan(_scan(self._reading, columns, filter))
        except StateStoreError as error:
            self._reading.error = error
            raise


def _declared(reading: Reading) -> pa.Schema:
    """The schema declared to DuckDB; batches have the plain types."""
    pushed = {PIN_COLUMN, *(reading.source_name(name) for name in reading.table.key_columns)}
    return pa.schema([f if f.name in pushed else f.with_type(_Unpushed(f.type)) for f in reading.source_schema()])


def _scan(reading: Reading, columns: Sequence[str] | None, expression: pc.Expression | None) -> pa.RecordBatchReader:
    """A lazy reader. The scan is planned at once, so that most errors are raised before the first batch."""
    schema = reading.source_schema()
    pushed = read_pushed(expression, schema, PIN_COLUMN)
    asked = schema.names if columns is None else list(columns)
    if pushed.complete:
        return reading.scan(pushed.pin, pushed.filters, asked, False)
    needed = list(dict.fromkeys([*asked, *pushed.columns]))
    reader = reading.scan(pushed.pin, pushed.filters, needed, False)
    return ds.Scanner.from_batches(reader, columns=asked, filter=expression).to_reader()


@dataclass(frozen=True)
class _Scan:
    """The two members of a pyarrow Scanner that DuckDB uses."""

    reader: pa.RecordBatchReader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


class _Unpushed(pa.ExtensionType):  # type: ignore[misc]
    """Another name for a type, which makes DuckDB evaluate comparisons itself."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "statestore.unpushed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Unpushed:
        return cls(storage)
