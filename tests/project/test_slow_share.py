"""Where a share of the slow cases is run, no test is left out as a whole, and no part of a table of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from support.parameters import left_out, mostly_slow, without_quick_cases

pytest_plugins = ["pytester"]
SLOW, EACH = pytest.mark.slow, pytest.mark.slow(each=True)


class Item:
    """A collected test, or a case of one."""

    def __init__(self, nodeid: str, mark: pytest.MarkDecorator | None) -> None:
        self.nodeid, self.mark = nodeid, mark

    def get_closest_marker(self, _: str) -> pytest.Mark | None:
        return None if self.mark is None else self.mark.mark


def run(items: Sequence[Any], share: Fraction, turn: int = -1) -> set[str]:
    out = left_out(items, share, turn)
    return {item.nodeid for item in items if item not in out}


def cases(test: str, mark: pytest.MarkDecorator | None, *lists: Sequence[str]) -> list[Item]:
    return [Item(f"{test}[{'-'.join(each)}]", mark) for each in product(*lists)]


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(1, 3), Fraction(1, 7)])
def test_each_test_is_run(share: Fraction) -> None:
    """Also where its cases come between those of others, as with fixtures of a module."""
    mixed = [case for pair in zip(*(cases(f"b.py::{n}", SLOW, "xy") for n in "pqr"), strict=True) for case in pair]
    tests = [Item("a.py::one", SLOW), Item("a.py::fast", None), *cases("a.py::two", SLOW, "12"), *mixed]
    assert {each.partition("[")[0] for each in run(tests, share)} == {each.nodeid.partition("[")[0] for each in tests}
    assert len(run(tests, share)) < len(tests) or share == 1


def test_each_slow_test_runs_in_one_of_three_turns() -> None:
    """Those with a fast case, and lists that are run whole, run in each."""
    slow = [case for n in "pqrstuv" for case in cases(f"b.py::{n}", SLOW, "xy")]
    others = [
        Item("a.py::fast", None),
        *cases("a.py::each", EACH, "12"),
        Item("a.py::m[1]", None),
        Item("a.py::m[2]", SLOW),
    ]
    names = {each.nodeid.partition("[")[0] for each in slow}
    for first in range(4):
        turns = [run([*others, *slow], Fraction(1, 7), first + n) for n in range(3)]
        tests = Counter(name for found in turns for name in {each.partition("[")[0] for each in found} & names)
        assert tests == dict.fromkeys(names, 1)
        assert all({"a.py::fast", "a.py::each[1]", "a.py::each[2]", "a.py::m[1]"} <= found for found in turns)


def test_a_share_of_a_table_has_each_of_its_rows_and_columns() -> None:
    rows, columns = "abcdef", "xyz"
    found = run(cases("a.py::table", SLOW, rows, columns), Fraction(1, 3))
    assert len(found) == len(rows)
    assert {each[-4] for each in found} == set(rows) and {each[-2] for each in found} == set(columns)


def test_fast_cases_and_those_of_a_list_that_is_run_whole_stay() -> None:
    whole = [*cases("a.py::quick", None, "ab"), *cases("a.py::slow", EACH, "abcdef")]
    assert run([*whole, *cases("a.py::share", SLOW, "abcdef")], Fraction(1, 3)) >= {item.nodeid for item in whole}


def test_lists_are_marked() -> None:
    def marks(case: Any) -> list[dict[str, Any]]:
        return [mark.kwargs for mark in getattr(case, "marks", ())]

    assert [marks(case) for case in mostly_slow([1, (2, 3), pytest.param(4)], [1])] == [[], [{}], [{}]]
    assert [marks(case) for case in mostly_slow("abcd", 2, each=True)] == [[], [{"each": True}]] * 2


def test_a_marker_that_names_no_case_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    quick")
    pytester.makeconftest("from support.parameters import mark_slow as pytest_itemcollected")
    text = "import pytest\n\n@pytest.mark.quick({!r})\n@pytest.mark.parametrize('n', [10, 11, 2])\ndef test_n(n): pass"
    for pattern, run, wrong in (("1*", {10, 11}, set()), ("2", {2}, set()), ("3", set(), {"test_it.py::test_n"})):
        pytester.makepyfile(test_it=text.format(pattern))
        items, _ = pytester.inline_genitems()
        assert {item.name for item in items if not item.get_closest_marker("slow")} == {f"test_n[{n}]" for n in run}
        assert without_quick_cases(items) == wrong
