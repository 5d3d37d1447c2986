"""Zips of a new RocksDB database that has all rows of a partition, as Spark writes them for a version.

RocksDB itself writes the table files (rocksdict), from rows that come in the order of keys, without a log. OPTIONS is
that of Spark where the checkpoint has one, as a newer RocksDB describes options in words that Spark's own lacks.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from statestore.formats.bytes.byte_columns import cells_of, gather
from statestore.formats.edits import Target
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.folder import Folder
from statestore.formats.places.rocksdb_forks import writing_rocksdb
from statestore.formats.rocksdb.rocksdb_errors import system_error
from statestore.formats.spark.checkpoint.checkpoint_files import TABLES, DataFile, parse_json
from statestore.formats.spark.edits.zip_edits import METADATA, OPTIONS, internal_prefixes, is_of_database, zipped
from statestore.formats.spark.providers.zip_files import unzipped

_FAMILIES, _KINDS, _LARGEST = "columnFamilyMapping", "columnFamilyTypeMap", "maxColumnFamilyId"
_BUFFER = 64 << 20
_ROWS = 1 << 14  # of a batch that RocksDB writes at once
_BLOOM_BITS = 10


@dataclass(frozen=True)
class ZipForm:
    """What a zip says but for its rows: the metadata that its release of Spark writes, and RocksDB's OPTIONS.

    ``families`` are the ids with which keys begin, none of a store without families.
    """

    table_format: int
    document: Mapping[str, Any] = field(default_factory=dict)
    families: Mapping[str, int] = field(default_factory=dict)
    options: bytes | None = None

    def with_families(self, families: Mapping[str, int]) -> ZipForm:
        """The form with families and their ids. Those that the metadata does not know are Spark's own by their name."""
        kinds = dict(self.document.get(_KINDS) or {})
        kinds.update({name: name.startswith("$") for name in families if name not in kinds})
        largest = max([*families.values(), int(self.document.get(_LARGEST) or 0)], default=0)
        said = {_FAMILIES: dict(families), _KINDS: kinds, _LARGEST: largest}
        return ZipForm(self.table_format, {**self.document, **said}, families, self.options)


def form_of(folder: Folder, file: DataFile, table_format: int) -> ZipForm:
    """The form of a zip of the checkpoint. Raises the errors of `unzipped`."""
    found, members = unzipped(folder, file)
    text = members[METADATA].decode("utf-8", "replace").partition("\n")[2]
    options = next((content for name, content in sorted(members.items()) if name.startswith(OPTIONS)), None)
    return ZipForm(table_format, dict(parse_json(text, folder.at(file.name).path)), found.families, options)


def write_fresh_zip(
    directory: Path, rows: Iterable[pa.RecordBatch], form: ZipForm, target: Target, where: str, name: str
) -> Mapping[str, int]:
    """Write a zip with these rows and its table files below ``where``; return their sizes by path below the target.

    ``directory`` is empty, and no longer needed afterwards. Rows come in runs in the order of keys. Raises
    StorageError.
    """
    counts = _write(directory, rows, form)
    sizes, tables = {}, []
    for local in sorted(directory.glob("*.sst")):
        shared, size = f"{local.stem}-{uuid.uuid4()}.sst", local.stat().st_size
        tables.append({"localFileName": local.name, "dfsSstFileName": shared, "sizeBytes": size})
        path = f"{where}/{TABLES}/{shared}"
        sizes[path] = size
        with local.open("rb") as table, target.create(path) as copy:
            shutil.copyfileobj(table, copy, 1 << 20)
    members = {}
    for each in sorted(directory.iterdir()):
        if is_of_database(each):
            with disk_errors("read", each):
                members[each.name] = each.read_bytes()
        elif each.name.startswith(OPTIONS):
            members[each.name] = each.read_bytes() if form.options is None else form.options
    document = {**form.document, "sstFiles": tables, "numKeys": counts[0]}
    if "numInternalKeys" in form.document:
        document["numInternalKeys"] = counts[1]
    members[METADATA] = f"v1\n{json.dumps(document, separators=(',', ':'))}".encode()
    data = zipped(members)
    path = f"{where}/{name}"
    with target.create(path) as stream:
        stream.write(data)
    return {**sizes, path: len(data)}


def _write(directory: Path, rows: Iterable[pa.RecordBatch], form: ZipForm) -> tuple[int, int]:
    """Write the database; return how many keys it has in families of users, and in Spark's own."""
    writing_rocksdb()
    internal = internal_prefixes(form.families, form.document)
    counts = [0, 0]
    with _errors_of(directory):
        database = Rdict(str(directory), _options(form.table_format))
        try:
            unlogged = WriteOptions()
            setattr(unlogged, "disable_wal", True)  # noqa: B010 - its stub takes the attribute for a method
            database.set_write_options(unlogged)
            for batch in rows:
                own = _count_of(batch, internal)
                counts[0] += batch.num_rows - own
                counts[1] += own
                for at in range(0, batch.num_rows, _ROWS):
                    database.write(_written(batch.slice(at, _ROWS)))
            database.flush()
            tables = sorted(str(each["name"]).lstrip("/") for each in database.live_files())
        finally:
            database.close()
    kept = sorted(each.name for each in directory.glob("*.sst"))
    if kept != tables:
        raise storage_error(OSError(f"found table files {kept}, expected {tables}"), "keep table files in", directory)
    return counts[0], counts[1]


def _options(table_format: int) -> Options:
    options, tables = Options(raw_mode=True), BlockBasedOptions()
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_BUFFER)
    options.set_disable_auto_compactions(True)  # so that no table file is replaced while it is copied
    tables.set_format_version(table_format)
    tables.set_bloom_filter(_BLOOM_BITS, False)
    options.set_block_based_table_factory(tables)
    return options


def _written(batch: pa.RecordBatch) -> WriteBatch:
    made = WriteBatch(raw_mode=True)
    put = made.put
    for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
        put(key, value)
    return made


def _count_of(batch: pa.RecordBatch, prefixes: tuple[bytes, ...]) -> int:
    """The number of rows whose keys begin with one of the ids of families."""
    if not prefixes or not batch.num_rows:
        return 0
    keys = cells_of(batch.column(0))
    ids = [int.from_bytes(prefix, "little", signed=True) for prefix in prefixes]
    return int(np.isin(gather(keys.data, keys.start, "<i2"), ids).sum())


@contextmanager
def _errors_of(directory: Path) -> Iterator[None]:
    """Raise what RocksDB reports as plain exceptions as StorageError."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:  # which alone rocksdict raises
            raise
        raise storage_error(system_error(error) or OSError(str(error)), "write", directory) from error
