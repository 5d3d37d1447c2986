"""Bounds on descriptions of types and on documents from files that nobody vouches for.

A schema may name a type that it defined before, and each name stands for the whole of that type. A few hundred bytes,
in which each record has the one before several times, so describe more columns than any memory holds. Every reader of
schemas counts the types that its description expands to, and refuses more than MOST_TYPES. Documents in TOML have a
bound of their own: a key of many parts is a table in a table for each of them. Texts in JSON may hold half a surrogate
pair, which no column can hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_TYPES = 10_000
"""Most types, those of columns in columns included, that a description may expand to."""
_MOST_DOTS = 1_000
_TOML_TEXT = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*''' r"|'''.*?'''|'[^'\n]*'", re.DOTALL
)
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass
class Expansion:
    """The number of types to which a description expands as far as it was read. ``refuse`` makes the error."""

    refuse: Callable[[str], Exception]
    types: int = 0
    named: dict[str, int] = field(default_factory=dict)
    """The types of which each type with a name consists, itself included."""

    def add(self, types: int = 1) -> None:
        """Count types; more than MOST_TYPES are refused."""
        self.types += types
        if self.types > MOST_TYPES:
            raise self.refuse(f"more than {MOST_TYPES} types, those of types in types included")

    def add_named(self, name: str) -> None:
        """Count a type that is named here and was defined before."""
        self.add(self.named.get(name, 1))

    def define(self, name: str, before: int) -> None:
        """Note the size of a type whose definition has been read; ``before`` is ``types`` where it began."""
        self.named[name] = max(1, self.types - before)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError for any text that is none, or that nests deeper than anything useful."""
    # The parser takes time and memory for each part of a key as often as the key has parts.
    if sum(line.count(".") ** 2 for line in text.split("\n")) > _MOST_DOTS**2:
        plain = _TOML_TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
        parts = 0
        for number, line in enumerate(plain.split("\n"), 1):
            parts += line.count(".") ** 2
            if parts > _MOST_DOTS**2:
                raise ValueError(f"line {number} has a key of too many parts, or is after many such lines")
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("found values nested too deeply") from None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of a file.

    Raises ValueError for any text that is none, that nests deeper than anything useful, or that holds half a surrogate
    pair, which JSON can write and UTF-8 cannot.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("found values nested too deeply") from None
    if _HALF_PAIR.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("found half a surrogate pair in a text") from None
    return found
