"""Look-ups in a checkpoint in an object store whose table files have deletions of ranges of keys.

RocksDB then seeks to the end of a deleted range in the other files, so copies with parts of them do not serve.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict
from support.checkpoints.large_checkpoints import puts_of, words
from support.checkpoints.rocksdb_checkpoints import write_rocksdb_checkpoint, write_zip
from support.object_store import ObjectStore, object_store

import statestore
from statestore.formats.places.fetched_parts import forget_parts

KEYS = 100_000


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


@pytest.mark.slow
def test_keys_beside_a_deleted_range(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    none = np.empty(0, np.int64)
    write_rocksdb_checkpoint(folder, KEYS, 2, lambda batch, keys: (none if batch else np.arange(keys), none))
    names = sorted(words(np.arange(KEYS)).tolist())
    low, high = names[KEYS // 10].decode(), names[KEYS // 2].decode()
    rows = {key[16:28].decode(): key for key, _ in puts_of(np.arange(KEYS), np.zeros(KEYS, np.int64))}
    local, place = tmp_path / "checkpoint-rocksdb", folder / "state" / "0" / "0"
    database = Rdict(str(local), Options(raw_mode=True))
    database.delete_range(b"\0" + rows[low], b"\0" + rows[high])
    database.flush()
    write_zip(database, local, place, 2)
    database.close()
    tables = [file.stat().st_size for file in place.glob("SSTs/*")]
    assert max(tables) > 1 << 20 and len(tables) > 1
    here = statestore.inspect(folder).table("state")
    forget_parts()
    there = statestore.inspect(store.upload(folder, "deleted")).table("state")
    asked = [name.decode() for name in names[:: KEYS // 20]]
    found = [here.get(key) for key in asked]
    assert 0 < found.count(None) < len(found)
    assert [there.get(key) for key in asked] == found
