"""The first rows of an answer. The others are counted as they pass and not kept, because there may be any number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa

BATCH_ROWS = 1 << 16
_FATAL = ("FATAL Error", "INTERNAL Error")
_FAILED = ("Out of Memory Error", "IO Error")


class TakesRows(Protocol):
    """Takes the rows of an answer as they come."""

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return those rows of a relation that the caller wants as a table. Raises duckdb.Error."""


@dataclass
class FirstRows:
    """At most ``most`` rows of an answer; ``total`` is the number of all, once they have passed."""

    most: int
    total: int = 0

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return the first rows of a relation. Raises duckdb.Error, also for errors of later rows."""
        kept: list[pa.RecordBatch] = []
        self.total = 0
        try:
            reader = relation.to_arrow_reader(BATCH_ROWS)
            for batch in reader:
                if self.total < self.most:
                    kept.append(batch.slice(0, self.most - self.total))
                self.total += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise error_of_duckdb(str(error)) from error
        return pa.Table.from_batches(kept, schema=reader.schema)


def error_of_duckdb(said: str) -> duckdb.Error:
    """DuckDB's error by its text, because the reader passes it on as one of Arrow."""
    if said.startswith("INTERRUPT Error"):
        return duckdb.InterruptException(said)
    if said.startswith(_FATAL):
        return duckdb.FatalException(said)
    return duckdb.OperationalError(said) if said.startswith(_FAILED) else duckdb.InvalidInputException(said)
