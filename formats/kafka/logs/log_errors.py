"""Errors of readers of Kafka's log segments."""

from __future__ import annotations

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError

_RESTORE = "restore the file from a replica or a copy"


def damaged(file: str, position: int, found: str) -> CorruptError:
    """A batch at a byte of a file is not what a broker wrote."""
    return CorruptError(ErrorCode.KAFKA_LOG, f"file {file}, byte {position}: {found}; {_RESTORE}")


def wrong_checksum(file: str, position: int, stored: int, found: int) -> CorruptError:
    return damaged(file, position, f"found a record batch with CRC32C {found:#010x}, expected {stored:#010x}")


def unsupported(file: str, position: int, found: str) -> UnsupportedError:
    return UnsupportedError(ErrorCode.KAFKA_LOG_FORMAT, f"file {file}, byte {position}: {found}")
