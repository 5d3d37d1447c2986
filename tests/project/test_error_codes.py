"""Every error that the sources raise has a message and a code that can be looked up."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from support.paths import DATA, ROOT
from support.source_tree import modules

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, StateStoreError

KINDS: tuple[type[StateStoreError], ...] = (StateStoreError, *StateStoreError.__subclasses__(), CommitUnknownError)
RAISED = re.compile(rf"\b({'|'.join(kind.__name__ for kind in KINDS)})\(\s*ErrorCode\.(\w+)")
NAMED = re.compile(r"(?<!`)\bErrorCode\.(\w+)")
QUOTED = re.compile(r"""["']([A-Z_]+)["']""")
CODE = re.compile(r"[A-Z]+(_[A-Z]+)*")
LIST = ROOT / "formats" / "error_codes.py"
RETIRED = {"BUFFER_CONTEXT"}  # released, and no longer raised
TWO_CLASSES = {"COLUMN_NOT_FOUND", "TIME_OUT_OF_RANGE", "WRONG_KEY_GROUP"}


@dataclass
class Found:
    """The classes that each code is raised with, the codes that are named, and texts that are codes, with places."""

    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    named: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)


@cache
def sources() -> Found:
    """Reads the text of the sources: their trees have a million nodes, and take seconds."""
    found = Found()
    for module, path in modules().items():
        if path == LIST:
            continue
        text = path.read_text("utf-8")
        found.named.update(NAMED.findall(text))
        for kind, code in RAISED.findall(text):
            found.classes[code].add(kind)
        found.texts += [f"{module} {quoted}" for quoted in QUOTED.findall(text) if quoted in ErrorCode.__members__]
    return found


def texts() -> dict[str, str]:
    """The text below each code."""
    (found,) = [node for node in ast.walk(ast.parse(LIST.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
    return {
        code.targets[0].id: str(text.value.value)
        for code, text in pairwise(found.body)
        if isinstance(code, ast.Assign) and isinstance(code.targets[0], ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def test_every_error_has_a_code_and_a_message() -> None:
    """A call without one of them is a `TypeError`, and mypy refuses it."""
    for kind in KINDS:
        code, message, *_ = inspect.signature(kind).parameters.values()
        assert (code.name, code.annotation, code.default) == ("code", "ErrorCode", code.empty), kind
        assert (message.name, message.annotation, message.default) == ("message", "str", message.empty), kind


def test_codes_are_words_in_capitals() -> None:
    assert len(ErrorCode) > 30
    assert not [code for code in ErrorCode if code.name != code.value or not CODE.fullmatch(code)]


def test_codes_are_those_of_the_list() -> None:
    """mypy refuses a text where a code is expected; a text that is compared with a code would escape it."""
    assert sources().texts == []


def test_every_code_is_in_use() -> None:
    assert {code.name for code in ErrorCode} - sources().named == RETIRED


def test_every_code_says_what_is_wrong_and_what_to_do() -> None:
    assert texts().keys() == ErrorCode.__members__.keys()
    assert [code for code, text in texts().items() if not text.endswith(".") or ". " not in text] == []


def test_a_released_code_stays() -> None:
    """Programs compare codes. A new code is added to the list of ``tests/data`` with its release."""
    released = (DATA / "error-codes.txt").read_text("utf-8").split()
    assert len(released) > 100
    assert [code for code in released if code not in ErrorCode.__members__] == []


def test_a_code_has_one_class() -> None:
    """Where it has two, its text explains both."""
    classes = sources().classes
    assert len(classes) > 150
    several = {code: kinds for code, kinds in classes.items() if len(kinds) > 1}
    assert several.keys() == TWO_CLASSES
    assert not [code for code, kinds in several.items() if not all(kind in texts()[code] for kind in kinds)]


def test_a_code_is_its_text() -> None:
    """In messages, comparisons, sets and JSON, and in processes of Spark."""
    code = ErrorCode.LOG_CORRUPT
    assert code == "LOG_CORRUPT" and "LOG_CORRUPT" in {code} and {"LOG_CORRUPT": 1}[code] == 1
    assert (str(code), repr(code), f"{code}") == ("LOG_CORRUPT", "'LOG_CORRUPT'", "LOG_CORRUPT")
    assert json.dumps({code: code}) == '{"LOG_CORRUPT": "LOG_CORRUPT"}'
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(code, protocol)) is code
