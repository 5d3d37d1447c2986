"""Damaged and hostile table files: the scanner gives the right rows or refuses, and trusts no length in them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.parameters import mostly_slow, named
from support.rocksdb.rocksdb_scans import REFUSALS, outcome, scanned
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
    BlockHandle,
    Entry,
    Form,
    Table,
    Writer,
    block_bytes,
    compressed,
    entry_bytes,
    expected,
    index_bytes,
    internal,
    properties_of,
    runs,
    stored,
    table,
    u32,
    varint,
    write_directory,
)

from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.table_index import SAMPLES, read_index, sample_keys, spans_of

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
    assert check_hostile(stored(tmp_path / "db", form), form, 50, 3) > 12


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
    files = [table(runs()[0], form) for form in LOOKED_UP]
    for number in range(400):
        file = files[number % 4]
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


# Table files made to do harm, their checksums right: each is refused, and no length in them is trusted


ENTRIES: list[Entry] = [(b"a", 1, PUT, b"1"), (b"b", 2, PUT, b"2")]
KEY, LAST = internal(b"a", 1, PUT), internal(b"b", 2, PUT)
COUNT_ONE = u32(0) + u32(1)
BIG = (1 << 32) - 1


def of_block(payload: bytes, kind: int = PLAIN, form: Form = Form()) -> Table:  # noqa: B008 (frozen)
    """A table of one block."""
    writer = Writer(form)
    return writer.finish([(LAST, writer.add(payload, kind))], properties_of(ENTRIES))


def of_index(make: Callable[[BlockHandle], bytes], form: Form = Form()) -> Table:  # noqa: B008 (frozen)
    """A table of one good block, with an index made from its handle."""
    writer = Writer(form)
    block_handle = writer.add(block_bytes([(internal(*entry[:3]), entry[3]) for entry in ENTRIES], 16))
    return writer.finish([(LAST, block_handle)], properties_of(ENTRIES), make(block_handle))


def restarts(count: int) -> bytes:
    return u32(0) + u32(count)


def index_block(*entries: tuple[int, bytes, bytes]) -> bytes:
    """An index block of (bytes shared, own bytes, handle)."""
    return b"".join(entry_bytes(*entry, sized=False) for entry in entries) + COUNT_ONE


def far(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


GOOD = entry_bytes(0, KEY, b"1")
NEGATIVE = varint(2 * (1 << 61) - 1)
BLOCKS = {
    "nothing": of_block(b""),
    "no count": of_block(b"\0\0"),
    "count beyond the block": of_block(GOOD + restarts(1000)),
    "greatest count": of_block(GOOD + restarts((1 << 28) - 1)),
    "unknown flags of the count": of_block(GOOD + restarts(1 | 1 << 28)),
    "buckets without their number": of_block(u32(1 << 31)[:4]),
    "more buckets than bytes": of_block(GOOD + b"\xff\xff" + u32(1 | 1 << 31)),
    "key beyond the block": of_block(varint(0) + varint(1000) + varint(0) + KEY + restarts(1)),
    "value beyond the block": of_block(varint(0) + varint(9) + varint(1000) + KEY + restarts(1)),
    "greatest sizes": of_block(varint(BIG) * 3 + KEY + restarts(1)),
    "sizes of six bytes": of_block(b"\xff" * 6 + KEY + restarts(1)),
    "size without an end": of_block(b"\0\x80" + restarts(1)),
    "shares more than there is": of_block(varint(9) + varint(0) + varint(0) + restarts(1)),
    "shares more than the key before": of_block(GOOD + varint(10) + varint(8) + varint(0) + KEY + restarts(1)),
    "no internal key": of_block(entry_bytes(0, b"7 bytes", b"") + restarts(1)),
    "key shorter after sharing": of_block(GOOD + entry_bytes(2, b"12345", b"") + restarts(1)),
    "unknown type": of_block(entry_bytes(0, internal(b"a", 1, 0x16), b"1") + restarts(1)),
    "one version twice": of_block(GOOD + GOOD + restarts(1)),
    "keys from great to small": of_block(entry_bytes(0, LAST, b"2") + GOOD + restarts(1)),
    "fewer entries than told": of_block(GOOD + restarts(1)),
    "more entries than told": of_block(
        b"".join(entry_bytes(0, internal(b"a", 9 - i, PUT), b"") for i in range(3)) + restarts(1)
    ),
    "restarts read as entries": of_block(GOOD + entry_bytes(0, LAST, b"2") + u32(0) * 3 + u32(0)),
    "bzip2": of_block(b"BZh9", 3),
    "unknown codec": of_block(b"abcd", 200),
}
for _codec in (SNAPPY, ZLIB, LZ4, 5, ZSTD):
    _name = {SNAPPY: "snappy", ZLIB: "zlib", LZ4: "lz4", 5: "lz4hc", ZSTD: "zstd"}[_codec]
    _plain = block_bytes([(internal(*entry[:3]), entry[3]) for entry in ENTRIES], 16)
    _good = compressed(_plain, LZ4 if _codec == 5 else _codec)
    BLOCKS |= {
        f"{_name}: nothing": of_block(b"", _codec),
        f"{_name}: only a length": of_block(varint(20), _codec),
        f"{_name}: length 0": of_block(b"\0", _codec),
        f"{_name}: length without an end": of_block(b"\x80\x80", _codec),
        f"{_name}: length of 4 GiB": of_block(varint(BIG) + _good[1:], _codec),
        f"{_name}: length of 1 GiB": of_block(varint(1 << 30) + _good[1:], _codec),
        f"{_name}: length of more than 32 bits": of_block(b"\xff" * 5 + _good[1:], _codec),
        f"{_name}: one byte more": of_block(varint(len(_plain) + 1) + _good[1:], _codec),
        f"{_name}: one byte less": of_block(varint(len(_plain) - 1) + _good[1:], _codec),
        f"{_name}: cut": of_block(_good[:-3], _codec),
    }
INDEXES = {
    "nothing": of_index(lambda block_handle: b""),
    "count beyond the block": of_index(
        lambda block_handle: index_block((0, LAST, block_handle.encoded))[:-4] + u32(500)
    ),
    "behind the end": of_index(lambda block_handle: index_block((0, LAST, far(10_000, 20)))),
    "greatest offset": of_index(lambda block_handle: index_block((0, LAST, far((1 << 62) - 1, 20)))),
    "offset of 64 bits": of_index(lambda block_handle: index_block((0, LAST, far((1 << 64) - 1, 20)))),
    "greatest size": of_index(lambda block_handle: index_block((0, LAST, far(0, (1 << 62) - 1)))),
    "sum beyond 63 bits": of_index(
        lambda block_handle: index_block(
            (0, KEY, far((1 << 62) - 1, 1 << 61)), (1, LAST, varint(0)), (1, LAST, varint(2 * ((1 << 61) - 20)))
        )
    ),
    "shrinking size": of_index(lambda block_handle: index_block((0, KEY, block_handle.encoded), (1, LAST, NEGATIVE))),
    "one block twice": of_index(
        lambda block_handle: index_block((0, KEY, block_handle.encoded), (0, LAST, block_handle.encoded))
    ),
    "blocks backwards": of_index(lambda block_handle: index_block((0, KEY, far(30, 5)), (0, LAST, far(0, 5)))),
    "overlapping blocks": of_index(
        lambda block_handle: index_block((0, KEY, block_handle.encoded), (0, LAST, far(1, block_handle.size)))
    ),
    "block of nothing": of_index(lambda block_handle: index_block((0, LAST, far(0, 0)))),
    "block too short": of_index(lambda block_handle: index_block((0, LAST, far(0, block_handle.size - 1)))),
    "block too long": of_index(lambda block_handle: index_block((0, LAST, far(0, block_handle.size + 1)))),
    "no blocks": of_index(lambda block_handle: COUNT_ONE),
    "separator of 7 bytes": of_index(lambda block_handle: index_block((0, LAST[2:], block_handle.encoded))),
    "separator before its block": of_index(lambda block_handle: index_block((0, KEY, block_handle.encoded))),
    "shares more than there is": of_index(lambda block_handle: index_block((3, LAST, varint(0)))),
    "key beyond the block": of_index(lambda block_handle: varint(0) + varint(4000) + LAST + COUNT_ONE),
    "half a handle": of_index(lambda block_handle: index_block((0, LAST, varint(0)))),
    "itself as a block": of_index(
        lambda block_handle: index_block((0, LAST, far(block_handle.offset + block_handle.size + 5, 20)))
    ),
    "old: value beyond the block": of_index(
        lambda block_handle: varint(0) + varint(9) + varint(200) + LAST + block_handle.encoded + COUNT_ONE,
        Form(version=2),
    ),
    "old: value longer than a handle": of_index(
        lambda block_handle: block_bytes([(LAST, block_handle.encoded + b"\0")], 1), Form(version=2)
    ),
    "two levels: none below": of_index(lambda block_handle: COUNT_ONE, Form(two_level=True)),
    "two levels: data block as index": of_index(
        lambda block_handle: index_block((0, LAST, block_handle.encoded)), Form(two_level=True)
    ),
    "two levels: a part that is the top": of_index(
        lambda block_handle: index_block(
            (0, LAST, far(block_handle.size + 5, 30)), (0, LAST, far(block_handle.size + 5, 30))
        ),
        Form(two_level=True),
    ),
    "two levels: behind the end": of_index(
        lambda block_handle: index_block((0, LAST, far(5000, 30))), Form(two_level=True)
    ),
    "two levels: huge": of_index(lambda block_handle: index_block((0, LAST, far(0, 1 << 40))), Form(two_level=True)),
}
METADATA = {
    "entries that are not there": table(ENTRIES, Form(properties={b"rocksdb.num.entries": varint(3)})),
    "greatest number of entries": table(ENTRIES, Form(properties={b"rocksdb.num.entries": varint((1 << 64) - 1)})),
    "number of 11 bytes": table(ENTRIES, Form(properties={b"rocksdb.num.entries": b"\xff" * 10 + b"\1"})),
    "number cut": table(ENTRIES, Form(properties={b"rocksdb.num.entries": b"\xff"})),
    "index type 3": table(ENTRIES, Form(properties={b"rocksdb.block.based.table.index.type": u32(3)})),
    "one level said to be two": table(ENTRIES, Form(properties={b"rocksdb.block.based.table.index.type": u32(2)})),
    "two levels said to be one": table(
        ENTRIES, Form(two_level=True, properties={b"rocksdb.block.based.table.index.type": u32(0)})
    ),
    "handles said to be whole": table(ENTRIES, Form(properties={b"rocksdb.index.value.is.delta.encoded": varint(0)})),
    "handles said to be changes": table(
        ENTRIES, Form(version=2, properties={b"rocksdb.index.value.is.delta.encoded": varint(1)})
    ),
    "no properties": table(ENTRIES, Form(meta={b"rocksdb.properties": b""})),
    "properties far away": table(ENTRIES, Form(meta={b"rocksdb.properties": far(1 << 63, 1 << 63)})),
    "properties behind the end": table(ENTRIES, Form(meta={b"rocksdb.properties": far(0, 1 << 20)})),
    "properties at the data": table(ENTRIES, Form(meta={b"rocksdb.properties": far(0, 27)})),
}


def refused(path: Path, file: Table) -> None:
    directory = write_directory(path / "db", [(0, ENTRIES, file)])
    with pytest.raises(REFUSALS):
        scanned(directory)


@pytest.mark.parametrize("files", [BLOCKS, INDEXES, METADATA], ids=["blocks", "indexes", "metadata"])
def test_hostile_files_are_refused(files: dict[str, Table], tmp_path: Path) -> None:
    for number, (name, file) in enumerate(files.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        with named(name):
            refused(folder, file)
