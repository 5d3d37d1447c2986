"""The disk and the reads of old rows, compressed and not, beside Parquet and a plain Arrow file. Prints JSON lines.

    python benchmarks/cold_runs.py              100k keys, ten versions of each, three loads
    python benchmarks/cold_runs.py --quick      20k keys
    python benchmarks/cold_runs.py --columns    also each column by itself

The rows are those that compaction moves into closed segments, in blocks by their ends. ``bytes`` lines have the bytes
of a row. ``read`` lines have ratios of processor time to the same question asked of a plain Arrow file of the answer:
of a first read, when nothing decompressed is kept, and of later ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from statestore.catalog.upkeep.segment_output import COLD
from statestore.formats.segments.compressed_write import Compression
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.key_index import encode_index
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks
from statestore.formats.values.key_hash import hash_keys

VERSIONS = 10
COMMIT_ROWS = 100_000
SYSTEM = ["_added", "_closed", "_split"]
UNCODED = replace(COLD, level=3, coded=False)  # as releases wrote that knew no coded numbers
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """Changes in order of time: the key of each, its time in epoch microseconds and its values."""

    name: str
    key: pa.Array
    summed: str
    time: Ints
    values: pa.Table


def orders(keys: int, random: np.random.Generator) -> Load:
    """Half the changes to hot keys; text keys of 14 to 26 bytes, a price, a stock, a label and a note or none."""
    count = keys * VERSIONS
    hot = random.permutation(keys)[np.minimum(keys ** random.random(count), keys - 1).astype(np.int64)]
    chosen = np.where(random.random(count) < 0.5, hot, random.integers(0, keys, count))
    names = pa.array([f"item-{number:09d}{'-variant-abc'[: number % 13]}" for number in range(keys)])
    notes = pa.array([f"note of {number:04d} words, more or less" for number in range(20_000)])
    values = pa.table(
        {
            "price": random.integers(0, 1_000_000, count) / 100.0,
            "stock": random.integers(0, 100_000, count).astype(np.int32),
            "label": pa.array([f"l{n:04d}" for n in range(4096)]).take(pa.array(random.integers(0, 4096, count))),
            "note": notes.take(pa.array(random.integers(0, 20_000, count), mask=random.random(count) < 0.3)),
        }
    )
    return Load("orders", names.take(pa.array(chosen)), "price", _times(count, 10_000, random), values)


def flights(keys: int, random: np.random.Generator) -> Load:
    """Aircraft and where they are: short codes that repeat, delays in minutes that are often missing."""
    count = keys * VERSIONS
    tails = pa.array([f"N{number:05d}{'ABCD'[number % 4]}" for number in range(keys)])
    airports = pa.array([f"{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}K" for n in range(105)])
    places = [pa.array(np.minimum(random.geometric(0.05, count) - 1, 104)) for _ in range(2)]
    delay = random.normal(5, 20, count).astype(np.int32)
    values = pa.table(
        {
            "carrier": pa.array(["UA", "B6", "EV", "DL", "AA"]).take(pa.array(random.integers(0, 5, count))),
            "flight": random.integers(1, 6_000, count).astype(np.int32),
            "origin": airports.take(places[0]),
            "dest": airports.take(places[1]),
            "delay": pa.array(delay, mask=random.random(count) < 0.05),
            "air_time": pa.array(random.integers(20, 400, count).astype(np.int32), mask=random.random(count) < 0.05),
        }
    )
    tail = tails.take(pa.array(random.integers(0, keys, count)))
    return Load("flights", tail, "delay", _times(count, 60_000_000, random), values)


def counters(keys: int, random: np.random.Generator) -> Load:
    """Whole-number keys and counters that only grow."""
    count = keys * VERSIONS
    chosen = random.integers(0, keys, count)
    values = pa.table({"count": np.arange(count) // keys + random.integers(0, 3, count), "state": np.repeat(1, count)})
    return Load("counters", pa.array(chosen), "count", _times(count, 1_000, random), values)


def _times(count: int, step: int, random: np.random.Generator) -> Ints:
    gaps = random.integers(1, 2 * step // 1000 + 1, count) * 1000
    return 1_700_000_000_000_000 + np.cumsum(gaps)


def closed_blocks(load: Load, keys: int) -> list[pa.Table]:
    """Return the rows of versions that have ended, in blocks by their ends, each in order of its starts."""
    key = load.key.dictionary_encode().indices.to_numpy()
    order = np.argsort(key, kind="stable")
    followed = np.append(key[order][1:] == key[order][:-1], False)
    row, next_row = order[followed], order[np.flatnonzero(followed) + 1]
    by_end = np.argsort(load.time[next_row], kind="stable")
    blocks = []
    for begin in range(0, len(by_end), max(keys // 2, 100_000)):
        mine = by_end[begin : begin + max(keys // 2, 100_000)]
        mine = mine[np.argsort(load.time[row[mine]], kind="stable")]
        events, ends = row[mine], next_row[mine]
        table = pa.table({"key": load.key.take(pa.array(events))})
        for name in load.values.column_names:
            table = table.append_column(name, load.values.column(name).take(pa.array(events)))
        table = table.append_column("valid_from", time_column(load.time[events]))
        table = table.append_column("valid_to", end_column(load.time[ends]))
        table = table.append_column("_added", pa.array(events // COMMIT_ROWS + 1))
        table = table.append_column("_closed", pa.array(ends // COMMIT_ROWS + 1))
        blocks.append(table.append_column("_split", pa.array(np.zeros(len(mine), bool))).combine_chunks())
    return blocks


def write(folder: Path, blocks: list[pa.Table], compression: Compression | None) -> Segment:
    """Write blocks as one segment below a folder and open it, mapped."""

    def save(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        data, ref = encode_file(name, schema, batches)
        (folder / name).write_bytes(data)
        return ref

    name = f"{len(list(folder.iterdir()))}.arrow"
    rows = [RowsOfBlock(table, np.zeros(table.num_rows, np.bool_)) for table in blocks]
    schema = blocks[0].schema
    meta: SegmentMeta = write_blocks(
        save, name, schema, rows, role="closed", tombstone=False, key_names=["key"], compression=compression
    )
    required = {"key", "valid_from", *SYSTEM}
    declared = pa.schema([field.with_nullable(field.name not in required) for field in schema])
    return Segment(meta, pa.memory_map(str(folder / name)).read_buffer(), declared)


def as_of(segment: Segment, moment: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that were valid at a moment, as a scan does: prefixes of blocks, filtered where rows had ended."""
    for first, block in segment.meta.spans():
        if block.min_valid_from > moment or block.max_valid_to <= moment:
            continue
        rows = segment.started_by(moment, first, first + block.rows)
        live = None if block.min_valid_to > moment else segment.int64_rows("valid_to", first, first + rows) > moment
        at = 0
        for batch in segment.batches(columns, first, first + rows):
            mask = None if live is None else live[at : at + batch.num_rows]
            at += batch.num_rows
            yield batch if mask is None or mask.all() else batch.filter(pa.array(mask))


def copy(batches: Iterator[pa.RecordBatch]) -> None:
    writer = None
    sink = pa.BufferOutputStream()
    for batch in batches:
        writer = writer or ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)


def add_up(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return connection.from_arrow(reader).aggregate(f"sum({schema.names[0]})").fetchall()


def cost(calls: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Return the median processor time of each call; they are run in turn."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs + 1):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            found[name].append(time.process_time() - begin)
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def report(measure: str, **fields: Any) -> None:
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}
    print(json.dumps({"measure": measure, **rounded}), flush=True)


def measure_reads(folder: Path, load: Load, segments: dict[str, Segment], runs: int) -> None:
    for share in (0.1, 0.5):
        moment = int(load.time[int(len(load.time) * share)])
        names = [name for name in segments["plain"].schema.names if name not in SYSTEM]
        answer = pa.Table.from_batches(as_of(segments["plain"], moment, names))
        path = folder / "answer.arrow"
        with ipc.new_file(path, answer.schema) as writer:
            writer.write_table(answer)
        add = partial(add_up, duckdb.connect(), answer.select([load.summed]).schema)
        uses: dict[str, tuple[list[str], Callable[[Iterator[pa.RecordBatch]], Any]]] = {
            "copy": (names, copy),
            f"sum of {load.summed}": ([load.summed], add),
        }
        for asked, (columns, use) in uses.items():
            calls: dict[str, Callable[[], Any]] = {"file": partial(_ask_file, use, path, columns)}
            for name, segment in segments.items():
                calls[f"{name}, first"] = partial(_ask, use, segment, moment, columns, first=True)
                calls[f"{name}, again"] = partial(_ask, use, segment, moment, columns)
            found = cost(calls, runs)
            ratios = {name: found[name] / found["file"] for name in calls if name != "file"}
            report("read", load=load.name, at=share, asked=asked, rows=answer.num_rows, **ratios)


def _ask(
    use: Callable[[Iterator[pa.RecordBatch]], Any],
    segment: Segment,
    moment: int,
    columns: list[str],
    first: bool = False,
) -> None:
    if first:
        segment.forget_decoded()
    use(as_of(segment, moment, columns))


def _ask_file(use: Callable[[Iterator[pa.RecordBatch]], Any], path: Path, columns: list[str]) -> None:
    use(iter(ipc.open_file(pa.memory_map(str(path))).read_all().select(columns).to_batches()))


def measure_bytes(load: Load, blocks: list[pa.Table], segments: dict[str, Segment]) -> None:
    rows = sum(block.num_rows for block in blocks)
    whole = pa.concat_tables(blocks)
    hashes = hash_keys([whole.column("key").combine_chunks()])
    indexes = {
        name: encode_index("i", hashes, grouped=grouped)[0].size / rows
        for name, grouped in (("key index", False), ("grouped key index", True))
    }
    sizes = {name: segment.meta.file.bytes / rows for name, segment in segments.items()}
    parquet = {
        "parquet": _parquet(whole),
        "parquet without system columns": _parquet(whole.drop_columns(SYSTEM)),
        "parquet without times": _parquet(whole.drop_columns([*SYSTEM, "valid_from", "valid_to"])),
    }
    report(
        "bytes",
        load=load.name,
        rows=rows,
        **sizes,
        **indexes,
        **{n: s / rows for n, s in parquet.items()},
    )


def _parquet(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return int(sink.tell())


def measure_columns(folder: Path, load: Load, blocks: list[pa.Table], compression: Compression) -> None:
    segment = write(folder, blocks, compression)
    for name in segment.schema.names:
        begin = time.process_time()
        for _ in segment.batches([name], 0, segment.rows):
            pass
        seconds = time.process_time() - begin
        stored = sum(batch.stored_bytes(segment.schema.get_field_index(name)) for batch in segment._batches)
        plain = sum(block.column(name).nbytes for block in blocks)
        report("column", load=load.name, column=name, coded=compression.coded, plain=plain / segment.rows,
               compressed=stored / segment.rows, ns=1e9 * seconds / segment.rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    keys = 20_000 if options.quick else 100_000
    for make in (orders, flights, counters):
        load = make(keys, np.random.default_rng(7))
        blocks = closed_blocks(load, keys)
        with tempfile.TemporaryDirectory() as folder:
            segments = {"plain": write(Path(folder), blocks, None)}
            segments["zstd"] = write(Path(folder), blocks, UNCODED)
            segments["coded"] = write(Path(folder), blocks, COLD)
            measure_bytes(load, blocks, segments)
            if options.columns:
                for compression in (UNCODED, COLD):
                    measure_columns(Path(folder), load, blocks, compression)
            measure_reads(Path(folder), load, segments, options.runs)


if __name__ == "__main__":
    main()
