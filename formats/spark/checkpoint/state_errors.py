"""Errors about a Spark checkpoint: damaged, missing and unsupported parts, and what cannot be edited."""

from __future__ import annotations

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    UnsupportedError,
)

_DAMAGED = "; the state or its schema file is damaged: restore both from a copy"


def corrupt_row(problem: str) -> CorruptError:
    """The error for a row that does not follow its schema; ``problem`` names what was found and expected."""
    return CorruptError(ErrorCode.SPARK_STATE_ROW, f"{problem}{_DAMAGED}")


def corrupt_file(path: str, problem: str) -> CorruptError:
    """The error for a damaged file of the checkpoint."""
    return CorruptError(ErrorCode.SPARK_STATE_FILE, f"{path}: {problem}; restore the file from a copy")


def without_advice(error: StateStoreError) -> str:
    """The text of an error without the advice to restore what it is about."""
    return error.message.partition("; restore ")[0].removesuffix(_DAMAGED)


def missing(what: str, problem: str) -> NotFoundError:
    """The error for a part of the checkpoint that does not exist."""
    return NotFoundError(ErrorCode.SPARK_STATE_NOT_FOUND, f"{what}: {problem}")


def unsupported(what: str) -> UnsupportedError:
    """The error for a type, encoding or provider that cannot be read."""
    return UnsupportedError(ErrorCode.SPARK_STATE_UNSUPPORTED, what)


def not_editable(what: str) -> UnsupportedError:
    """The error for state that cannot be edited in its form; ``what`` says which, and what to do."""
    return UnsupportedError(ErrorCode.EDIT_UNSUPPORTED, what)


def refused(what: str) -> InvalidInputError:
    """The error for rows that the engine would not go on from; ``what`` says which, and what to do."""
    return InvalidInputError(ErrorCode.EDIT_REFUSED, what)
