"""Names of columns that must differ, also where case does not count, as in SQL."""

from __future__ import annotations


def unique_names(names: list[str]) -> list[str]:
    """Return the names; those that repeat, ignoring case, get numbers: f, f_1, f_2."""
    taken: set[str] = set()
    found = []
    for given in names:
        name, number = given, 0
        while name.lower() in taken:
            number += 1
            name = f"{given}_{number}"
        taken.add(name.lower())
        found.append(name)
    return found
