"""Parameters of tests that repeat a property at length: a few in every run, the others where slow tests are run."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """The cases, all but the ``quick`` ones marked slow; a tuple has the values of several parameters."""
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
