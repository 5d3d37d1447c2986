"""Files with page tables in log entries and log checkpoints, which then have formats that older releases refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from support.stores.log_entries import entry, segment

from statestore.catalog.log.entries import CommitEntry, decode_entry, encode_entry, entry_name
from statestore.catalog.log.log_checkpoint import encode_log_checkpoint, read_log_checkpoint
from statestore.catalog.log.log_names import LOG_CHECKPOINTS
from statestore.catalog.log.log_state import EMPTY, advance
from statestore.catalog.log.storage import LocalStorage
from statestore.formats.errors import CorruptError
from statestore.formats.segments.compressed_write import CompressedBatches, Compression
from statestore.formats.segments.ipc_file import encode_file
from statestore.formats.segments.segment_meta import FileRef

STORE = "0" * 32


@cache
def paged_file(name: str, compressed: bool) -> FileRef:
    schema = pa.schema([("number", pa.int64())])
    batches = [
        pa.record_batch([pa.array(range(first, first + 100_000 - 3 * first))], schema=schema) for first in (0, 7, 99)
    ]
    given = CompressedBatches(batches, Compression(least_saving=0.99)) if compressed else batches
    ref = encode_file(name, schema, given, paged=True)[1]
    assert ref.tail_checksum and len(ref.metadata_ranges) == (2 if compressed else 5)
    return ref


def paged_entry(version: int = 5) -> CommitEntry:
    """An entry with two segments and an index that have page tables, and a segment that has none."""
    metas = [replace(segment(number), file=paged_file(segment(number).name, bool(number % 2))) for number in (1, 2)]
    assert metas[0].index is not None
    metas[0] = replace(metas[0], index=paged_file(metas[0].index.name, False))
    return entry(version, store=STORE, added=(*metas, segment(3)))


def test_an_entry_survives_the_round_trip_in_format_5() -> None:
    original = paged_entry()
    data = encode_entry(original)
    assert json.loads(data)["commit"]["format"] == 5
    assert decode_entry(entry_name(5), data) == original


def test_only_entries_with_page_tables_have_format_5() -> None:
    plain = entry(5, store=STORE, added=(segment(3),))
    assert json.loads(encode_entry(plain))["commit"]["format"] == 3


def forged(change: Any) -> bytes:
    commit = json.loads(encode_entry(paged_entry()))["commit"]
    change(commit)
    canonical = json.dumps(commit, sort_keys=True, separators=(",", ":"))
    return json.dumps({"checksum": xxhash.xxh3_64_hexdigest(canonical.encode()), "commit": commit}).encode()


@pytest.mark.quick("<lambda>1", "<lambda>3", "<lambda>6")
@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(format=3),
        lambda c: [file.pop() for file in c["files"] if len(file) == 5],
        lambda c: c["files"][0].append("0" * 16),
        lambda c: c["files"][0].__setitem__(4, "0" * 15),
        lambda c: c["files"][0].__setitem__(4, "x" * 16),
        lambda c: c["files"][0].__setitem__(4, 7),
        lambda c: c["files"][0][3].__setitem__(0, "a"),
        lambda c: c["files"][0].__setitem__(4, 1234567890123456),
        lambda c: c["files"][0].__setitem__(4, ""),
        lambda c: c["files"][0].__setitem__(3, []),
        lambda c: c["files"][0].__setitem__(3, c["files"][0][3][:1]),
        lambda c: c["files"][0].__setitem__(3, [[0, 10], [0, c["files"][0][1]]]),
        lambda c: c["files"][0][3].__setitem__(1, [-1, 10]),
        lambda c: c["files"][0][3].__setitem__(1, [0, 1 << 62]),
    ],
)
def test_a_forged_entry_is_refused(change: Any) -> None:
    with pytest.raises(CorruptError, match="LOG_CORRUPT"):
        decode_entry(entry_name(5), forged(change))


def test_a_log_checkpoint_of_such_files_is_read_back(tmp_path: Path) -> None:
    storage, log_state = LocalStorage(tmp_path), EMPTY
    for version in range(12):
        log_state = advance(
            log_state, paged_entry(version) if version == 11 else entry(version, store=STORE, added=(), changelogs=())
        )
    data = encode_log_checkpoint(log_state, *log_state.versions.folded(storage, STORE))
    assert b"log-checkpoint/4" in data
    loaded = read_log_checkpoint(f"{LOG_CHECKPOINTS}{11:020d}.arrow", data)
    assert loaded.segments == log_state.segments and loaded.version == 11
