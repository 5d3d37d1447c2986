"""Parameters of tests that repeat a property at length: a few in every run, the others where slow tests are run."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest

PARAM = type(pytest.param())  # its class has no public name


def mostly_slow(cases: Iterable[Any], quick: Container[Any] | int) -> list[Any]:
    """The cases, all but the ``quick`` ones marked slow, or but each of that many; a tuple has several parameters."""
    if isinstance(quick, int):
        return [_slow(case) if number % quick else case for number, case in enumerate(cases)]
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    if isinstance(case, PARAM):
        return case._replace(marks=[*case.marks, pytest.mark.slow])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
