"""SQL that is typed line by line, cut into statements at semicolons outside of texts, names and comments."""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|--[^\n]*(?:\n|$)"
    r"|/\*.*?\*/"
    r"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
    r"|(?P<open>['\"]|/\*|\$\w*\$)"
    r"|(?P<end>;)"
    r"|.",
    re.DOTALL,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def cut(text: str) -> tuple[list[str], str]:
    """Return the whole statements, without their semicolons, and what follows the last of them."""
    statements: list[str] = []
    begin = 0
    for piece in _PIECE.finditer(text):
        if piece["open"] is not None:  # a text, name or comment goes on in the next line
            break
        if piece["end"] is not None:
            if not is_blank(text[begin : piece.start()]):
                statements.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return statements, text[begin:]


def is_blank(text: str) -> bool:
    """Return whether a text has nothing but blanks and comments."""
    return not _COMMENT.sub("", text).strip()
