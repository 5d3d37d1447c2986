"""Every error that the sources raise has a message and a code that can be looked up."""

from __future__ import annotations

import ast
import json
import pickle
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from support.paths import DATA, ROOT
from support.source_tree import modules

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError

RAISED = {"StateStoreError", *(kind.__name__ for kind in StateStoreError.__subclasses__())}
CODE = re.compile(r"[A-Z]+(_[A-Z]+)*")
LIST = ROOT / "formats" / "error_codes.py"
RETIRED = {"BUFFER_CONTEXT"}  # released, and no longer raised
TWO_CLASSES = {"COLUMN_NOT_FOUND", "TIME_OUT_OF_RANGE", "WRONG_KEY_GROUP"}


@dataclass
class Found:
    """Raised errors, codes that are named, and texts that are codes in the sources, each with its place."""

    raised: list[tuple[str, ast.Call]] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)


@cache
def sources() -> Found:
    """One walk through the sources. Trees are not kept: they have a million nodes."""
    found, codes = Found(), {code.value for code in ErrorCode}
    may_hold = re.compile(rf"\b({'|'.join([*RAISED, *codes])})\b")  # half of the sources name neither
    for module, path in modules().items():
        text = path.read_text("utf-8")
        if path == LIST or may_hold.search(text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name) and node.func.id in RAISED:
                    found.raised.append((f"{module}:{node.lineno}", node))
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and node.value in codes:
                    found.texts.append(f"{module}:{node.lineno} {node.value}")
            elif (code := named(node)) is not None:
                found.named.add(code)
    return found


def named(node: ast.AST) -> str | None:
    """The code of ``ErrorCode.CODE``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode":
        return node.attr
    return None


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
    calls = sources().raised
    assert len(calls) > 50
    assert not [where for where, call in calls if len(call.args) < 2]


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
    classes: dict[str, set[str]] = {}
    for _, call in sources().raised:
        code = named(call.args[0])
        if code is not None and isinstance(call.func, ast.Name):
            classes.setdefault(code, set()).add(call.func.id)
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
