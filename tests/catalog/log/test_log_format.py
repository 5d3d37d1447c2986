"""The example files of docs/log-format.md: written once, readable for ever; the page agrees with the code.

``PYTHONPATH=tests python tests/catalog/log/test_log_format.py``
writes them anew; only a new format version may need that.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from support.paths import DATA, DOCS
from support.stores.log_entries import captured_of, closure, entry, folded, plain, segment

from statestore.catalog.log.entries import (
    OPERATIONS,
    CommitEntry,
    Horizon,
    encode_entry,
    entry_name,
    read_entry,
    write_entry,
)
from statestore.catalog.log.entry_packs import encode_pack, pack_name
from statestore.catalog.log.frames import FRAMES
from statestore.catalog.log.log_checkpoint import LOG_CHECKPOINT_INTERVAL, load_log_state, write_log_checkpoint
from statestore.catalog.log.log_names import STORE_FILE, log_checkpoint_name
from statestore.catalog.log.log_state import EMPTY, KEPT_CHANGELOGS, advance
from statestore.catalog.log.source_versions import KEPT_GAPS, CapturedLog, Gap, SourceVersion
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.store_spec import Captured, StoreSpec, decode_spec, encode_spec
from statestore.catalog.log.version_chunks import CHUNK_VERSIONS, KEPT_APPLICATIONS, SCHEMA_WITH_SOURCES
from statestore.formats.changelogs.changelog import read_changelog
from statestore.formats.changelogs.changelog_frames import HEADER, MAGIC
from statestore.formats.values.types import make_schema

FOLDER = DATA / "log-1"
VERBOSE = DATA / "log-2"
NEWEST = DATA / "log-3"
PACKED = DATA / "log-3-packed"
CAPTURED = DATA / "log-6"
STORE = "0123456789abcdef0123456789abcdef"
PAGE = DOCS / "log-format.md"
CHANGELOG = "changelog/00000000000000000001-0123456789abcdef0123456789abcdef.changelog"

LOG = [
    entry(0, added=(), rows=0, tombstones=0, closed=0, bytes=0, stream_time=None),
    entry(1, transaction=("äpp", 7), changelogs=((CHANGELOG.removeprefix("changelog/"), 696),)),
    entry(2, closures=(closure(2, segment(1).name, 2),), dropped=3),
    entry(3, operation="compact", removed=(segment(1).name, segment(2).name), rows=0, stream_time=2_000),
    entry(4, operation="expire", added=(), horizon=Horizon(1_000, 2), rows=0, stream_time=2_000),
]
NEWEST_LOG = [replace(commit, store=STORE) for commit in LOG]
CAPTURED_SPEC = StoreSpec(
    name="counts",
    store_id=STORE,
    kind="versioned",
    key=make_schema({"item": "string", "_copy": "bigint"}, "key"),
    value=make_schema({"count": "bigint"}, "value"),
    history_retention=None,
    segment_interval=None,
    serde="natural",
    key_groups=128,
    captured=Captured("job-1/0", "/jobs/counts", "events", "list", ("batch", "batches"), ("item",), (), ("_copy",)),
)
CAPTURED_LOG = [
    NEWEST_LOG[0],
    replace(
        NEWEST_LOG[1],
        transaction=("capture:job-1/0", 7),
        changelogs=(),
        source=SourceVersion(7, 1_700_000_000_000_000),
    ),
    replace(
        NEWEST_LOG[2],
        transaction=("capture:job-1/0", 12),
        source=SourceVersion(12, 1_700_000_060_000_000, 1_700_000_055_000_000, '{"0":"ä"}', (8, 11)),
    ),
    NEWEST_LOG[3],
]
FOLDERS = ((FOLDER, ""), (VERBOSE, STORE), (NEWEST, STORE))
RECORDS = [
    {"item": "curry", "price": 8.0, "timestamp": 1_000, "_tombstone": False},
    {"item": "rice", "price": None, "timestamp": 2_000, "_tombstone": True},
]
RECORD_SCHEMA = pa.schema(
    [
        pa.field("item", pa.string(), nullable=False),
        pa.field("price", pa.float64()),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("_tombstone", pa.bool_(), nullable=False),
    ]
)


def test_log_entries() -> None:
    for folder, log in ((FOLDER, LOG), (VERBOSE, NEWEST_LOG), (NEWEST, NEWEST_LOG)):
        storage = LocalStorage(folder)
        assert [read_entry(storage, commit.version) for commit in log] == log
        formats = {json.loads(storage.read(entry_name(commit.version)))["commit"]["format"] for commit in log}
        assert formats == {int(folder.name[-1])}


def packed_log() -> list[CommitEntry]:
    plain_commit = replace(NEWEST_LOG[0], operation="write")
    log = [
        replace(
            plain_commit,
            version=version,
            operation="write" if version else "create",
            timestamp=plain_commit.timestamp + 1_000 * version,
            stream_time=1_000 * version,
            transaction=("app", version),
            attempt=f"{version:032x}",
        )
        for version in range(CHUNK_VERSIONS + 5)
    ]
    return log


def test_packed_log() -> None:
    """Every entry, by way of the pack or not; the chunk; and each file as the page describes it."""
    storage, log = LocalStorage(PACKED), packed_log()
    assert sorted(path.name for path in (PACKED / "log").glob("*.json")) == [
        f"{version:020d}.json" for version in range(CHUNK_VERSIONS, len(log))
    ]
    for version in (0, 1, 63, 64, 4_095, 4_096, len(log) - 1):
        found = read_entry(storage, version)
        assert (found, found.attempt) == (log[version], log[version].attempt)
    log_state = load_log_state(storage)
    versions = log_state.versions
    assert (len(versions), len(versions.chunks)) == (len(log), CHUNK_VERSIONS)
    assert versions.timestamp.tolist() == [commit.timestamp for commit in log]
    assert versions.transaction == [commit.transaction for commit in log]
    assert [versions.find_transaction("app", batch) for batch in (7, 4_095, 4_100, 4_101)] == [7, 4_095, 4_100, None]
    assert load_log_state(storage, 4_096).version == 4_096


def frames_by_the_page(data: bytes, kind: bytes) -> list[tuple[int, int, bytes]]:
    """First version, count and content of each frame, with Arrow's own reader."""
    assert xxhash.xxh3_64(data[:-8]).intdigest().to_bytes(8, "big") == data[-8:]
    table = pa.ipc.open_file(data[:-8]).read_all()
    assert table.schema.metadata == {b"statestore.format": kind, b"statestore.store": STORE.encode()}
    rows = table.to_pylist()
    return [(r["first"], r["count"], pa.decompress(r["frame"], r["length"], codec="zstd").to_pybytes()) for r in rows]


def test_the_specification_is_enough_to_read_chunks_and_packs() -> None:
    log = packed_log()
    (path,) = (PACKED / "log/_chunks").iterdir()
    data = path.read_bytes()
    assert path.name == f"{0:020d}-{data[-8:].hex()}.arrow"
    ((first, count, content),) = frames_by_the_page(data, b"log-chunk/1")
    chunk = pa.ipc.open_stream(content).read_all()
    assert (first, count, chunk.num_rows) == (0, 4_096, 4_096)
    assert chunk["stream_time"].to_pylist() == [1_000 * version for version in range(4_096)]
    assert chunk["batch"].to_pylist() == list(range(4_096))
    (path,) = (PACKED / "log/_packs").iterdir()
    version = 0
    for first, count, content in frames_by_the_page(path.read_bytes(), b"log-pack/1"):
        lines = content.split(b"\n")
        assert (first, count) == (version, len(lines))
        for line in lines:
            document = json.loads(line)
            text = canonical(document["commit"]).encode()
            assert line == b'{"checksum":"' + document["checksum"].encode() + b'","commit":' + text + b"}"
            assert xxhash.xxh3_64_hexdigest(text) == document["checksum"]
            assert document["commit"]["id"] == log[version].attempt
            version += 1
    assert version == 4_096


def canonical(value: Any) -> str:
    """Canonical JSON, written from docs/log-format.md alone."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(escaped, value)) + '"'
    return "null" if value is None else str(value).lower()


def escaped(character: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if character in short:
        return short[character]
    if " " <= character <= "~":
        return character
    halves = character.encode("utf-16-be").hex()
    return "".join(f"\\u{halves[at : at + 4]}" for at in range(0, len(halves), 4))


def test_the_specification_is_enough_to_check_an_entry() -> None:
    odd = entry(9, writer='a"\\/\b\f\n\r\t\x00\x1f\x7f~ ä€😀', transaction=("é", -(2**63)))
    files = [(folder / entry_name(commit.version)).read_bytes() for folder, _ in FOLDERS for commit in LOG]
    for data in (*files, encode_entry(odd)):
        document = json.loads(data)
        assert xxhash.xxh3_64_hexdigest(canonical(document["commit"]).encode()) == document["checksum"]


def test_checkpoint() -> None:
    """The checkpoint of versions 0 to 3, together with the next entry, equals the log."""
    for folder, store in FOLDERS:
        storage = LocalStorage(folder)
        assert plain(load_log_state(storage, 3)) == folded(LOG[:4])
        assert plain(load_log_state(storage)) == folded(LOG)
        assert load_log_state(storage).store == store


def test_the_checkpoint_is_what_is_read(tmp_path: Path) -> None:
    """Without it the log alone would do, and the test above would not notice."""
    name = f"log/_checkpoint/{3:020d}.arrow"
    for folder, store in FOLDERS:
        storage = LocalStorage(tmp_path / folder.name)
        storage.root.mkdir()
        storage.create(name, LocalStorage(folder).read(name))
        assert plain(load_log_state(storage)) == folded(LOG[:4])
        assert load_log_state(storage).store == store


def test_captured_store(tmp_path: Path) -> None:
    """The description, the entries, the checkpoint of version 2 alone, and with the entry behind it."""
    storage = LocalStorage(CAPTURED)
    assert decode_spec(storage.read(STORE_FILE), "store.json") == CAPTURED_SPEC
    assert [read_entry(storage, commit.version) for commit in CAPTURED_LOG] == CAPTURED_LOG
    texts = [json.loads(storage.read(entry_name(commit.version))) for commit in CAPTURED_LOG]
    assert [text["commit"]["format"] for text in texts] == [3, 6, 6, 3]
    assert all(xxhash.xxh3_64_hexdigest(canonical(text["commit"]).encode()) == text["checksum"] for text in texts)
    name = log_checkpoint_name(2)
    alone = LocalStorage(tmp_path)
    alone.create(name, storage.read(name))
    for log_state, log in ((load_log_state(alone), CAPTURED_LOG[:3]), (load_log_state(storage), CAPTURED_LOG)):
        assert plain(log_state) == folded(log)
        assert log_state.captured == captured_of(log, KEPT_GAPS)
        (gap,) = log_state.gaps
        assert gap == Gap(8, 11, 1_700_000_000_000_000, 1_700_000_060_000_000, 2)
    assert b"log-checkpoint/5" in storage.read(name)


def test_changelog() -> None:
    batches = [batch for batch, _ in read_changelog(FOLDER / CHANGELOG, RECORD_SCHEMA)]
    assert batches == [pa.RecordBatch.from_pylist([record], RECORD_SCHEMA) for record in RECORDS]


def test_the_page_shows_the_example() -> None:
    """Its hex dump is the beginning of the changelog, its entry is the first of the log."""
    page = PAGE.read_text()
    data = (FOLDER / CHANGELOG).read_bytes()
    headers = [bytes.fromhex(found) for found in re.findall(r"^    ((?:[0-9a-f]{2} ?){20})$", page, re.MULTILINE)]
    ends = [0, *(end for _, end in read_changelog(FOLDER / CHANGELOG, None))]
    start = HEADER.size + HEADER.unpack_from(data)[1]
    assert headers == [data[at : at + HEADER.size] for at in (0, start, ends[1])]
    shown = [json.loads(found) for found in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    for folder in (VERBOSE, NEWEST):
        for name in ("store.json", entry_name(0)):
            assert json.loads((folder / name).read_text()) in shown


def test_every_field_is_documented() -> None:
    """Fields of entries, columns of checkpoints, operations, and the numbers that a reader has to know."""
    page = PAGE.read_text()
    kinds = (CommitEntry, Horizon, Captured, SourceVersion, CapturedLog, Gap)
    names = [field.name for kind in kinds for field in fields(kind)]
    names += [*FRAMES.names, f"{CHUNK_VERSIONS:,}", f"{KEPT_APPLICATIONS:,}"]
    names += [
        *SCHEMA_WITH_SOURCES.names,
        *OPERATIONS,
        f"{KEPT_GAPS:,}",
        str(LOG_CHECKPOINT_INTERVAL),
        f"{KEPT_CHANGELOGS:,}",
        MAGIC.hex(" "),
    ]
    assert [name for name in names if f"`{name}`" not in page and f" {name} " not in page] == []


def _write_all() -> None:
    storage = LocalStorage(NEWEST)
    log_states = list(accumulate(NEWEST_LOG, advance, initial=EMPTY))[1:]
    for commit in NEWEST_LOG:
        write_entry(storage, commit)
    write_log_checkpoint(storage, log_states[3])
    storage = LocalStorage(CAPTURED)
    storage.create(STORE_FILE, encode_spec(CAPTURED_SPEC))
    log_states = list(accumulate(CAPTURED_LOG, advance, initial=EMPTY))[1:]
    for commit in CAPTURED_LOG:
        write_entry(storage, commit)
    write_log_checkpoint(storage, log_states[2])
    storage, log = LocalStorage(PACKED), packed_log()
    log_states = list(accumulate(log, advance, initial=EMPTY))[1:]
    write_log_checkpoint(storage, log_states[CHUNK_VERSIONS])
    pack = encode_pack(STORE, 0, [encode_entry(commit) for commit in log[:CHUNK_VERSIONS]])
    assert pack is not None
    storage.create(pack_name(0), pack)
    for commit in log[CHUNK_VERSIONS:]:
        storage.create(entry_name(commit.version), encode_entry(commit))
    write_log_checkpoint(storage, log_states[-1])


if __name__ == "__main__":
    _write_all()
