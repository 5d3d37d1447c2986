"""How a keyed backend uses RocksDB: the options of its database, and cursors over rows."""

from __future__ import annotations

from typing import Any

from rocksdict import BlockBasedOptions, Cache, DBCompactionStyle, Options, ReadOptions, UniversalCompactOptions

CACHE_BYTES = 50 << 20
WRITE_BUFFER_BYTES = 16 << 20
SORTED_RUNS = 6
"""A read may have to search this many runs of table files before some of them are merged."""


def database_options() -> Any:
    """Return the options of the database and of each column family."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(1)
    options.set_compaction_style(DBCompactionStyle.universal())  # rewrites little, so snapshots share most files
    options.set_universal_compaction_options(UniversalCompactOptions())
    options.set_level_zero_file_num_compaction_trigger(SORTED_RUNS)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options


class Cursor:
    """A native iterator from a key on, with its options, because it reads its bound from their memory."""

    def __init__(self, table: Any, first: bytes, stop: bytes | None) -> None:
        self.begun = False
        self.table = table  # keeps its database, which may be replaced
        self.reading = ReadOptions()
        if stop is not None:
            self.reading.set_iterate_upper_bound(stop)
        self.rows = table.iter(self.reading)
        self.rows.seek(first) if first else self.rows.seek_to_first()
