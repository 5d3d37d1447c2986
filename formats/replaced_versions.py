"""Questions that are asked again where a running engine has replaced the version that they were reading.

An engine removes the files of a version when it has completed a newer one, at any moment of a read. Such a read fails
with VERSION_GONE (`statestore.formats.engine.Reader.explain_loss`). As long as none of its rows was handed out, the
same question has an answer of the newer version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, StorageError

if TYPE_CHECKING:
    from statestore.formats.engine import Reader

ATTEMPTS = 6
T = TypeVar("T")
_OF_FILES = (NotFoundError, CorruptError, StorageError)  # what files that go while they are read may look like
_OF_QUESTIONS = {
    ErrorCode.VERSION_GONE,
    ErrorCode.VERSION_NOT_FOUND,
    ErrorCode.TIME_NOT_KEPT,
    ErrorCode.TABLE_NOT_FOUND,
    ErrorCode.COLUMN_NOT_FOUND,
}


def is_gone(error: StateStoreError) -> bool:
    """Return whether an error says that the version which was read is gone, and that another read may succeed."""
    return error.code == ErrorCode.VERSION_GONE


def cause(error: StateStoreError, reader: Reader, state: str, versions: Sequence[int]) -> StateStoreError:
    """Return the error to raise for one of a read of these versions; none: of any. It may be the same.

    ``reader`` is what reads them.
    """
    if isinstance(error, _OF_FILES) and error.code not in _OF_QUESTIONS:
        return reader.explain_loss(error, state, versions)
    return error


def explained(reader: Reader, state: str, question: Callable[[], T]) -> T:
    """Return the answer of what reads a state to a question. Raises its error, or the `cause` of it."""
    try:
        return question()
    except StateStoreError as error:
        found = cause(error, reader, state, ())
        if found is error:
            raise
        raise found from error


def again(question: Callable[[], T]) -> T:
    """Return the answer to a question that opens what it reads; one whose version is gone is asked again.

    It is asked at most ATTEMPTS times, and no more once it fails as it did before: then it is bound to its version.
    """
    before = ""
    for _ in range(ATTEMPTS - 1):
        try:
            return question()
        except NotFoundError as error:
            if not is_gone(error) or error.message == before:
                raise
            before = error.message
    return question()


def pieces_again(begin: Callable[[], Iterator[Iterator[pa.RecordBatch]]]) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the pieces of a read that ``begin`` plans; it is begun again while no batch of it was handed out.

    Attempts as in `again`.
    """
    before, handed_out = "", False
    for attempt in range(ATTEMPTS):
        try:
            for piece in begin():
                first = next(piece, None)
                handed_out = handed_out or first is not None
                yield iter(()) if first is None else chain((first,), piece)
            return
        except NotFoundError as error:
            if handed_out or not is_gone(error) or error.message == before or attempt == ATTEMPTS - 1:
                raise
            before = error.message
