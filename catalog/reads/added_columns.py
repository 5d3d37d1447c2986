"""The columns that a history and a change feed have besides those of the table, and the kinds of changes."""

from __future__ import annotations

import pyarrow as pa

from statestore.formats.values.types import TIME

VERSION_COLUMN = "_commit_version"
CHANGE_COLUMNS = (
    pa.field("valid_from", TIME),
    pa.field("_change_type", pa.string()),
    pa.field(VERSION_COLUMN, pa.int64()),
    pa.field("_commit_timestamp", TIME),
)
INSERT, PREIMAGE, POSTIMAGE, DELETE = range(4)
CHANGE_TYPES = (
    "insert",
    "update_preimage",
    "update_postimage",
    "delete",
)  # not an Arrow array, which would load pandas
