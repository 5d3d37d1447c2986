"""The rows that a read returns: read lazily and in batches, as often as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from statestore.catalog.reads.shown import html_page, html_table, printable, shown_columns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, UnsupportedError
from statestore.formats.places.interrupts import held_back, raise_in_callers_of_duckdb
from statestore.formats.replaced_versions import again, pieces_again

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

Batches = Iterator[pa.RecordBatch]
Pieces = Iterator[Batches]

SHOWN_ROWS = 20
SHOWN_PIECES = 8  # of a read, after which a page shows what was found so far
_ENDED: Batches = iter(())


class Rows:
    """The rows of one read, which is done when they are asked for, and again whenever they are asked for again.

    ``to_arrow``, ``to_pandas``, ``to_polars``, ``to_duckdb`` and loops over its record batches return all rows, from
    the version and moment that the read meant when it was called; later commits change nothing. A repeated read raises
    NotFoundError where an expiry or a vacuum has meanwhile removed what it needs; changes by state time, which belong
    to no version, can be read again until a compaction replaces their files. Whatever takes an Arrow stream (DuckDB,
    Polars, `pyarrow.dataset.write_dataset`) takes the object as it is.

    It also has the methods of a `pyarrow.RecordBatchReader`; `reader` returns a real one.
    """

    def __init__(self, title: str, schema: pa.Schema, first: Pieces | None, again: Callable[[], Pieces]) -> None:
        self._title = title
        self._schema = schema
        self._first = first
        self._again = again
        self._anew: Callable[[], Pieces] | None = None  # plans the read again, as long as no row was handed out
        self._reading: Batches | None = None  # of `read_next_batch`
        self._shown: tuple[pa.Table, bool] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        return pa.Table.from_batches(self._all(), self._schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame; ``options`` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame. Raises UnsupportedError POLARS_NOT_INSTALLED."""
        try:
            import polars
        except ImportError:
            raise UnsupportedError(
                ErrorCode.POLARS_NOT_INSTALLED,
                "to_polars needs the package polars; type: pip install polars, or call to_arrow or to_pandas",
            ) from None
        return polars.DataFrame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of a DuckDB ``connection`` (default: DuckDB's own), which streams them at
        each query."""
        with held_back():
            import duckdb

        raise_in_callers_of_duckdb()
        return (duckdb.default_connection() if connection is None else connection).from_arrow(self)

    def reader(self) -> pa.RecordBatchReader:
        """Return a `pyarrow.RecordBatchReader` over all rows, which reads them once."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    # As a RecordBatchReader. What `read_next_batch` has begun, these methods read to its end, as a reader does.

    def __iter__(self) -> Batches:
        reading, self._reading = self._reading, None
        return self._batches() if reading is None else reading

    def __next__(self) -> pa.RecordBatch:
        return self.read_next_batch()

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch of one reading, which `read_all` and a loop read on. Raises StopIteration at its
        end."""
        if self._reading is None:
            self._reading = self._batches()
        try:
            return next(self._reading)
        except StopIteration:
            self._reading = _ENDED
            raise

    def read_all(self) -> pa.Table:
        """Return all rows as an Arrow table, or those that `read_next_batch` has left."""
        return pa.Table.from_batches(self._all() if self._reading is None else list(self), self._schema)

    def read_pandas(self, **options: Any) -> pd.DataFrame:
        """Return what `read_all` returns as a pandas DataFrame."""
        return self.read_all().to_pandas(**options)

    def close(self) -> None:
        """Give up the files that a read under way holds. Rows that are asked for later are read again."""
        self._first = self._reading = None

    def __copy__(self) -> Rows:
        return Rows(self._title, self._schema, None, self._again)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{printable(f'Rows of {self._title}')}\n{printable(shown_columns(self._schema))}"

    def _repr_html_(self) -> str:
        """Return the first rows as HTML. No more is read than these, and the parts of the read before them."""
        try:
            rows, is_all = self._head()
            shown = html_table(rows)
        except Exception as error:  # a page is shown whatever happens to its store
            return html_page(f"Rows of {self._title}", f"cannot be read: {error}")
        if not rows.num_columns:
            return html_page(f"Rows of {self._title}", "no columns")
        if not rows.num_rows:
            said = "no rows" if is_all else "no rows in the first part of the read"
        else:
            said = f"{rows.num_rows} rows" if is_all else f"the first {rows.num_rows} rows"
        return html_page(f"Rows of {self._title}", said, shown)

    def _head(self) -> tuple[pa.Table, bool]:
        """Return the first rows, and whether these are all.

        The reading stops here and gives up its files: a notebook keeps what it has shown for as long as it runs.
        """
        if self._shown is None:
            first, self._first = self._first, None  # stays so if the reading fails
            pieces = self._again() if first is None else first
            read: list[pa.RecordBatch] = []
            rest: Batches = iter(())
            count, is_all = 0, True
            for number, rest in enumerate(pieces, 1):
                while count <= SHOWN_ROWS and (batch := next(rest, None)) is not None:
                    read.append(batch)
                    count += batch.num_rows
                if count > SHOWN_ROWS or number == SHOWN_PIECES:
                    is_all = False
                    break
            rows = pa.array(range(min(count, SHOWN_ROWS)), pa.int64())
            # Taken rows are a copy, which holds no file.
            self._shown = pa.Table.from_batches(read, self._schema).take(rows), is_all
        return self._shown

    def _batches(self) -> Batches:
        """Yield all batches. Nothing is taken before the first is asked for: a reader may be made for its schema."""
        for piece in self._pieces():
            for batch in piece:
                self._anew = None
                yield batch

    def _all(self) -> list[pa.RecordBatch]:
        """Return all batches. They are read again where they go meanwhile, as nobody has any of them yet."""
        waiting = [self._pieces()]

        def read() -> list[pa.RecordBatch]:
            pieces = waiting.pop() if waiting or self._anew is None else self._anew()
            return [batch for piece in pieces for batch in piece]

        found = read() if self._anew is None else again(read)
        self._anew = None
        return found

    def _pieces(self) -> Pieces:
        first, self._first = self._first, None
        return self._again() if first is None else first


def begun_again(plan: Callable[[], Rows]) -> Rows:
    """Return the rows of a read, which is planned again where a running engine replaces the version that is read.

    So it is until the first row is handed out. From then on, they are the rows of one version, also when they are asked
    for again.
    """
    rows = again(plan)
    title, schema, repeat = rows._title, rows._schema, rows._again
    waiting = [rows._first]
    del rows  # it holds the files of the plan

    def begin() -> Pieces:
        nonlocal repeat
        found = waiting.pop() if waiting else None
        if found is not None:
            return found
        newer = plan()
        if newer._schema != schema or newer._first is None:
            raise NotFoundError(
                ErrorCode.VERSION_GONE,
                f"{title}: the version that was read is gone, and the newer one has other columns; read again",
            )
        repeat = newer._again
        return newer._first

    found = Rows(title, schema, pieces_again(begin), lambda: repeat())
    found._anew = begin
    return found
