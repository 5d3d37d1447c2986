"""Parameters of tests that repeat a property at length: a few in every run, the others where slow tests are run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
PARAM = type(pytest.param())  # its class has no public name

SHARE_VARIABLE = "STATESTORE_SLOW_SHARE"
SHARE = Fraction(os.environ.get(SHARE_VARIABLE, "1"))  # of the slow cases that are run: 1, 1/2, 1/3, ...
TURN_VARIABLE = "STATESTORE_SLOW_TURN"
TURN = int(os.environ.get(TURN_VARIABLE, "-1"))  # of the wholly slow tests that run while a share is run; -1: all do
TURNS = 3


def mostly_slow(cases: Iterable[Any], quick: Container[Any] | int, each: bool = False) -> list[Any]:
    """The cases, all but the ``quick`` ones marked slow, or but each of that many; a tuple has several parameters.

    With ``each``, none of them is left out where a share of the slow cases is run.
    """
    mark = pytest.mark.slow(each=True) if each else pytest.mark.slow
    return [
        case if (not number % quick if isinstance(quick, int) else case in quick) else _marked(case, mark)
        for number, case in enumerate(cases)
    ]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    if isinstance(case, PARAM):
        return case._replace(marks=[*case.marks, mark])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)


def many_examples(few: int, many: int) -> int:
    """How many examples the slow twin of a property tries: a `SHARE` of ``many``, and more than ``few``."""
    return max(few + 1, int(many * SHARE))


def thinned(cases: Sequence[T], few: int) -> Sequence[T]:
    """The cases that a slow test runs one after the other; the first few where a share of the slow cases is run."""
    return cases if SHARE == 1 else cases[:few]


@contextmanager
def named(case: object) -> Iterator[None]:
    """Name a case of a loop in its failure. Many cheap cases in one test are collected and reported once."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {case}")
        raise


def mark_slow(item: pytest.Item) -> None:
    """Mark a case slow that is not among those which its test names as ``quick``."""
    if "quick" in item.keywords and (quick := item.get_closest_marker("quick")) is not None:
        case = item.name.partition("[")[2].removesuffix("]")
        if not any(fnmatchcase(case, pattern) for pattern in quick.args):
            item.add_marker(pytest.mark.slow)


def without_quick_cases(items: Iterable[pytest.Item]) -> set[str]:
    """The tests that name no case of theirs as ``quick``, although their marker is there; all cases were collected."""
    marked = [item for item in items if "quick" in item.keywords and item.get_closest_marker("quick")]
    quick = {_test(item) for item in marked if not item.get_closest_marker("slow")}
    return {_test(item) for item in marked} - quick


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def left_out(items: Iterable[pytest.Item], share: Fraction = SHARE, turn: int = TURN) -> set[pytest.Item]:
    """The slow cases that are not run: all but a share of those of each file, and at least one case of each test runs.

    A test that is no case of others is run, and so is each case of one that is marked with ``slow(each=True)``. With a
    ``turn``, a third of the tests whose cases are all slow runs: each in one of three turns that follow each other.
    """
    out: set[pytest.Item] = set()
    passed = Counter[str]()  # slow cases so far, by file
    wholly = 0  # slow tests so far
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(_test(item), []).append(item)
    for name, cases in tests.items():
        file = name.partition("::")[0]
        dropped = []
        for case in cases:
            mark = case.get_closest_marker("slow")
            if mark is None or mark.kwargs.get("each"):
                continue
            # Another one of each row: the cases of two lists are a table, whose columns would all be left out but one.
            row, column = divmod(passed[file], share.denominator)
            if (row + column) % share.denominator >= share.numerator:
                dropped.append(case)
            passed[file] += 1
        marks = [case.get_closest_marker("slow") for case in cases]
        is_wholly_slow = all(mark is not None and not mark.kwargs.get("each") for mark in marks)
        wholly += is_wholly_slow
        if is_wholly_slow and turn >= 0 and wholly % TURNS != turn % TURNS:
            out.update(cases)
        else:
            out.update(dropped[1:] if len(dropped) == len(cases) else dropped)
    return out
