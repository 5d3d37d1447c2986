"""The division of key groups among tasks."""

from __future__ import annotations

import itertools
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError


def task_groups(key_groups: int, tasks: Any) -> list[range]:
    """Return the key groups of each of ``tasks`` tasks. Raises InvalidInputError INVALID_KEY_GROUPS."""
    if type(tasks) is not int or not 1 <= tasks <= key_groups:
        raise InvalidInputError(
            ErrorCode.INVALID_KEY_GROUPS,
            f"{tasks!r} tasks; expected 1 to {key_groups}, the number of key groups",
        )
    edges = [-(-number * key_groups // tasks) for number in range(tasks + 1)]
    return [range(first, stop) for first, stop in itertools.pairwise(edges)]
