"""Costs of a log and a planner for each segment, closure and commit. Prints JSON lines; docs/scale.md has them.

    python benchmarks/log_scale.py            log states of 1,000, 10,000 and 100,000 segments
    python benchmarks/log_scale.py --quick    up to 1,000

A segment of closed rows is written as compaction writes it into an object store, as large as it makes them by default,
and a log state names it many times under other names, with times that follow each other. So everything is as in a real
store but the number of segments. Nothing is read from a disk. Each line is measured in a process of its own.

``encode`` and ``decode`` lines are of one log checkpoint; memory is what the process has more than before. ``plan`` is
a read as of a moment: the first one makes statistics of all blocks, and each further commit has them made again of the
segments that are new. ``commit`` is what `advance` takes to add one delta.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.loads.stream import Shape, Stream
from statestore.catalog.commits.new_files import REMOTE
from statestore.catalog.log.entries import CommitEntry
from statestore.catalog.log.log_checkpoint import encode_log_checkpoint, read_log_checkpoint
from statestore.catalog.log.log_names import log_checkpoint_name
from statestore.catalog.log.log_state import LogState, advance
from statestore.catalog.log.version_chunks import SCHEMA, VersionChunks
from statestore.catalog.log.versions import versions_from
from statestore.catalog.reads.belief import TimeRange, blocks_with_rows
from statestore.catalog.reads.carried_states import BlockStatistics
from statestore.catalog.upkeep.compaction_rules import DEFAULT
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.key_index import KeyIndex, entries_batch
from statestore.formats.segments.segment_columns import end_column, time_column
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef, SegmentMeta
from statestore.formats.segments.segment_write import RowsOfBlock, write_blocks
from statestore.formats.values.key_hash import hash_keys

SPAN_US = 1_000_000  # state time of one segment
BLOCKS_BY_STARTS = 1.8  # blocks of compaction in an object store to those that are cut by ends alone
TAIL = 64  # commits behind the last chunk


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def closed_segment(rows: int) -> SegmentMeta:
    """The metadata of a segment of ended rows, compressed, with its index.

    Its blocks are those of the least size, cut by their starts into 1.8 times as many, as in an object store.
    """
    stream = Stream(Shape(rows // 4, 4, rows // 4 * 4), 1)
    rows = stream.shape.events
    values = stream.rows(np.arange(rows)).drop_columns(["timestamp"])
    starts = np.arange(rows, dtype=np.int64)
    table = values.append_column("valid_from", time_column(starts))
    table = table.append_column("valid_to", end_column(starts + SPAN_US))
    table = table.append_column("_added", pa.array(np.full(rows, 1)))
    table = table.append_column("_closed", pa.array(np.full(rows, 2)))
    table = table.append_column("_split", pa.array(np.zeros(rows, bool)))

    def write(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        return encode_file(name, schema, batches, paged=True)[1]

    each = int(DEFAULT.block_rows / BLOCKS_BY_STARTS)
    pieces = [table.slice(first, each) for first in range(0, rows, each)]
    blocks = [RowsOfBlock(piece, np.zeros(piece.num_rows, np.bool_)) for piece in pieces]
    meta = write_blocks(
        write, new_name(".arrow"), table.schema, blocks, role="closed", tombstone=False, key_names=["item"],
        compression=REMOTE,
    )  # fmt: skip
    index = KeyIndex.build(hash_keys([values["item"].combine_chunks()]))
    batch = entries_batch(index.hashes, index.rows)
    return replace(meta, index=write(new_name(".index.arrow"), batch.schema, [batch]), key_groups=(0, 127))


def new_name(suffix: str) -> str:
    return f"segments/{uuid.uuid4().hex}{suffix}"


def renamed(meta: SegmentMeta, number: int) -> SegmentMeta:
    """Return a copy of the segment under a name of its own, ``number`` spans later."""
    assert meta.index is not None
    moved = {
        name: getattr(meta, name) + number * SPAN_US
        for name in ("min_valid_from", "max_valid_from", "min_valid_to", "max_valid_to")
    }
    blocks = tuple(
        replace(block, **{name: getattr(block, name) + number * SPAN_US for name in moved}) for block in meta.blocks
    )
    file, index = replace(meta.file, name=new_name(".arrow")), replace(meta.index, name=new_name(".index.arrow"))
    return replace(meta, file=file, index=index, blocks=blocks, **moved)


def log_state(meta: SegmentMeta, segments: int, closures: int = 0, changelogs: int = 0) -> LogState:
    """A state with so many segments, slices of closures for the first of them, and names of changelogs."""
    metas = tuple(renamed(meta, number) for number in range(segments))
    files = [FileRef(new_name(".closures.arrow"), 1 << 20, "0123456789abcdef", ((0, 600),)) for _ in range(64)]
    pieces: dict[str, tuple[ClosureSlice, ...]] = {}
    for number in range(closures):
        name = metas[number % segments].name
        pieces[name] = *pieces.get(name, ()), ClosureSlice(files[number % 64], name, 1, number, 1, 25_000)
    commits = {field.name: ["write" if field.name == "operation" else "w"] * TAIL for field in SCHEMA}
    numbers = {field.name: list(range(TAIL)) for field in SCHEMA if pa.types.is_integer(field.type)}
    tail = pa.RecordBatch.from_pydict({**commits, **numbers}, schema=SCHEMA)
    names = {f"{number:020d}-{uuid.uuid4().hex}.changelog": 1_000 for number in range(changelogs)}
    return LogState(TAIL - 1, versions_from(VersionChunks(), tail), metas, pieces, None, names, uuid.uuid4().hex)


def encoded(state: LogState) -> bytes:
    return encode_log_checkpoint(state, VersionChunks(), tail_of(state))


def tail_of(state: LogState) -> pa.RecordBatch:
    numbers = {field.name: list(range(TAIL)) for field in SCHEMA if pa.types.is_integer(field.type)}
    texts = {field.name: ["write"] * TAIL for field in SCHEMA if not pa.types.is_integer(field.type)}
    return pa.RecordBatch.from_pydict({**texts, **numbers}, schema=SCHEMA)


def resident_mib() -> float:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = call()
    return (time.perf_counter() - begin) * 1000, found


def checkpoints(count: int, rows: int) -> None:
    """The checkpoint of a state with so many segments: its size, its times, and the memory of the state."""
    meta = closed_segment(rows)
    encode_ms, data = timed(partial(encoded, log_state(meta, count)))
    name = log_checkpoint_name(TAIL - 1)
    assert meta.index is not None
    sizes = {"segment_bytes": meta.file.bytes, "index_bytes": meta.index.bytes, "segment_rows": meta.rows}
    if count == 1_000:
        for kind, extra in (("closure", {"closures": 1_000}), ("changelog", {"changelogs": 1_000})):
            more = len(encoded(log_state(meta, count, **extra)))
            report(measure=f"checkpoint bytes a {kind}", bytes=round((more - len(data)) / 1_000, 1))
    before = resident_mib()
    decode_ms, found = timed(lambda: read_log_checkpoint(name, data))
    report(
        measure="log checkpoint", segments=count, **sizes, mb=round(len(data) / 1e6, 1),
        bytes_a_segment=round(len(data) / count), encode_us_a_segment=round(encode_ms * 1000 / count, 1),
        decode_us_a_segment=round(decode_ms * 1000 / count, 1),
        kib_in_memory_a_segment=round((resident_mib() - before) * 1024 / count, 2),
    )  # fmt: skip
    plans(found)


def plans(state: LogState) -> None:
    """Statistics of all blocks, the choice of the blocks of a moment, and one more commit."""
    count = len(state.segments)
    before = resident_mib()
    first_ms, statistics = timed(lambda: BlockStatistics().of(state.segments))
    kib = (resident_mib() - before) * 1024 / count
    moment = SPAN_US * count // 2
    window = TimeRange(moment, moment, state.version, True)
    choice_ms = min(timed(lambda: blocks_with_rows(statistics, window))[0] for _ in range(5))
    entry = CommitEntry(
        version=state.version + 1, timestamp=1, operation="write", writer="w", transaction=None, stream_time=None,
        added=(renamed(state.segments[-1], 1),), removed=(), closures=(), rows=1, tombstones=0, closed=0, bytes=1,
        dropped=0, horizon=None, changelogs=(), store=state.store,
    )  # fmt: skip
    commit_ms, later = min((timed(lambda: advance(state, entry)) for _ in range(3)), key=lambda found: found[0])
    again_ms, _ = timed(lambda: statistics.of(later.segments))
    report(
        measure="plan", segments=count, first_us_a_segment=round(first_ms * 1000 / count, 2),
        choice_us_a_segment=round(choice_ms * 1000 / count, 4),
        after_a_commit_us_a_segment=round(again_ms * 1e3 / count, 2),
        advance_us_a_segment=round(commit_ms * 1e3 / count, 3),
        kib_in_memory_a_segment=round(kib, 2),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--segments", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        checkpoints(given.one, DEFAULT.file_rows)
        return
    for count in [1_000] if given.quick else given.segments:
        subprocess.run([sys.executable, __file__, "--one", str(count)], check=True)


if __name__ == "__main__":
    main()
