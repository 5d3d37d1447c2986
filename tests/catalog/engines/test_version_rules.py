"""The versions that a query means, where engines have odd times."""

from __future__ import annotations

from typing import Any

import pytest

from statestore.catalog.engines.version_rules import ordered_versions, timed_versions
from statestore.formats.engine import Source, Version
from statestore.formats.errors import NotFoundError


class Times:
    """An engine table whose versions 0, 1, 2, … have these times."""

    version_words = ("version", "versions")
    no_time = Source.no_time

    def __init__(self, times: list[int | None]) -> None:
        self.times = times

    @property
    def path(self) -> str:
        return "somewhere"

    def versions(self, state: str, numbers: Any = None) -> list[Version]:
        return [Version(number, self.times[number]) for number in numbers]


def times_of(times: list[int | None]) -> list[int | None]:
    source: Any = Times(times)
    return [version.time for version in timed_versions(source, "s", range(len(times)))]


def test_versions_of_a_clock_that_was_set_back_begin_in_order() -> None:
    """One that began after its successor, or with it, was never the newest as of a moment."""
    assert times_of([10, 30, 20, 40, 40]) == [10, 20, 20, 40, 40]


def test_the_oldest_versions_may_have_no_time() -> None:
    assert times_of([None, None, 20, 30]) == [20, 30]


@pytest.mark.parametrize("times", [[None], [None, None], [10, None, 30]])
def test_a_version_without_a_time_has_no_history(times: list[int | None]) -> None:
    with pytest.raises(NotFoundError, match=r"TIME_NOT_KEPT.*has no time"):
        times_of(times)


@pytest.mark.parametrize(
    ("times", "expected"),
    [([None, None], [None, None]), ([10, None, 30], [10, None, 30]), ([30, None, 20], [20, None, 20])],
)
def test_changes_keep_versions_without_a_time(times: list[int | None], expected: list[int | None]) -> None:
    """They stay in the order of their numbers, and get no time."""
    source: Any = Times(times)
    found = ordered_versions(source, "s", range(len(times)))
    assert [(version.number, version.time) for version in found] == list(enumerate(expected))
