"""SQL that is typed line by line, cut into statements at semicolons outside of texts, names and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PIECE = re.compile(
    r"(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'"  # a backslash escapes in such texts alone
    r"|(?<![\w$])(?P<escaped>[eE]')"
    r"|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|(?P<comment>--[^\n]*(?:\n|$))"
    r"|(?P<begun>/\*)"
    r"|[^\W\d][\w$]*"  # $ within a name begins no text
    r"|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"
    r"|(?P<open>['\"]|\$(?:[^\W\d]\w*)?\$)"
    r"|(?P<end>;)"
    r"|(?P<blank>\s+)"
    r"|.",
    re.DOTALL,
)
_COMMENT_SIGN = re.compile(r"/\*|\*/")


@dataclass
class Typed:
    """Lines that were typed and are no whole statement yet."""

    text: str = ""
    is_blank: bool = True
    """Whether there are only blanks and comments that have ended."""
    _seen: int = field(default=0, repr=False)  # what is before it was cut, and is not looked at again

    def add(self, line: str) -> list[str]:
        """Return the statements that end in a line, without their semicolons."""
        self.text += line
        statements: list[str] = []
        begin = 0
        while self._seen < len(self.text):
            piece = _PIECE.match(self.text, self._seen)
            assert piece is not None
            end = _end_of_comment(self.text, self._seen) if piece["begun"] else piece.end()
            if piece["open"] or piece["escaped"] or end is None:  # goes on in the next line
                self.is_blank = False
                break
            self._seen = end
            if piece["end"]:
                if not self.is_blank:
                    statements.append(self.text[begin : piece.start()].strip())
                begin, self.is_blank = end, True
            elif not (piece["comment"] or piece["begun"] or piece["blank"]):
                self.is_blank = False
        self.text, self._seen = self.text[begin:], self._seen - begin
        return statements


def _end_of_comment(text: str, begin: int) -> int | None:
    """Return where a comment ends, which may hold others; None if it goes on."""
    depth = 0
    for sign in _COMMENT_SIGN.finditer(text, begin):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return None
