"""Damaged and hostile RocksDB directories: the scanner gives the right rows or refuses, and nothing else happens."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pytest
from support.parameters import mostly_slow
from support.rocksdb.rocksdb_scans import outcome
from support.rocksdb.rocksdb_tables import (
    CRC32C,
    LZ4,
    NO_CHECKSUM,
    PLAIN,
    PUT,
    SNAPPY,
    XXHASH,
    XXHASH64,
    ZLIB,
    ZSTD,
    Form,
    Table,
    Writer,
    block_bytes,
    compressed,
    expected,
    index_bytes,
    internal,
    properties_of,
    runs,
    stored,
    table,
    write_directory,
)

from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.key_samples import SAMPLES, sample_keys
from statestore.formats.rocksdb.table_index import read_index, spans_of

FORMS = [
    Form(),
    Form(codec=LZ4, checksum=CRC32C, block_entries=30),
    Form(codec=SNAPPY, version=6, checksum=XXHASH64, two_level=True, block_entries=20),
    Form(codec=ZSTD, version=2, checksum=XXHASH, index_restarts=16),
    Form(codec=ZLIB, version=6, index_restarts=4, block_entries=50),
]
HALF = KeyRange(b"key-0030", b"key-0090")


def changed(data: bytes, chance: random.Random) -> bytes:
    """The file with one to six bytes flipped, its end cut off, or two stretches exchanged."""
    found = bytearray(data)
    what = chance.randrange(8)
    if what == 0:
        return data[: chance.randrange(len(data))]
    if what == 1:
        size = chance.choice((1, 4, 16, 64))
        a, b = (chance.randrange(max(1, len(data) - size)) for _ in range(2))
        found[a : a + size], found[b : b + size] = data[b : b + size], data[a : a + size]
        return bytes(found[: len(data)])
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data)) if what < 6 else len(data) - 1 - chance.randrange(min(60, len(data)))
        found[at] ^= chance.choice((1, 128, 255, chance.randrange(1, 256)))
    return bytes(found)


def check_damage(directory: Path, form: Form, name: str, rounds: int, seed: int) -> int:
    """The number of changed files that were refused; where there are checksums no row may be wrong."""
    chance, right = random.Random(seed), expected()
    half = [row for row in right if b"key-0030" <= row[0] < b"key-0090"]
    file, refused = directory / name, 0
    data = file.read_bytes()
    for number in range(rounds):
        within = HALF if number % 3 == 0 else KeyRange()
        found = changed(data, chance)
        file.write_bytes(found)
        rows = outcome(directory, within, range_bytes=(1, 700, 1 << 20)[number % 3])
        refused += rows is None
        # A MANIFEST that ends behind one of its records is that of an earlier time, for RocksDB as well.
        earlier = name.startswith("MANIFEST") and data.startswith(found)
        if form.checksum != NO_CHECKSUM and rows is not None and not earlier:
            assert rows == (half if within is HALF else right)
    file.write_bytes(data)
    assert outcome(directory) == right
    return refused


EACH_FORM = [*FORMS, Form(checksum=NO_CHECKSUM), Form(checksum=NO_CHECKSUM, version=6, codec=LZ4)]


@pytest.mark.parametrize("form", mostly_slow(EACH_FORM, EACH_FORM[::3]))
def test_table_files_with_bytes_changed(form: Form, tmp_path: Path) -> None:
    refused = check_damage(stored(tmp_path / "db", form), form, "000010.sst", 60, 1)
    assert refused > (20 if form.checksum == NO_CHECKSUM else 40)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-000005"])
def test_manifests_with_bytes_changed(name: str, tmp_path: Path) -> None:
    directory = stored(tmp_path / "db", Form())
    assert check_damage(directory, Form(), name, 120, 2) > 60


def payloads_changed(file: Table, chance: random.Random) -> Table:
    """The file with other content in one block, under a right checksum."""
    block_handle = chance.choice([*file.index, file.properties, file.metaindex, *chance.choices(file.blocks, k=4)])
    payload = bytearray(file.payload(block_handle))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(payload)) if chance.random() < 0.6 else -1 - chance.randrange(min(12, len(payload)))
        payload[at] = chance.choice((0, 1, 127, 128, 255, payload[at] ^ 1, chance.randrange(256)))
    kind = chance.choice((PLAIN, SNAPPY, ZLIB, LZ4, ZSTD, 3, 9)) if chance.random() < 0.05 else None
    return file.with_payload(block_handle, bytes(payload), kind)


def check_hostile(directory: Path, form: Form, rounds: int, seed: int) -> int:
    """The number of tables with other content under right checksums that were refused."""
    chance, refused = random.Random(seed), 0
    file = table(runs()[0], form)
    for number in range(rounds):
        (directory / "000010.sst").write_bytes(payloads_changed(file, chance).data)
        within = HALF if number % 3 == 0 else KeyRange()
        refused += outcome(directory, within, range_bytes=(1, 700, 1 << 20)[number % 3]) is None
    return refused


@pytest.mark.parametrize("form", FORMS)
def test_content_changed_under_right_checksums(form: Form, tmp_path: Path) -> None:
    assert check_hostile(stored(tmp_path / "db", form), form, 80, 3) > 20


@pytest.mark.parametrize("within", [KeyRange(), KeyRange(b"key-0000", b"key-0004"), KeyRange(b"key-0140", None)])
@pytest.mark.parametrize("range_bytes", [1, 1 << 20])
def test_blocks_that_changed_places(within: KeyRange, range_bytes: int, tmp_path: Path) -> None:
    """Each block matches its checksum, which before format 6 does not depend on the block's position."""
    entries = [(b"key-%04d" % number, number + 1, PUT, b"v%04d" % number) for number in range(150)]
    file = table(entries, Form(block_entries=10))
    first, last = file.blocks[0], file.blocks[-1]
    assert first.size == last.size
    a, b = file.payload(first), file.payload(last)
    swapped = file.with_payload(first, b).with_payload(last, a)
    directory = write_directory(tmp_path / "db", [(0, entries, swapped)])
    assert outcome(directory, within, range_bytes=range_bytes) is None


LOOKED_UP = [Form(), Form(codec=LZ4, checksum=CRC32C), Form(version=6), Form(version=4, index_restarts=16)]


def test_indexes_for_look_ups(tmp_path: Path) -> None:
    """An index that is read to copy or cut parts of a file is not verified: it gives parts of the file, or nothing."""
    chance, read_some = random.Random(4), 0
    for number in range(400):
        form = LOOKED_UP[number % 4]
        file = table(runs()[0], form)
        data = changed(file.data, chance) if number % 2 else payloads_changed(file, chance).data
        (tmp_path / "file").write_bytes(data)
        with (tmp_path / "file").open("rb") as source:
            read = partial(read_at, source.fileno())
            index = read_index(len(data), read)
            keys = sample_keys(len(data), read)
            assert len(keys) <= 2 * SAMPLES
            if index is not None:
                read_some += 1
                ranges = [(b"key-0030", b"key-0090"), (b"z", None), (None, b"a")]
                spans = [block_handle for span in spans_of(index, len(data), ranges) for block_handle in span]
                assert spans == sorted(spans) and spans[0] >= 0 and spans[-1] <= len(data)
    assert 100 < read_some < 400


@pytest.mark.parametrize("codec", [LZ4, SNAPPY, ZSTD])
def test_a_compressed_index_that_is_damaged(codec: int) -> None:
    writer, entries = Writer(Form()), runs()[0]
    block_handle = writer.add(block_bytes([(internal(*entry[:3]), entry[3]) for entry in entries], 16))
    index = index_bytes([(internal(*entries[-1][:3]), block_handle)], Form())
    file = writer.finish([(b"", block_handle)], properties_of(entries), compressed(index, codec))
    end = file.index[-1].offset + file.index[-1].size
    for at in range(end - 12, end):
        data = bytearray(file.data)
        data[end] = codec
        data[at] ^= 0xFF

        def read(offset: int, size: int, data: bytearray = data) -> bytes:
            return bytes(data[offset : offset + size])

        found = read_index(len(data), read)
        assert found is None or spans_of(found, len(data), [(b"a", b"z")])


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    return os.pread(descriptor, size, offset)
