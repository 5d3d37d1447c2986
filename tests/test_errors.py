"""The error tree: what callers may catch, what they read, and that errors cross process borders whole."""

from __future__ import annotations

import ast
import copy
import pickle
import re

import pytest
from source_tree import ROOT

from statestore.formats import errors
from statestore.formats.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StateStoreError,
    UnsupportedError,
)

KINDS = [NotFoundError, ConflictError, CorruptError, InvalidInputError, UnsupportedError, ReadOnlyError]
SOURCES = sorted(path for layer in ("formats", "catalog", "connector") for path in (ROOT / layer).rglob("*.py"))


def test_the_tree_has_one_level() -> None:
    defined = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert set(defined) == {StateStoreError, *KINDS}
    assert {kind.__bases__[0] for kind in KINDS} == {StateStoreError}


def test_python_s_own_kinds_catch_them_too() -> None:
    assert {kind: kind.__bases__[1:] for kind in KINDS if kind.__bases__[1:]} == {
        NotFoundError: (KeyError,),
        InvalidInputError: (ValueError,),
    }


@pytest.mark.parametrize("kind", [StateStoreError, *KINDS])
def test_code_and_message_are_read_and_shown(kind: type[StateStoreError]) -> None:
    error = kind("SOME_CODE", "file 'a b': found 1, expected 2")
    assert (error.code, error.message) == ("SOME_CODE", "file 'a b': found 1, expected 2")
    assert str(error) == "[SOME_CODE] file 'a b': found 1, expected 2", "KeyError would show the repr"


@pytest.mark.parametrize("kind", [StateStoreError, *KINDS])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(kind: type[StateStoreError], protocol: int) -> None:
    error = kind("SOME_CODE", "a message\nof two lines, ü")
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(twin) is kind
        assert (str(twin), twin.code, twin.message) == (str(error), error.code, error.message)


def raised_calls() -> list[tuple[str, ast.Call]]:
    """Every call in the sources that makes an error of the tree."""
    names = {kind.__name__ for kind in KINDS} | {"StateStoreError"}
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_every_error_raised_has_a_stable_code_and_a_message() -> None:
    calls = raised_calls()
    assert len(calls) > 50
    odd = [
        where
        for where, call in calls
        if len(call.args) != 2
        or (isinstance(call.args[0], ast.Constant) and not re.fullmatch(r"[A-Z]+(_[A-Z]+)+", str(call.args[0].value)))
    ]
    assert not odd
