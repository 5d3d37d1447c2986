"""Names of columns that must differ."""

from __future__ import annotations

from collections.abc import Iterable


def unique_names(
    names: Iterable[str], taken: Iterable[str] = (), first: int = 1, ignore_case: bool = True
) -> list[str]:
    """Return the names; those that repeat, or are ``taken``, get numbers: f, f_1, f_2, or from ``first`` on.

    Two names are the same also where case differs, as in SQL, unless it counts.
    """
    known = {_compared(name, ignore_case) for name in taken}
    found = []
    for given in names:
        name, number = given, first
        while _compared(name, ignore_case) in known:
            name = f"{given}_{number}"
            number += 1
        known.add(_compared(name, ignore_case))
        found.append(name)
    return found


def _compared(name: str, ignore_case: bool) -> str:
    return name.lower() if ignore_case else name
