"""Every error that statestore raises on purpose.

The tree is grouped by what the caller would do about it::

    StateStoreError
    ├── NotFoundError       (KeyError)    name something that exists
    ├── ConflictError                     read again, then retry
    ├── CorruptError                      restore the file from a copy
    ├── InvalidInputError   (ValueError)  correct the call
    ├── StorageError        (OSError)     free the disk or the file descriptors, then repeat the call
    │   └── CommitUnknownError            ask for the outcome, or repeat the call on the same handle
    ├── UnsupportedError                  use another type, kind or engine
    └── ReadOnlyError                     write somewhere else

Each error carries a stable upper-case ``code`` (`statestore.formats.error_codes`) and a message that names the file or
option, what was found, what was expected and what to do. Errors survive pickling, because they cross Spark's process
border.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statestore.formats.error_codes import ErrorCode


class StateStoreError(Exception):
    """Base of all errors of this package. ``str(error)`` is ``[CODE] message``."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        message = message.encode(errors="backslashreplace").decode()  # text from a user may not be valid Unicode
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def close_matches(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that are most like ``name``, nearest first, as `difflib.get_close_matches` does."""
    import difflib  # loaded for messages alone

    return difflib.get_close_matches(name, list(names), count, cutoff)


def shown(value: object, most: int = 200) -> str:
    """``repr`` of a user's value for a message, cut to ``most`` characters. Never raises."""
    if isinstance(value, int) and value.bit_length() > 10_000:  # Python refuses to format it
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # a value of a user's class, or a list with such an integer
        return f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


class NotFoundError(StateStoreError, KeyError):
    """A store, table, file, version or column that does not exist."""

    __str__ = StateStoreError.__str__


class ConflictError(StateStoreError):
    """A change by another writer with which this operation cannot be repeated as it is."""


class CorruptError(StateStoreError):
    """Bytes on disk that differ from the bytes that were written."""


class StorageError(StateStoreError, OSError):
    """The operating system refused to read or write a file: a full disk, too many open files, a failing device.

    ``errno`` and ``filename`` are those of the system's error (None where it has none).
    """

    def __init__(self, code: ErrorCode, message: str, errno: int | None = None, filename: str | None = None) -> None:
        super().__init__(code, message)
        self.errno = errno
        self.filename = filename

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError's own pickled form would drop the file's name; the dictionary holds code, message and notes.
        return type(self), (self.code, self.message, self.errno, self.filename), self.__dict__

    __str__ = StateStoreError.__str__


class CommitUnknownError(StorageError):
    """A commit that raised after its log entry may have been published.

    ``commit`` is its id, "<version>-<32 hex digits>", to be asked about with ``store.was_committed(commit)``. Calling
    ``commit`` again on the same handle is harmless: a commit that took place is not repeated.
    """

    def __init__(
        self, code: ErrorCode, message: str, errno: int | None = None, filename: str | None = None, commit: str = ""
    ) -> None:
        super().__init__(code, message, errno, filename)
        self.commit = commit


class InvalidInputError(StateStoreError, ValueError):
    """An argument, option, schema, time or row that cannot be accepted."""


class UnsupportedError(StateStoreError):
    """A type, kind, format or engine feature that is not supported."""


class ReadOnlyError(StateStoreError):
    """A write to something that can only be read."""
