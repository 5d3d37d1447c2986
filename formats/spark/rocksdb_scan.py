"""The rows of a RocksDB directory, through rocksdict: a seam for the project's own reader of table files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict

from statestore.formats.spark.damage import corrupt_file
from statestore.formats.spark.replay import ROW_SCHEMA


def scan_rocksdb(
    directory: Path,
    *,
    key_range: tuple[bytes | None, bytes | None] = (None, None),
    batch_rows: int = 65536,
    sst_files: Mapping[str, Path],
) -> Iterator[pa.RecordBatch]:
    """Rows (key, value) of the default column family in key order; ``key_range`` is [from, to).

    ``directory`` is the caller's own: links to ``sst_files`` are made in it.
    """
    for name, path in sst_files.items():
        (directory / name).symlink_to(path)
    try:
        table = Rdict(str(directory), options=Options(raw_mode=True), access_type=AccessType.read_only())
    except Exception as error:
        raise corrupt_file(str(directory), f"RocksDB can not open it ({error})") from error
    try:
        yield from _batches(table, key_range, batch_rows, str(directory))
    finally:
        table.close()


def _batches(
    table: Rdict, key_range: tuple[bytes | None, bytes | None], batch_rows: int, where: str
) -> Iterator[pa.RecordBatch]:
    first, stop = key_range
    rows = table.iter()
    rows.seek(first) if first else rows.seek_to_first()
    keys: list[bytes] = []
    values: list[bytes] = []
    while rows.valid() and (stop is None or rows.key() < stop):
        keys.append(rows.key())
        values.append(rows.value())
        rows.next()
        if len(keys) == batch_rows:
            yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=ROW_SCHEMA)
            keys, values = [], []
    try:
        rows.status()
    except Exception as error:
        raise corrupt_file(where, f"RocksDB stopped reading ({error})") from error
    if keys:
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=ROW_SCHEMA)
