"""Every error that the sources raise has a message and a code that can be looked up."""

from __future__ import annotations

import ast
import re

from support.source_tree import modules

from statestore.formats.errors import StateStoreError

NAMES = {"StateStoreError", *(kind.__name__ for kind in StateStoreError.__subclasses__())}
CODE = re.compile(r"[A-Z]+(_[A-Z]+)*")


def raised_calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{module}:{node.lineno}", node)
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES
    ]


def test_every_error_has_a_code_and_a_message() -> None:
    calls = raised_calls()
    assert len(calls) > 50
    assert not [where for where, call in calls if len(call.args) < 2]


def test_codes_are_words_in_capitals() -> None:
    codes = {c.args[0].value: where for where, c in raised_calls() if isinstance(c.args[0], ast.Constant)}
    assert len(codes) > 30
    assert not {code: where for code, where in codes.items() if not CODE.fullmatch(str(code))}
