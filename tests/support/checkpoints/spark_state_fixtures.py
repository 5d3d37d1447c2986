"""Real checkpoints of Spark 4.0.1 and 4.3.0, with what Spark's own ``statestore`` source read from them.

``data/spark/checkpoints.tar.xz`` holds ``checkpoints/<name>/``, ``truth/*.parquet`` and ``index.json``: per checkpoint
the reads, each with its options, and either the file and schema of the answer or the class of the error. Of the same
form is ``more_checkpoints.tar.xz`` (``MORE``), of more versions, without schemas and errors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_checkpoint
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view
from statestore.formats.spark.feed_source import read_changes
from statestore.formats.spark.state_rows import read_state
from support import archives
from support.paths import DATA

ARCHIVE = DATA / "spark" / "checkpoints.tar.xz"
MORE = ARCHIVE.with_name("more_checkpoints.tar.xz")
TYPES = ARCHIVE.with_name("types.tar.xz")
LOCAL = pafs.LocalFileSystem()


@cache
def unpacked(archive: Path = ARCHIVE) -> Path:
    """The folder of the archive. Tests only read it."""
    return archives.unpacked(archive)


@cache
def index(archive: Path = ARCHIVE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((unpacked(archive) / "index.json").read_bytes())
    return found


QUICK = (
    "spark4.0.1-agg__rk2",
    "spark4.3.0-agg__hdfs",
    "spark4.3.0-agg__rkcl",
    "spark4.3.0-aggmulti__rkcl",
    "spark4.3.0-join__hdfs",
    "spark4.3.0-join__rkj4",
    "spark4.3.0-sess__rkcl",
    "spark4.3.0-twsttl__rkav",
    "spark4.3.0-win__rkcl",
)
"""Checkpoints that long tests read in every run: the layouts of state, both providers, the oldest version."""


def checkpoint_path(name: str, archive: Path = ARCHIVE) -> Path:
    return unpacked(archive) / "checkpoints" / name


def place_without_hash(checkpoint: Path) -> None:
    """Make a checkpoint one of a query that began before Spark 3.3: rows need not be placed by their hash."""
    strict = '"spark.sql.streaming.statefulOperator.useStrictDistribution":"true"'
    for each in (checkpoint / "offsets").iterdir():
        if each.name.isdigit():
            text = each.read_text()
            assert strict in text
            each.write_text(text.replace(strict, strict.replace("true", "false")))
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)


def types_checkpoint() -> str:
    """The checkpoint of all types."""
    return str(unpacked(TYPES) / "checkpoint")


@cache
def truth_of_types() -> dict[str, Any]:
    """The types by name, the schema, and the rows as text, as Spark's own source reports them."""
    found: dict[str, Any] = json.loads((unpacked(TYPES) / "truth.json").read_bytes())
    return found


def opened(name: str, batch_id: int | None = None) -> Checkpoint:
    return open_checkpoint(LOCAL, str(checkpoint_path(name)), batch_id)


def truth(read: dict[str, Any], archive: Path = ARCHIVE) -> pa.Table:
    return pq.read_table(unpacked(archive) / read["file"])


def view_of(checkpoint: Checkpoint, options: dict[str, Any]) -> StateView:
    """The state view that options of Spark's source select."""
    timers = "timers" if options.get("readRegisteredTimers") else None
    name = options.get("storeName") or options.get("joinSide") or options.get("stateVarName") or timers
    return find_state_view(
        checkpoint, options["operatorId"], name, flat=options.get("flattenCollectionTypes") != "false"
    )


def answer(name: str, options: dict[str, Any]) -> pa.Table:
    """The rows that this package reads for options of Spark's source."""
    checkpoint = opened(name, options.get("batchId"))
    found = view_of(checkpoint, options)
    if "readChangeFeed" in options:
        first, last = options["changeStartBatchId"], options["changeEndBatchId"]
        batches = [b for p in found.store.partitions for b in read_changes(checkpoint, found, p, first, last)]
    else:
        batches = [batch for part in found.store.partitions for batch in read_state(checkpoint, found, part)]
    return pa.Table.from_batches(batches) if batches else found.schema.empty_table()


def multiset(table: pa.Table, *, last_key_field: bool = True) -> Counter[Any]:
    """The rows by position, without names; ``last_key_field`` false leaves out what Spark reads wrongly there."""
    columns: list[list[Any]] = [[] for _ in table.column_names]
    for batch in table.to_batches():
        for values, column in zip(columns, batch.columns, strict=True):
            values += plain(column)
    if not last_key_field:
        columns[0] = [key[:-1] for key in columns[0]]
    return Counter(zip(*columns, strict=True))


def plain(column: pa.Array) -> list[Any]:
    """Hashable values: structs and lists as tuples, maps as sorted pairs, times and durations as microseconds."""
    kind = column.type
    if kind == pa.month_day_nano_interval():
        return [None if value is None else interval_text(value) for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        fields = [plain(column.field(number)) for number in range(kind.num_fields)]
        rows: Iterable[Any] = zip(*fields, strict=True) if fields else [()] * len(column)
        return _masked(list(rows), column)
    if pa.types.is_map(kind):
        pairs = list(zip(plain(column.keys), plain(column.items), strict=True))
        return _masked([tuple(sorted(part, key=repr)) for part in _parts(pairs, column)], column)
    if pa.types.is_list(kind):
        return _masked([tuple(part) for part in _parts(plain(column.values), column)], column)
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    return ["nan" if value != value else value for value in column.to_pylist()]


def interval_text(value: Any) -> str:
    """A calendar interval as Spark's cast to string has it."""
    years, months = divmod(value.months, 12)
    minutes, seconds = divmod(value.nanoseconds / 1e9, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = {"years": years, "months": months, "days": value.days, "hours": hours, "minutes": minutes}
    return " ".join(f"{part:g} {name}" for name, part in {**parts, "seconds": seconds}.items() if part)


def _parts(values: list[Any], column: pa.Array) -> list[list[Any]]:
    offsets = column.offsets.to_pylist()
    return [values[begin:end] for begin, end in pairwise(offsets)]


def _masked(rows: list[Any], column: pa.Array) -> list[Any]:
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
