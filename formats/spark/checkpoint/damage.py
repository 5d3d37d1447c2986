"""What readers of a Spark checkpoint say of bytes and files that are not what they should be."""

from __future__ import annotations

from statestore.formats.errors import CorruptError, NotFoundError, UnsupportedError

MAX_METADATA_BYTES = 64 << 20
"""No JSON, schema or manifest file of a checkpoint is larger; a file that is, is not read."""


def corrupt_row(found: str) -> CorruptError:
    """A row that does not follow its schema; ``found`` says what was found and expected."""
    return CorruptError(
        "SPARK_STATE_ROW", f"{found}; the state or its schema file is damaged: restore both from a copy"
    )


def corrupt_file(path: str, found: str) -> CorruptError:
    """A file of the checkpoint that is damaged."""
    return CorruptError("SPARK_STATE_FILE", f"{path}: {found}; restore the file from a copy, or read an earlier batch")


def missing(what: str, found: str) -> NotFoundError:
    """A part of the checkpoint that does not exist."""
    return NotFoundError("SPARK_STATE_NOT_FOUND", f"{what}: {found}")


def unsupported(what: str) -> UnsupportedError:
    """A type, encoding or provider that cannot be read."""
    return UnsupportedError("SPARK_STATE_UNSUPPORTED", what)
