"""The place in a statement to which an error of DuckDB points with a caret."""

from __future__ import annotations

import re
import unicodedata

_POINTED = re.compile(r"^(LINE (\d+): )(.*)\n( *)\^", re.MULTILINE)
_CUT = "..."


def place_of(said: str, text: str) -> str:
    """Return the place of an error of the statement ``text`` as ``line 1, column 8``; empty if it is not known."""
    found = _POINTED.search(said)
    lines = text.split("\n")
    if found is None or int(found[2]) > len(lines):
        return ""
    shown, line = found[3], lines[int(found[2]) - 1]
    left = len(found[4]) - len(found[1])
    column = 1
    if shown.startswith(_CUT):  # DuckDB shows a part of a long line
        shown, left = shown.removeprefix(_CUT), left - len(_CUT)
        part = shown.removesuffix(_CUT)
        if line.count(part) != 1:
            return ""
        column += line.index(part)
    for sign in shown:
        if left <= 0:
            break
        left -= _width(sign)
        column += 1
    return f"line {found[2]}, column {column}"


def _width(sign: str) -> int:
    """The columns of a terminal that a sign takes, which is what DuckDB counts."""
    return 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1
