"""A `StateTable` as a DuckDB view, which is read only when a query needs it and only as far as it needs it.

A view is one Arrow dataset, because DuckDB takes 0.7 ms to bind each dataset; removing dead rows here costs less. All
scans of one query must read one version, although DuckDB opens them at different moments. Therefore the dataset has a
column ``__pin`` that the view compares with ``txid_current()``. DuckDB folds the call to a constant and pushes it into
the scan, where the value identifies the transaction. All scans of one transaction read one version; the next
transaction reads the newest commit.

Filters on key columns are pushed as well, because tables find keys by index. On all other columns DuckDB filters
finished batches several times faster than Arrow would. Those columns are declared as an extension type: DuckDB reads it
as the type it wraps and pushes no comparison into it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from statestore.connector.duckdb.pushed_filter import read_pushed
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.state_table import Query, Split, StateTable
from statestore.formats.values.filters import Filter

PIN_COLUMN = "__pin"
KEPT_PINS = 4096  # transactions whose plans are kept; an older one that reads again is refused


def create_view(connection: duckdb.DuckDBPyConnection, name: str, table: StateTable, query: Query) -> Reading:
    """Create the view ``name`` over the result of ``query``; only the schema is read now.

    The returned `Reading` holds the last error that a scan raised, which DuckDB would only pass on as text.
    """
    reading = Reading(table, query)
    columns = ", ".join(
        f"{quoted(source)} AS {quoted(shown)}"
        for source, shown in zip(reading.source_names, reading.schema.names, strict=True)
    )
    source = connection.from_arrow(_Source(reading)).filter(f"{PIN_COLUMN} = txid_current()")
    source.project(columns).create_view(name, replace=True)
    return reading


@dataclass
class _Pin:
    """The table, the query with its version, and the plans made so far, as one transaction reads them."""

    table: StateTable
    query: Query
    filterable: bool
    plans: dict[tuple[Filter, ...], Sequence[Split]] = field(default_factory=dict)


class Reading:
    """One table with one query, as its view reads it."""

    def __init__(self, table: StateTable, query: Query) -> None:
        self.table = table
        self.query = query
        self.schema = table.schema(query)
        self.source_names = _source_names(self.schema.names)
        self.error: Exception | None = None
        self._column_of = dict(zip(self.source_names, self.schema.names, strict=True))
        self._pins: OrderedDict[int, _Pin] = OrderedDict()
        self._forgotten = -1
        self._lock = threading.Lock()

    def source_schema(self) -> pa.Schema:
        fields = [f.with_name(n) for f, n in zip(self.schema, self.source_names, strict=True)]
        return pa.schema([*fields, pa.field(PIN_COLUMN, pa.int64())])

    def declared_schema(self) -> pa.Schema:
        """The schema declared to DuckDB; batches have the plain types of ``source_schema``."""
        pushed = {PIN_COLUMN, *self.table.key_columns}
        plain = self.source_schema()
        return pa.schema(
            [f if self._column_of.get(f.name, f.name) in pushed else f.with_type(_Unpushed(f.type)) for f in plain]
        )

    def scan(self, columns: Sequence[str] | None, expression: pc.Expression | None) -> pa.RecordBatchReader:
        """A lazy reader. The scan is planned at once, so that most errors are raised before the first batch."""
        schema = self.source_schema()
        pushed = read_pushed(expression, schema, PIN_COLUMN)
        asked = schema.names if columns is None else list(columns)
        if pushed.pin is None:
            raise UnsupportedError(
                ErrorCode.FILTER_PUSHDOWN_OFF,
                f"table {self.table.name!r} cannot be read with DuckDB's filter pushdown switched off; "
                "enable the optimizer again (PRAGMA enable_optimizer, SET disabled_optimizers = '')",
            )
        filters = tuple(replace(f, column=self._column_of[f.column]) for f in pushed.filters)
        query, splits = self._plan(pushed.pin, filters)
        if pushed.complete:
            return self._reader(splits, query, asked, pushed.pin)
        needed = list(dict.fromkeys([*asked, *pushed.columns]))
        reader = self._reader(splits, query, needed, pushed.pin)
        return ds.Scanner.from_batches(reader, columns=asked, filter=expression).to_reader()

    def _plan(self, pin: int, filters: tuple[Filter, ...]) -> tuple[Query, Sequence[Split]]:
        with self._lock:
            state = self._pin(pin)
            planned = filters if state.filterable else ()
            if planned not in state.plans:
                state.plans[planned] = state.table.splits(replace(state.query, filters=planned))
            return replace(state.query, filters=filters), state.plans[planned]

    def _pin(self, pin: int) -> _Pin:
        if pin in self._pins:
            self._pins.move_to_end(pin)
            return self._pins[pin]
        if pin <= self._forgotten:
            raise UnsupportedError(
                ErrorCode.TRANSACTION_TOO_OLD,
                f"table {self.table.name!r}: more than {KEPT_PINS} transactions have read it since this one began; "
                "commit and read again",
            )
        self._pins[pin] = self._new_pin()
        if len(self._pins) > KEPT_PINS:
            oldest, _ = self._pins.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return self._pins[pin]

    def _new_pin(self) -> _Pin:
        query, table = self.query, self.table.pin()
        if query.version is None and query.mode != "changes":
            query = replace(query, version=table.kept_versions()[1])
        # Plans for different filters agree on the version only where the query states it.
        return _Pin(table, query, filterable=query.version is not None)

    def _reader(self, splits: Sequence[Split], query: Query, asked: Sequence[str], pin: int) -> pa.RecordBatchReader:
        schema = self.source_schema()
        wanted = tuple(self._column_of[name] for name in asked if name in self._column_of)
        if not wanted:  # a batch without any column would lose its number of rows
            wanted = (_cheapest(self.schema),)
        query = replace(query, columns=wanted)
        schema = pa.schema([schema.field(name) for name in asked])
        return pa.RecordBatchReader.from_batches(schema, self._batches(splits, query, schema, pin))

    def _batches(self, splits: Sequence[Split], query: Query, schema: pa.Schema, pin: int) -> Iterator[pa.RecordBatch]:
        indexes = [self._index_of(name, query) for name in schema.names]
        try:
            for split in splits:
                for batch in self.table.read(split, query):
                    yield batch if batch.schema == schema else _arranged(batch, indexes, schema, pin)
        except StateStoreError as error:
            self.error = error
            raise

    def _index_of(self, name: str, query: Query) -> int | None:
        """The position of the column in a batch that answers ``query``; None for the pin, which no batch has."""
        if name == PIN_COLUMN:
            return None
        return (query.columns or ()).index(self._column_of[name])


def _cheapest(schema: pa.Schema) -> str:
    """The column to read where only the number of rows is needed: the narrowest number, or else the first column."""
    widths = [(field.type.bit_width, field.name) for field in schema if pa.types.is_primitive(field.type)]
    return min(widths)[1] if widths else str(schema.names[0])


def _arranged(batch: pa.RecordBatch, indexes: Sequence[int | None], schema: pa.Schema, pin: int) -> pa.RecordBatch:
    columns = batch.columns
    arranged = []
    for index, field_ in zip(indexes, schema, strict=True):
        if index is None:
            arranged.append(pa.repeat(pa.scalar(pin, field_.type), batch.num_rows))
        else:
            arranged.append(columns[index])
    return pa.RecordBatch.from_arrays(arranged, schema=schema)


class _Unpushed(pa.ExtensionType):  # type: ignore[misc]
    """Another name for a type, which makes DuckDB evaluate comparisons itself."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "statestore.unpushed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Unpushed:
        return cls(storage)


class _Source(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset that DuckDB scans with the columns and filters of each query."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading.declared_schema().empty_table())
        self._reading = reading

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object) -> _Scan:
        try:
            return _Scan(self._reading.scan(columns, filter))
        except StateStoreError as error:
            self._reading.error = error
            raise


@dataclass(frozen=True)
class _Scan:
    """The two members of a pyarrow Scanner that DuckDB uses."""

    reader: pa.RecordBatchReader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


def _source_names(names: Sequence[str]) -> list[str]:
    """Column names that also differ when case is ignored, as DuckDB does: names that would collide get a number."""
    taken: set[str] = {PIN_COLUMN}
    unique = []
    for name in names:
        candidate, number = name, 1
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        unique.append(candidate)
    return unique
