"""Every error that statestore raises on purpose.

The tree is grouped by what the caller would do about it::

    StateStoreError
    ├── NotFoundError       (KeyError)    name something that exists
    ├── ConflictError                     read again, then retry
    ├── CorruptError                      restore the file from a copy
    ├── InvalidInputError   (ValueError)  correct the call
    ├── UnsupportedError                  use another type, kind or engine
    └── ReadOnlyError                     write somewhere else

Each error carries a stable upper-case ``code`` and a message that names the file or option, what was
found, what was expected and what to do. Errors survive pickling, because they cross Spark's process border.
"""

from __future__ import annotations


class StateStoreError(Exception):
    """Base of all errors of this package; ``str(error)`` is ``[CODE] message``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class NotFoundError(StateStoreError, KeyError):
    """A store, table, file, version or column that does not exist."""

    __str__ = StateStoreError.__str__


class ConflictError(StateStoreError):
    """Another writer changed the store in a way that this operation can not be repeated on."""


class CorruptError(StateStoreError):
    """Bytes on disk are not the bytes that were written."""


class InvalidInputError(StateStoreError, ValueError):
    """An argument, option, schema, time or row that can not be accepted."""


class UnsupportedError(StateStoreError):
    """A type, kind, format or engine feature that is not supported."""


class ReadOnlyError(StateStoreError):
    """A write to something that can only be read."""
