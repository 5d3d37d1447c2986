"""Layout of Kafka's record batches of format 2 (``DefaultRecordBatch``). Importing this module does not import numba.

base offset:int64 | size of the rest:int32 | leader epoch:int32 | magic:1 = 2 | CRC32C:uint32 of all that follows |
attributes:int16 | last offset delta:int32 | base timestamp:int64 | max timestamp:int64 | producer id:int64 |
producer epoch:int16 | base sequence:int32 | number of records:int32 | records
"""

from __future__ import annotations

HEADER = 61
FIXED = 12  # bytes in front of what the size counts
CRC_BEGIN = 21

# Columns of a table of batches
POSITION, SIZE, BASE_OFFSET, LAST_DELTA, COUNT, ATTRIBUTES, BASE_TIME, MAX_TIME, PRODUCER = range(9)
COLUMNS = 9

# Attributes
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

# What stopped a walk
BAD_MAGIC, BAD_SIZE, BAD_CHECKSUM = 1, 2, 3

RECORD_COLUMNS = 10
