"""Times of the day without a date in statements of Spark SQL, which are refused as at every other door.

Spark casts ``TIMESTAMP AS OF '09:00'`` to nine o'clock today, and passes the moment alone to a catalog. Its text is
that of the statement which the session plans at this time.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

_UNDER_WAY: list[str] = []
"""The statements of this process that Spark plans now."""
_WITHOUT_DATE = re.compile(
    r"""\bAS\s+OF\s+(?:TIMESTAMP\w*\s*|CAST\s*|\(\s*)*(['"])(?P<time>\s*T?[0-9]{1,2}:[^'"]*)\1""", re.I
)
_DAY_US = 86_400_000_000


@contextlib.contextmanager
def planned_by_spark(statement: object) -> Iterator[None]:
    """Let `check_dated` see a statement in the block, in which Spark plans it."""
    if not isinstance(statement, str):
        yield
        return
    _UNDER_WAY.append(statement)
    try:
        yield
    finally:
        _UNDER_WAY.remove(statement)


def check_dated(moment: int | None) -> None:
    """Raise InvalidInputError INVALID_TIME for a time of the day without a date, of which Spark makes one of today.

    ``moment`` (epoch microseconds) is the one that Spark passes; None: none.
    """
    if moment is None or abs(moment - time.time_ns() // 1000) > 2 * _DAY_US:
        return
    for found in map(_WITHOUT_DATE.search, tuple(_UNDER_WAY)):
        if found is not None:
            raise InvalidInputError(
                ErrorCode.INVALID_TIME,
                f"TIMESTAMP AS OF {found['time']!r} has no date; expected a date and a time, like "
                "'2013-01-01T05:00:00Z'",
            )
