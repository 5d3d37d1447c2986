"""All that the files of a folder hold, as they are and decompressed, so that no trace of something is overlooked."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from statestore.formats.rocksdb.fields import block_entries
from statestore.formats.rocksdb.stored_blocks import TRAILER, BlockHandle, decompressed
from statestore.formats.rocksdb.table_file import open_table
from statestore.formats.rocksdb.table_head import read_head
from statestore.formats.spark.providers import compression

_STATE_FILES = (".delta", ".snapshot", ".changelog")


def plain_contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of each file: its path and its bytes, decompressed bytes, members of zips, rows of tables."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, content = str(path.relative_to(folder)), path.read_bytes()
        yield name, name.encode()
        yield name, content
        if path.suffix in _STATE_FILES:
            yield name, b"".join(compression.decompressed(io.BytesIO(content), name))
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as members:
                for member in members.namelist():
                    yield f"{name}: {member}", members.read(member)
        elif path.suffix == ".sst":
            yield name, b"|".join(_blocks(path))


def files_with(folder: Path, parts: set[bytes]) -> set[str]:
    """The files in which one of these parts is found."""
    every = b"|".join(content for _, content in plain_contents(folder))
    there = [part for part in parts if part in every]
    return {name for name, content in plain_contents(folder) if any(part in content for part in there)}


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the blocks of a table file, decompressed, and each key and value of its rows, tombstones included."""
    size = path.stat().st_size
    content = path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        head = read_head(descriptor, size, str(path))
    finally:
        os.close(descriptor)

    def plain(at: BlockHandle) -> bytes:
        return decompressed(content[at.offset : at.offset + at.size], content[at.offset + at.size], head.version)

    yield plain(head.index)
    yield from (part for item in head.properties.items() for part in item)
    table = open_table(path, size, b"")
    ends = table.offset + table.size + TRAILER
    assert len(ends), path
    for offset, length in zip(table.offset.tolist(), table.size.tolist(), strict=True):
        block = plain(BlockHandle(offset, length))
        yield block
        yield from (part for entry in block_entries(block) for part in entry)
