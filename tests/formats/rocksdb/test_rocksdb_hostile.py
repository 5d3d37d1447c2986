"""Table files made to do harm, their checksums right: each is refused, and no length in them is trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.parameters import named
from support.rocksdb.rocksdb_scans import REFUSALS, scanned
from support.rocksdb.rocksdb_tables import (
    LZ4,
    PLAIN,
    PUT,
    SNAPPY,
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
    internal,
    properties_of,
    table,
    u32,
    varint,
    write_directory,
)

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
