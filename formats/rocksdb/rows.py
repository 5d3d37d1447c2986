"""Schema and size of the batches that a scan of a RocksDB directory returns."""

from __future__ import annotations

import pyarrow as pa

ROW_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
DEFAULT_FAMILY = "default"
BATCH_ROWS = 65536
BATCH_BYTES = 32 << 20
"""Bytes of values at which a batch of wide rows ends."""
