"""Changes on top of a base, against a dictionary; records, codecs and list values, against plain Python."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401
from xxhash import xxh32_intdigest

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.errors import CorruptError
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.providers import compression, replay
from statestore.formats.spark.providers.compression import decompressed
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT, Changes, read_records
from statestore.formats.spark.providers.replay import Overlay, Replay, overlay_of
from statestore.formats.spark.rows.row_encoding import split_values, verify_checksums

KEYS = st.sampled_from([b"", b"a", b"b", b"ab", b"c" * 40])
CHANGES = st.lists(st.tuples(st.sampled_from([PUT, DELETE, MERGE]), KEYS, st.binary(max_size=5)), max_size=25)


pytestmark = pytest.mark.usefixtures("compiled_or_not")


def replayed(base: Iterable[pa.RecordBatch], overlay: Overlay) -> Iterator[pa.RecordBatch]:
    replay = Replay(overlay)
    for batch in base:
        yield from replay.over(batch)
    yield from replay.rest()


def record(kind: int, key: bytes, value: bytes, *, typed: bool) -> bytes:
    size = -1 if kind == DELETE else len(value)
    head = bytes([kind]) if typed else b""
    return head + struct.pack(">i", len(key)) + key + struct.pack(">i", size) + (value if size > 0 else b"")


def written(changes: list[tuple[int, bytes, bytes]], *, typed: bool) -> bytes:
    end = b"\0" if typed else struct.pack(">i", -1)
    return b"".join(record(*change, typed=typed) for change in changes) + end


def binary(cells: list[bytes]) -> pa.Array:
    return pa.array(cells, pa.binary())


def listed(changes: Iterator[Changes]) -> list[tuple[int, bytes, bytes]]:
    found = []
    for change in changes:
        rows = zip(
            change.kind, change.keys.start, change.keys.size, change.values.start, change.values.size, strict=True
        )
        data = change.keys.data.tobytes()
        found += [(int(kind), data[k : k + ks], data[v : v + vs]) for kind, k, ks, v, vs in rows]
    return found


@settings(deadline=None, max_examples=50)  # the first example may load compiled code
@given(CHANGES, st.booleans(), st.integers(1, 30))
def test_records_are_read_in_blocks_of_any_size(
    changes: list[tuple[int, bytes, bytes]], typed: bool, block: int
) -> None:
    if not typed:
        changes = [(PUT if kind == MERGE else kind, key, value) for kind, key, value in changes]
    data = written(changes, typed=typed)
    pieces = [data[at : at + block] for at in range(0, len(data), block)]
    expected = [(kind, key, b"" if kind == DELETE else value) for kind, key, value in changes]
    assert listed(read_records(pieces, "f", typed=typed, block=block)) == expected


@settings(max_examples=50)
@given(CHANGES, st.booleans(), st.data())
def test_a_file_that_was_cut_off_is_refused(
    changes: list[tuple[int, bytes, bytes]], typed: bool, data: st.DataObject
) -> None:
    whole = written(changes, typed=typed)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptError, match="f: ends within a record"):
        list(read_records([whole[:cut]], "f", typed=typed))


@pytest.mark.parametrize("data", [struct.pack(">i", -2), struct.pack(">ii", 0, -2)])
def test_impossible_sizes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptError, match="SPARK_STATE_FILE"):
        list(read_records([data], "f"))


def test_unknown_types_of_records_are_refused() -> None:
    with pytest.raises(CorruptError, match="type 0x7"):
        list(read_records([written([(7, b"k", b"v")], typed=True)], "f", typed=True))


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(KEYS, st.binary(max_size=5)), CHANGES, st.sampled_from([b"", b","]), st.integers(1, 4))
def test_replay_is_what_a_dictionary_would_do(
    base: dict[bytes, bytes], changes: list[tuple[int, bytes, bytes]], delimiter: bytes, rows: int
) -> None:
    expected = dict(base)
    for kind, key, value in changes:
        if kind == DELETE:
            expected.pop(key, None)
        elif kind == MERGE and key in expected:
            expected[key] += delimiter + value
        else:
            expected[key] = value
    runs = (each for change in changes for each in read_records([written([change], typed=True)], "f", typed=True))
    batch = pa.RecordBatch.from_arrays([binary(list(base)), binary(list(base.values()))], schema=ROW_SCHEMA)
    batches = [batch.slice(at, rows) for at in range(0, len(base), rows)]
    found = pa.Table.from_batches(replayed(batches, overlay_of(runs, delimiter)), ROW_SCHEMA)
    assert found.num_rows == len(expected)
    assert dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected


def test_folding_on_the_way_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs of changes are folded before all are read."""
    changes = [(MERGE if n % 3 else PUT, b"%d" % (n % 7), b"%d" % n) for n in range(150)]
    changes += [(DELETE, b"3", b""), (MERGE, b"3", b"x")]
    runs = [next(read_records([written([change], typed=True)], "f", typed=True)) for change in changes]
    whole = pa.Table.from_batches(replayed([], overlay_of(runs, b",")), ROW_SCHEMA).sort_by("key")
    monkeypatch.setattr(replay, "_FOLD_BYTES", 5)
    assert pa.Table.from_batches(replayed([], overlay_of(runs, b",")), ROW_SCHEMA).sort_by("key") == whole
    assert whole["value"].to_pylist()[3] == b"x"


def test_keys_of_equal_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_hashes", lambda keys: np.zeros(len(keys), np.uint64))
    (change,) = read_records([written([(PUT, b"a", b"new"), (DELETE, b"b", b"")], typed=True)], "f", typed=True)
    batch = pa.RecordBatch.from_arrays([binary([b"a", b"b", b"c"]), binary([b"1", b"2", b"3"])], schema=ROW_SCHEMA)
    found = pa.Table.from_batches(replayed([batch], overlay_of([change])), ROW_SCHEMA)
    assert sorted(found["key"].to_pylist()) == [b"a", b"c"]
    assert b"new" in found["value"].to_pylist()


@pytest.mark.parametrize(("delimiter", "front"), [(b"", 0), (b",", 0), (b",", 4)])
def test_list_values_are_split(delimiter: bytes, front: int) -> None:
    lists = [[b"a", b"", b"ccc"], [], [b"x" * 300], [b"%d" % n for n in range(50)]]
    entry = lambda cell: bytes(front) + struct.pack("<i", len(cell)) + cell  # noqa: E731
    values = binary([delimiter.join(map(entry, cells)) for cells in lists])
    counts, entries = split_values(cells_of(values), delimiter, front)
    data = entries.data.tobytes()
    assert counts.tolist() == [len(cells) for cells in lists]
    assert [data[s : s + n] for s, n in zip(entries.start, entries.size, strict=True)] == [
        cell for cells in lists for cell in cells
    ]


@pytest.mark.parametrize("value", [b"\x05\0\0\0abc", b"\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0a;\x01\0\0\0b"])
@pytest.mark.parametrize("lists", [1, 100], ids=["few", "many"])
def test_list_values_that_do_not_add_up_are_refused(value: bytes, lists: int) -> None:
    """Few lists are read one by one, many of them together."""
    whole = [b"\x01\0\0\0a"] * lists
    for values in ([*whole, value], [value, *whole]):
        with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
            split_values(cells_of(binary(values)), b",")


def test_a_row_that_does_not_match_its_checksum_is_named() -> None:
    rows = cells_of(binary([b"a", b"b"]))
    stored = crc32c_of_cells(rows)
    verify_checksums(stored, rows)
    with pytest.raises(CorruptError, match="row 1 has checksum"):
        verify_checksums(stored ^ np.array([0, 1], np.uint32), rows)


def lz4_block(data: bytes, *, raw: bool = False, checksum: int | None = None) -> bytes:
    packed = data if raw else pa.Codec("lz4_raw").compress(data, asbytes=True)
    found = xxh32_intdigest(data, 0x9747B28C) & 0x0FFFFFFF if checksum is None else checksum
    return b"LZ4Block" + struct.pack("<Biii", 0x10 if raw else 0x20, len(packed), len(data), found) + packed


LZ4_END = b"LZ4Block" + struct.pack("<Biii", 0x10, 0, 0, 0)
TEXT = b"state" * 999
SNAPPY_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SNAPPY = pa.Codec("snappy").compress(TEXT, asbytes=True)
LZF_COPY = b"\x04state" + bytes([7 << 5, 255 - 9, 4]) + b"\x00e"  # 5 literals, 255 bytes from 5 before, one literal
CODECS = [
    (lz4_block(TEXT) + lz4_block(b"raw", raw=True) + LZ4_END, TEXT + b"raw"),
    (pa.Codec("zstd").compress(TEXT, asbytes=True), TEXT),
    (SNAPPY_HEAD + struct.pack(">i", len(SNAPPY)) + SNAPPY, TEXT),
    (b"ZV\x00\x00\x03abc" + b"ZV\x01" + struct.pack(">HH", len(LZF_COPY), 261) + LZF_COPY, None),
]


@pytest.mark.parametrize(("packed", "expected"), CODECS)
def test_codecs(packed: bytes, expected: bytes | None) -> None:
    found = b"".join(decompressed(io.BytesIO(packed), "f"))
    assert found == expected if expected is not None else found == b"abc" + (b"state" * 60)[:260] + b"e"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=90), st.booleans()), max_size=12), st.integers(30, 300))
def test_frames_of_lz4_end_anywhere_in_what_is_read_at_once(blocks: list[tuple[bytes, bool]], chunk: int) -> None:
    packed = b"".join(lz4_block(data, raw=raw) for data, raw in blocks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_CHUNK", chunk)
        patch.setattr(compression, "_TARGET", chunk)
        found = b"".join(decompressed(io.BytesIO(packed + LZ4_END), "f"))
    assert found == b"".join(data for data, _ in blocks)


@pytest.mark.parametrize("packed", [packed for packed, _ in CODECS[:1] + CODECS[2:]])
def test_a_stream_that_ends_in_a_block_is_refused(packed: bytes) -> None:
    for cut in (9, len(packed) - 1 - len(LZ4_END) * packed.startswith(b"LZ4")):
        with pytest.raises(CorruptError, match="SPARK_STATE_FILE"):
            list(decompressed(io.BytesIO(packed[:cut]), "f"))


HOSTILE = {
    "no codec": b"PK\x03\x04 and more",
    "empty": b"",
    "wrong checksum": lz4_block(TEXT, checksum=1),
    "huge block": b"LZ4Block" + struct.pack("<Biii", 0x20, 9, 2**31 - 1, 0) + b"x" * 9,
    "negative block": b"LZ4Block" + struct.pack("<Biii", 0x20, -9, 9, 0) + b"x" * 9,
    "unknown method": b"LZ4Block" + struct.pack("<Biii", 0x30, 1, 1, 0) + b"x",
    "lz4 of other length": b"LZ4Block" + struct.pack("<Biii", 0x20, 3, 900, 0) + b"abc",
    "snappy bomb": SNAPPY_HEAD + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x0f\x00",
    "snappy without length": SNAPPY_HEAD + struct.pack(">i", 5) + b"\xff" * 5,
    "lzf from before the start": b"ZV\x01" + struct.pack(">HH", 2, 3) + b"\x20\x07",
    "lzf of another size": b"ZV\x01" + struct.pack(">HH", 2, 9) + b"\x00a",
    "zstd": b"\x28\xb5\x2f\xfd" + b"\xff" * 30,
}


@pytest.mark.parametrize("packed", HOSTILE.values(), ids=HOSTILE)
def test_damaged_streams_are_refused(packed: bytes) -> None:
    with pytest.raises(CorruptError, match="SPARK_STATE_FILE"):
        list(decompressed(io.BytesIO(packed), "f"))
