"""Checkpoints of the RocksDB provider without changelogs, of any size, as Spark writes them: a count by word.

A batch is a zip, and the table files beside it that RocksDB had at its end. RocksDB itself makes them (rocksdict).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rocksdict import BlockBasedOptions, Options, Rdict

from statestore.formats.kernels.arrays import Ints
from support.checkpoints.large_checkpoints import hashed_places, puts_of, write_metadata, written_by

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Written = Callable[[int, int], tuple[Ints, Ints]]
Model = dict[int, int]
MODEL_KEYS = 10_000


def write_rocksdb_checkpoint(
    folder: Path,
    keys: int,
    batches: int,
    written: Written = written_by,
    compact: Callable[[int], bool] = lambda batch: False,
    *,
    counted: Callable[[int, Ints], Ints] = lambda batch, put: np.full(len(put), batch),
    table_bytes: int = 8 << 20,
    block_bytes: int = 4096,
) -> list[Model]:
    """Write one partition; return the counts by number after each batch, of no more than `MODEL_KEYS` words.

    ``written`` returns the words that a batch puts and deletes, ``counted`` their counts. After a batch for which
    ``compact`` says so all table files are joined and written anew, in files of ``table_bytes``.
    """
    write_metadata(folder, batches, 1, PROVIDER)
    place, local = folder / "state" / "0" / "0", folder.with_name(f"{folder.name}-rocksdb")
    (place / "SSTs").mkdir(parents=True, exist_ok=True)
    opened = Options(raw_mode=True)
    opened.create_if_missing(True)
    opened.set_disable_auto_compactions(True)
    opened.set_write_buffer_size(64 << 20)
    opened.set_target_file_size_base(table_bytes)
    blocks = BlockBasedOptions()
    blocks.set_block_size(block_bytes)
    opened.set_block_based_table_factory(blocks)
    database = Rdict(str(local), opened)
    counts: Model = {}
    states: list[Model] = []
    for batch in range(batches):
        put, deleted = written(batch, keys)
        values = counted(batch, put)
        for key, value in puts_of(put, values):
            database[b"\0" + key] = b"\0" + value
        for key, _ in puts_of(deleted, np.full(len(deleted), batch)):
            database.delete(b"\0" + key)
        database.flush()
        if compact(batch):
            database.compact_range(None, None)
        if keys <= MODEL_KEYS:
            counts |= dict(zip(put.tolist(), values.tolist(), strict=True))
            for number in deleted.tolist():
                counts.pop(number, None)
            states.append(dict(counts))
        write_zip(database, local, place, batch + 1)
    database.close()
    return states


def write_partitions(folder: Path, keys: int, partitions: int) -> None:
    """Write each word in the partition where Spark puts it, in one batch. RocksDB's own files stay beside it."""
    write_metadata(folder, 1, partitions, PROVIDER, hashed=True)
    places = hashed_places(keys, partitions)
    for number in range(partitions):
        place, local = folder / "state" / "0" / str(number), folder.with_name(f"{folder.name}-rocksdb") / str(number)
        (place / "SSTs").mkdir(parents=True, exist_ok=True)
        local.parent.mkdir(exist_ok=True)
        database = Rdict(str(local), Options(raw_mode=True))
        mine = np.flatnonzero(places == number)
        for key, value in puts_of(mine, np.zeros(len(mine), np.int64)):
            database[b"\0" + key] = b"\0" + value
        database.flush()
        write_zip(database, local, place, 1)
        database.close()


def write_zip(database: Rdict, local: Path, place: Path, version: int) -> None:
    """Write what a database in ``local`` holds as a version of the partition at ``place``."""
    tables = []
    for each in database.live_files():
        name = Path(each["name"]).name
        data = local / name
        stored = f"{Path(name).stem}-00000000-0000-4000-8000-000000000000.sst"
        if not (place / "SSTs" / stored).exists():
            (place / "SSTs" / stored).write_bytes(data.read_bytes())
        tables.append({"localFileName": name, "dfsSstFileName": stored, "sizeBytes": data.stat().st_size})
    with zipfile.ZipFile(place / f"{version}.zip", "w") as members:
        members.writestr("metadata", "v1\n" + json.dumps({"sstFiles": tables, "logFiles": [], "numKeys": -1}))
        for file in sorted(local.iterdir()):
            if file.name == "CURRENT" or file.name.startswith(("MANIFEST-", "OPTIONS-")):
                members.write(file, file.name)
