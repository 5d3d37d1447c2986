"""Zips of RocksDB with an edit in them, under the names that they had.

RocksDB itself writes the edit (rocksdict), as one more table file; the other table files stay as they are, and the zip
names them as before. RocksDB compacts nothing meanwhile, so no stored value is merged or rewritten. OPTIONS stays that
of Spark, which a newer RocksDB would describe in words that Spark's own does not know.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import Options, Rdict, WriteBatch

from statestore.formats.edits import Target
from statestore.formats.errors import StateStoreError
from statestore.formats.places.disk_errors import disk_errors, storage_error
from statestore.formats.places.folder import Folder
from statestore.formats.places.rocksdb_forks import writing_rocksdb
from statestore.formats.rocksdb.rocksdb_errors import system_error
from statestore.formats.rocksdb.table_head import codec_without_rocksdict
from statestore.formats.spark.checkpoint.checkpoint_files import TABLES, DataFile, parse_json
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, not_editable
from statestore.formats.spark.edits.stored_edits import PartitionEdit
from statestore.formats.spark.providers.rocksdb_provider import family_prefix, unpacked_zip
from statestore.formats.spark.providers.zip_files import unzipped

_RAW = '{"raw_mode":true,"prefix_extractors":{}}'
"""The content of the file that rocksdict keeps beside a database whose keys and values are bytes."""
_COMPACTIONS = re.compile(rb"^(\s*disable_auto_compactions)=.*$", re.MULTILINE)
METADATA, OPTIONS, _CURRENT = "metadata", "OPTIONS-", "CURRENT"
_WRITTEN = ("MANIFEST-", _CURRENT)
_ROWS = 10_000
"""Rows of one batch that RocksDB takes."""
_KEYS, _INTERNAL_KEYS = "numKeys", "numInternalKeys"


def write_edited_zip(
    folder: Folder, file: DataFile, edit: PartitionEdit, delimiter: bytes, target: Target, written: str
) -> Mapping[str, int]:
    """Write a zip with an edit to the path ``written``, and its new table files to the folder beside that.

    Returns their sizes by path below the target.

    Raises the errors of `zip_rows`, and UnsupportedError EDIT_UNSUPPORTED for table files in a codec that RocksDB lacks
    here, StorageError.
    """
    path, where, sizes = folder.at(file.name).path, posixpath.dirname(written), {}
    found, members = unzipped(folder, file)
    version, _, text = members[METADATA].decode("utf-8", "replace").partition("\n")
    document = parse_json(text, path)
    with unpacked_zip(folder, file, delimiter, [(None, None)]) as opened:
        directory = opened.directory
        _refuse_codec(directory, path)
        try:
            changed = _write(directory, edit, internal_prefixes(found.families, document))
        except StateStoreError:
            raise
        except Exception as error:  # of RocksDB, which rocksdict raises as plain exceptions
            refusal = system_error(error)
            if refusal is not None:
                raise storage_error(refusal, "write", path) from error
            raise corrupt_file(path, f"RocksDB cannot add rows to it ({error})") from error
        tables = []
        for local in changed.tables:
            size = (directory / local).stat().st_size
            known = found.tables.get(local)
            name = known[0] if known is not None else f"{Path(local).stem}-{uuid.uuid4()}.sst"
            tables.append({"localFileName": local, "dfsSstFileName": name, "sizeBytes": size})
            if known is None:
                sizes[f"{where}/{TABLES}/{name}"] = size
                with (directory / local).open("rb") as table, target.create(f"{where}/{TABLES}/{name}") as copy:
                    shutil.copyfileobj(table, copy, 1 << 20)
        contents = {name: content for name, content in members.items() if name.startswith(OPTIONS)}
        for each in sorted(directory.iterdir()):
            if is_of_database(each):
                with disk_errors("read", each):
                    contents[each.name] = each.read_bytes()
        _change(document, tables, changed, path)
        contents[METADATA] = f"{version}\n{json.dumps(document, separators=(',', ':'))}".encode()
    data = zipped(contents)
    with target.create(written) as stream:
        stream.write(data)
    return {**sizes, written: len(data)}


@dataclass(frozen=True)
class _Changed:
    """The local names of a database's table files after an edit, and how many keys it has more than before: of users'
    families, and of Spark's own."""

    tables: list[str]
    keys: int
    internal_keys: int


def is_of_database(file: Path) -> bool:
    """Return whether a zip has a file of a database beside OPTIONS and metadata."""
    return file.name.startswith(_WRITTEN) or file.suffix == ".log"


def internal_prefixes(families: Mapping[str, int], document: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The first bytes of keys in families that are Spark's own."""
    types = document.get("columnFamilyTypeMap") or {}
    return tuple(family_prefix(number) for name, number in families.items() if types.get(name) is True)


def _write(directory: Path, edit: PartitionEdit, internal: tuple[bytes, ...]) -> _Changed:
    writing_rocksdb()
    with disk_errors("write", directory):
        (directory / "rocksdict-config.json").write_text(_RAW)
    (directory / METADATA).unlink()
    for file in directory.glob(f"{OPTIONS}*"):
        # RocksDB takes the options of a family from here, and not from those with which it is opened.
        file.write_bytes(_COMPACTIONS.sub(rb"\1=true", file.read_bytes()))
    options, _ = Options.load_latest(str(directory))
    more = {False: 0, True: 0}
    database = Rdict(str(directory), options=options)
    try:
        for keys, values in _sorted(edit.put.column(0), edit.put.column(1)):
            batch = WriteBatch(raw_mode=True)
            for key, value, known in zip(keys, values, _are_known(database, keys), strict=True):
                more[key.startswith(internal)] += not known
                batch.put(key, value)
            database.write(batch)
        for (keys,) in _sorted(edit.erased):
            batch = WriteBatch(raw_mode=True)
            for key, known in zip(keys, _are_known(database, keys), strict=True):
                more[key.startswith(internal)] -= known
                batch.delete(key)
            database.write(batch)
        database.flush()
        tables = sorted(str(each["name"]).lstrip("/") for each in database.live_files())
    finally:
        database.close()
    kept = sorted(each.name for each in directory.glob("*.sst"))
    if kept != tables:  # RocksDB has compacted some in spite of its options
        raise storage_error(OSError(f"found table files {kept}, expected {tables}"), "keep table files in", directory)
    return _Changed(tables, more[False], more[True])


def _are_known(database: Rdict, keys: Sequence[Any]) -> list[bool]:
    """Return which keys a database has."""
    return [value is not None for value in database.get(list(keys)) or ()]


def _sorted(keys: pa.BinaryArray, *columns: pa.BinaryArray) -> Iterator[list[list[bytes]]]:
    """Yield rows in the order of their keys, in which RocksDB takes them in a fraction of the time, some at a time."""
    order = pc.sort_indices(keys)
    for at in range(0, len(keys), _ROWS):
        some = order.slice(at, _ROWS)
        yield [column.take(some).to_pylist() for column in (keys, *columns)]


def _refuse_codec(directory: Path, path: str) -> None:
    codec = codec_without_rocksdict(directory)
    if codec is not None:
        raise not_editable(
            f"{path}: its table files are compressed with {codec}, which RocksDB is built without here; let the query "
            "run with spark.sql.streaming.stateStore.rocksdb.compression=lz4 until they are compacted, and edit then",
        )


def _change(document: dict[str, Any], tables: list[dict[str, Any]], changed: _Changed, path: str) -> None:
    """Give the metadata of a zip other table files and numbers of keys; all else in it stays as it is."""
    document["sstFiles"] = tables
    for name, more in ((_KEYS, changed.keys), (_INTERNAL_KEYS, changed.internal_keys)):
        count = document.get(name)
        if type(count) is int and count >= 0:  # otherwise Spark did not count them
            if count + more < 0:
                raise corrupt_file(path, f"found {name} {count}, expected at least {-more}: as many keys are erased")
            document[name] = count + more


def zipped(members: Mapping[str, bytes]) -> bytes:
    """The bytes of a zip with these members."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as found:
        for name, content in members.items():
            found.writestr(name, content)
    return stream.getvalue()
