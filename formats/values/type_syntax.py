"""Parser for the syntax of type names: ``decimal(10,2)``, ``struct<a:int,`odd name`:array<string>>``."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_DEPTH = 64

# A word may carry a bracket, as Arrow writes timestamp[us, tz=UTC].
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[^\s<>(),:`\[\]]+(?:\[[^\]]*\])?)|(?P<sign>[<>(),:]))")
_NUMBER = re.compile(r"[0-9]{1,3}")

Token = tuple[str, str]  # kind (quoted, word, sign, end) and text
_NOT_NULL = [("word", "not"), ("word", "null")]
END: Token = ("end", "the end")


@dataclass(frozen=True)
class TypeText:
    """A parsed name: ``name`` in lower case, numbers in parentheses, members in angle brackets (None: no brackets).

    ``not_null``: the words ``not null`` stand behind it.
    """

    name: str
    numbers: tuple[int, ...] = ()
    members: tuple[tuple[str | None, TypeText], ...] | None = None
    not_null: bool = False


def parse_type_text(text: str) -> TypeText:
    """Parse a type name. Raises ValueError with the problem."""
    parser = _Parser(_tokens(text))
    parsed = parser.type(0)
    parser.expect("end")
    return parsed


def split_items(text: str) -> list[str]:
    """The items of an option between semicolons that are not within a quoted name, without empty ones."""
    items, item, quoted = [], "", False
    for letter in text:
        quoted ^= letter == "`"
        if letter == ";" and not quoted:
            items.append(item)
            item = ""
        else:
            item += letter
    return [each for each in (*items, item) if each.strip()]


def quoted_field(name: str) -> str:
    """A struct field's name, quoted as in a type name."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


def _tokens(text: str) -> list[Token]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position:].strip()[:1]!r} is out of place")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return [*tokens, END]


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    def type(self, depth: int) -> TypeText:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        words = [self.expect("word")]
        while self.kind() == "word" and not self.is_not_null():
            words.append(self.expect("word"))
        name = " ".join(words).lower()
        numbers = self.numbers() if self.skip("(") else ()
        members = self.members(name == "struct", depth + 1) if self.skip("<") else None
        not_null = self.is_not_null()
        self.position += 2 * not_null
        return TypeText(name, numbers, members, not_null)

    def is_not_null(self) -> bool:
        """Return whether the words ``not null`` are next."""
        return [(kind, text.lower()) for kind, text in self.tokens[self.position : self.position + 2]] == _NOT_NULL

    def numbers(self) -> tuple[int, ...]:
        numbers: list[int] = []
        while not numbers or self.skip(","):
            word = self.expect("word")
            if not _NUMBER.fullmatch(word):
                raise ValueError(f"{word!r} is not a small number")
            numbers.append(int(word))
        self.expect("sign", ")")
        return tuple(numbers)

    def members(self, named: bool, depth: int) -> tuple[tuple[str | None, TypeText], ...]:
        members: list[tuple[str | None, TypeText]] = []
        if self.skip(">"):
            return ()
        while not members or self.skip(","):
            members.append((self.field(named), self.type(depth)))
        self.expect("sign", ">")
        return tuple(members)

    def field(self, named: bool) -> str | None:
        """The name before a type: ``a:``, ``a``, or a quoted one. Only a struct's members need one."""
        colon = self.tokens[self.position + 1 : self.position + 2] == [("sign", ":")]
        if not named and not colon:
            return None
        name = self.expect("quoted")[1:-1].replace("``", "`") if self.kind() == "quoted" else self.expect("word")
        self.skip(":")
        return name

    def kind(self) -> str:
        return self.tokens[self.position][0]

    def skip(self, sign: str) -> bool:
        is_there = self.tokens[self.position] == ("sign", sign)
        self.position += is_there
        return is_there

    def expect(self, kind: str, text: str | None = None) -> str:
        token = self.tokens[self.position]
        if token[0] != kind or text not in (None, token[1]):
            raise ValueError(f"found {token[1]!r}, expected {text or {'word': 'a name', 'end': 'the end'}[kind]}")
        self.position += 1
        return token[1]
