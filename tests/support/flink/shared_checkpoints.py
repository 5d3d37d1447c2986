"""Chains of incremental checkpoints that share table files, as a job of Flink with one subtask writes them.

RocksDB itself makes the files (rocksdict). The states are those of `benchmarks.engines.flink_snapshots`.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Options, Rdict

from benchmarks.engines.flink_snapshots import GROUPS, group_of, header
from support.flink.metadata_bytes import Operator, file, in_place, metadata, relative, rocksdb, subtask

OPERATOR = "00000000000000000000000000000001"
STATES = ("balance", "name", "orders")
Model = dict[str, dict[int, Any]]


def stored_value(state: str, value: Any) -> bytes:
    if state == "balance":
        return struct.pack(">d", value)
    if state == "name":
        return bytes((len(value) + 1,)) + str(value).encode()
    return b",".join(struct.pack(">q", each) for each in value)


class SharedCheckpoints:
    """The job, whose checkpoints are in ``folder``; ``models`` are the values by state and key of each, by number."""

    def __init__(self, folder: Path, block_bytes: int = 512) -> None:
        self.folder, self._local = folder, folder.with_name(f"{folder.name}-rocksdb")
        options = Options(raw_mode=True)
        options.set_disable_auto_compactions(True)
        blocks = BlockBasedOptions()
        blocks.set_block_size(block_bytes)
        options.set_block_based_table_factory(blocks)
        self._database = Rdict(str(self._local), options)
        self._tables = {name: self._database.create_column_family(name, options) for name in STATES}
        self.now: Model = {name: {} for name in STATES}
        self.models: dict[int, Model] = {}
        (folder / "shared").mkdir(parents=True)

    def put(self, state: str, key: int, value: Any) -> None:
        self.now[state][key] = value
        self._tables[state][_stored_key(key)] = stored_value(state, value)

    def delete(self, state: str, key: int) -> None:
        self.now[state].pop(key, None)
        self._tables[state].delete(_stored_key(key))

    def delete_groups(self, state: str, first: int, stop: int) -> None:
        """Delete the keys of some key groups by one entry, as Flink does where a database has those of others."""
        for key in [each for each in self.now[state] if first <= group_of(each) < stop]:
            self.now[state].pop(key)
        self._tables[state].delete_range(bytes([first]), bytes([stop]))

    def compact(self) -> None:
        """Compact what the last checkpoint has."""
        for table in self._tables.values():
            table.compact_range(None, None)

    def checkpoint(self, *, compact: bool = False) -> int:
        """Take a checkpoint; return its number."""
        for table in self._tables.values():
            table.flush()
            if compact:
                table.compact_range(None, None)
        number = len(self.models) + 1
        place = self.folder / f"chk-{number}"
        place.mkdir()
        shared = []
        for each in self._database.live_files():
            name = Path(each["name"]).name
            stored = self.folder / "shared" / f"00000000-0000-4000-8000-{name[:-4]:>012}"
            if not stored.exists():
                stored.write_bytes((self._local / name).read_bytes())
            shared.append((name, file(f"file:{stored}", stored.stat().st_size)))
        private = []
        for path in (self._local / "CURRENT", max(self._local.glob("MANIFEST-*"))):
            (place / path.name).write_bytes(path.read_bytes())
            private.append((path.name, relative(path.name, path.stat().st_size)))
        handle = rocksdb(0, GROUPS, in_place(header()), shared, private)
        operator = Operator(OPERATOR, [subtask(keyed=handle)], parallelism=1, max_parallelism=GROUPS)
        (place / "_metadata").write_bytes(metadata(operator, version=3, checkpoint_id=number))
        self.models[number] = {state: dict(rows) for state, rows in self.now.items()}
        return number

    def close(self) -> None:
        for table in self._tables.values():
            table.close()
        self._database.close()


def _stored_key(key: int) -> bytes:
    return struct.pack(">BqB", group_of(key), key, 0)
