"""Answers of statements, kept in files from which pages and points of a chart are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.spools import Spool
from statestore.connector.sql.first_rows import error_of_duckdb
from statestore.connector.sql.limited_statement import run_limited
from statestore.connector.terminal.output import unique_names
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.notices import notices_to

KEPT = 4
MAX_ROWS = 1_000_000
MAX_BYTES = 1 << 30
BATCH_ROWS = 2_048  # as many as a vector of DuckDB has, because rows may be wide
SECONDS_BETWEEN = 0.05
Key = tuple[int, str, str]
"""A place, a statement, and what distinguishes one run of it from others."""


@dataclass(frozen=True)
class Answer:
    """The rows of one statement, of which the file has the first ones if it ``is_cut``."""

    spool: Spool
    schema: pa.Schema
    is_cut: bool
    seconds: float


@dataclass
class _Written:
    """Writes the rows of a relation into a file, up to MAX_ROWS rows or MAX_BYTES bytes."""

    path: Path
    limits: Limits
    schema: pa.Schema | None = None
    sizes: list[int] = field(default_factory=list)
    is_cut: bool = False

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        reader = relation.to_arrow_reader(BATCH_ROWS)
        names = unique_names(reader.schema.names)
        self.schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
        with pa.OSFile(str(self.path), "wb") as file, pa.ipc.new_file(file, self.schema) as writer:
            rows = written = 0
            for batch in self.limits.watched(_read(reader)):
                room = 0 if written > MAX_BYTES else MAX_ROWS - rows
                if room:
                    kept = batch.slice(0, room)
                    writer.write_batch(pa.RecordBatch.from_arrays(kept.columns, schema=self.schema))
                    self.sizes.append(kept.num_rows)
                    rows, written = rows + kept.num_rows, written + kept.nbytes
                if room < batch.num_rows:
                    self.is_cut = True
                    break
        return pa.table({})


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows. Raises duckdb.Error."""
    try:
        yield from (batch for batch in reader if batch.num_rows)
    except (OSError, pa.ArrowException) as error:
        raise error_of_duckdb(str(error)) from error


@dataclass
class Answers:
    """The newest KEPT answers, in a folder that is removed by whoever made it. One statement runs at a time, so that
    the memory for one is the memory for all."""

    folder: Path
    _kept: dict[Key, Answer] = field(default_factory=dict)
    _kept_lock: threading.Lock = field(default_factory=threading.Lock)
    _running: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def of(self, key: Key, warehouse: Warehouse, limits: Limits) -> Answer:
        """Return the answer to the statement of a key, which runs when no such answer is kept."""
        found = self._known(key)
        while found is None and not self._running.acquire(timeout=SECONDS_BETWEEN):
            if limits.gone.is_set():
                limits.check()
        if found is None:
            try:
                found = self._known(key)  # another request may have asked for the same meanwhile
                if found is None:
                    self._number += 1
                    found = _answer(self.folder / f"sql{self._number}.arrow", key[1], warehouse, limits)
                    self._keep(key, found)
            finally:
                self._running.release()
        limits.heard(found.spool.notices)
        return found

    def has(self, key: Key) -> bool:
        """Return whether the answer of a key is kept."""
        with self._kept_lock:
            return key in self._kept

    def _known(self, key: Key) -> Answer | None:
        with self._kept_lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept[key] = found
            return found

    def _keep(self, key: Key, answer: Answer) -> None:
        with self._kept_lock:
            self._kept[key] = answer
            for old in list(self._kept)[:-KEPT]:
                self._kept.pop(old).spool.path.unlink(missing_ok=True)


def _answer(path: Path, text: str, warehouse: Warehouse, limits: Limits) -> Answer:
    own = Limits(limits.seconds, limits.gone)  # the time in which others ran does not count
    rows = _Written(path, own)
    notices: list[str] = []
    try:
        # DuckDB plans scans in threads of its own. All other questions have a block, so these take nobody else's.
        with notices_to(notices.append), notices_to(notices.append, all_threads=True):
            run_limited(warehouse, text, rows, own)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if rows.schema is None:
        raise InvalidInputError(ErrorCode.INVALID_SQL, "the statement has no rows; expected one that reads")
    starts = np.cumsum(np.array([0, *rows.sizes], np.int64))
    spool = Spool(path, starts[:-1], int(starts[-1]), notices=list(dict.fromkeys(notices)))
    return Answer(spool, rows.schema, rows.is_cut, time.monotonic() - own.begun)
