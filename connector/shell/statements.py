"""SQL that is typed line by line, cut into statements at semicolons outside of texts, names and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_PIECE = re.compile(
    r"(?P<begin>(?<![\w$])[eE]'|['\"`]|/\*|\$(?:[^\W\d]\w*)?\$)"
    r"|[^\W\d][\w$]*"  # $ within a name begins no text
    r"|(?P<comment>--[^\n]*)"
    r"|(?P<end>;)"
    r"|(?P<blank>\s+)"
    r"|.",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\.|''|(?P<end>')", re.DOTALL)  # a backslash escapes in texts that begin with E alone
_COMMENT = re.compile(r"/\*|\*/")
_BLANK = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)"
_TRANSACTION = re.compile(
    rf"{_BLANK}*(?P<word>BEGIN|START(?={_BLANK}+TRANSACTION)|COMMIT|END|ROLLBACK|ABORT)"
    rf"(?:{_BLANK}+(?:TRANSACTION|WORK|READ{_BLANK}+(?:ONLY|WRITE)))*{_BLANK}*",
    re.IGNORECASE,
)
BEGINS = ("BEGIN", "START")


def transaction_word(text: str) -> str | None:
    """Return the first word of a statement that begins or ends a transaction, in capitals; None for any other one."""
    found = _TRANSACTION.fullmatch(text)
    return None if found is None else found["word"].upper()


@dataclass
class Typed:
    """Lines that were typed and are no whole statement yet. None of them is looked at again when others follow."""

    text: str = ""
    _seen: int = field(default=0, repr=False)
    _has_words: bool = field(default=False, repr=False)
    _inside: str | None = field(default=None, repr=False)  # how the text, name or comment began that goes on
    _depth: int = field(default=0, repr=False)  # of comments in comments

    @property
    def is_blank(self) -> bool:
        """Whether there are only blanks and comments that have ended."""
        return not self._has_words and self._inside is None

    def add(self, line: str) -> list[str]:
        """Return the statements that end in a line, without their semicolons. The line has its line break."""
        self.text += line
        statements: list[str] = []
        first = 0
        while self._seen < len(self.text):
            if self._inside is not None:
                self._skip(self._inside)
                continue
            piece = _PIECE.match(self.text, self._seen)
            assert piece is not None
            self._seen = piece.end()
            if piece["begin"]:
                self._inside, self._depth = piece["begin"], 1
                self._has_words |= self._inside != "/*"
            elif piece["end"]:
                if self._has_words:
                    statements.append(self.text[first : piece.start()].strip())
                first, self._has_words = piece.end(), False
            elif not (piece["comment"] or piece["blank"]):
                self._has_words = True
        self.text, self._seen = self.text[first:], self._seen - first
        return statements

    def _skip(self, begun: str) -> None:
        """Go to the end of what has begun, or of what was typed. '' within a text is the end of one and the begin of
        another."""
        if begun == "/*":
            for sign in _COMMENT.finditer(self.text, self._seen):
                self._depth += 1 if sign[0] == "/*" else -1
                if not self._depth:
                    return self._leave(sign.end())
        elif begun in ("e'", "E'"):
            for sign in _ESCAPED.finditer(self.text, self._seen):
                if sign["end"]:
                    return self._leave(sign.end())
        else:
            end = self.text.find(begun, self._seen)
            if end >= 0:
                return self._leave(end + len(begun))
        self._seen = len(self.text)
        return None

    def _leave(self, position: int) -> None:
        self._seen, self._inside = position, None
