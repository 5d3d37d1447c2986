"""The tree of errors: classes to catch, beginnings of messages, and errors that cross Spark's process borders."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from statestore.formats import errors
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StateStoreError,
    StorageError,
    UnsupportedError,
)

TREE: dict[type[StateStoreError], tuple[type[Exception], ...]] = {
    StateStoreError: (Exception,),
    NotFoundError: (StateStoreError, KeyError),
    CommitUnknownError: (StorageError,),
    ConflictError: (StateStoreError,),
    CorruptError: (StateStoreError,),
    InvalidInputError: (StateStoreError, ValueError),
    UnsupportedError: (StateStoreError,),
    ReadOnlyError: (StateStoreError,),
    StorageError: (StateStoreError, OSError),
}
every_error = pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)


@every_error
def test_bases(kind: type[StateStoreError]) -> None:
    """A missing thing is a KeyError too, wrong input a ValueError too."""
    assert kind.__bases__ == TREE[kind]


def test_the_tree_is_complete() -> None:
    """A new group of errors is a decision, not an accident."""
    found = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
    assert found == set(TREE)


@every_error
def test_text_is_code_and_message(kind: type[StateStoreError]) -> None:
    """The text is not the quoted repr that KeyError would show."""
    error = kind(ErrorCode.DISK_FAILED, "file 'a': found 1, expected 2")
    assert str(error) == "[DISK_FAILED] file 'a': found 1, expected 2"
    assert (error.code, error.message) == ("DISK_FAILED", "file 'a': found 1, expected 2")


@every_error
def test_pickling(kind: type[StateStoreError]) -> None:
    """Type, code, text and what was added to the error arrive."""
    error = kind(ErrorCode.LOG_CORRUPT, "a message")
    error.add_note("seen by worker 3")
    pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for arrived in (*pickled, copy.copy(error)):
        assert type(arrived) is kind
        assert (arrived.code, arrived.message, str(arrived)) == (ErrorCode.LOG_CORRUPT, "a message", str(error))
        assert arrived.__notes__ == ["seen by worker 3"]


@every_error
def test_the_doc_string_in_the_module_draws_it(kind: type[StateStoreError]) -> None:
    """The tree at the head of the module names every error."""
    assert kind.__name__ in (errors.__doc__ or "")
