"""Parameters of tests that repeat a property at length: a few in every run, the others where slow tests are run."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from fractions import Fraction
from typing import Any

import pytest

PARAM = type(pytest.param())  # its class has no public name

SHARE_VARIABLE = "STATESTORE_SLOW_SHARE"
SHARE = Fraction(os.environ.get(SHARE_VARIABLE, "1"))  # of the slow cases of each list that are run: 1, 1/2, 1/3, ...


def mostly_slow(cases: Iterable[Any], quick: Container[Any] | int) -> list[Any]:
    """The cases, all but the ``quick`` ones marked slow, or but each of that many; a tuple has several parameters.

    Of the slow ones only a `SHARE` is returned, spread evenly over the list.
    """
    found, slow = [], 0
    for number, case in enumerate(cases):
        if not number % quick if isinstance(quick, int) else case in quick:
            found.append(case)
            continue
        if slow % SHARE.denominator < SHARE.numerator:
            found.append(_slow(case))
        slow += 1
    return found


def many_examples(few: int, many: int) -> int:
    """How many examples the slow twin of a property tries: a `SHARE` of ``many``, and more than ``few``."""
    return max(few + 1, int(many * SHARE))


def _slow(case: Any) -> Any:
    if isinstance(case, PARAM):
        return case._replace(marks=[*case.marks, pytest.mark.slow])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
