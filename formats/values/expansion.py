"""Bounds on descriptions of types and on documents from files that nobody vouches for.

A schema may name a type that it defined before, and each name stands for the whole of that type. A few hundred bytes,
in which each record has the one before several times, so describe more columns than any memory holds. Every reader of
schemas counts the types that its description expands to, and refuses more than MOST_TYPES. Documents in TOML have a
bound of their own: a key of many parts is a table in a table for each of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_TYPES = 10_000
"""Most types, those of columns in columns included, that a description may expand to."""
_MOST_DOTS = 1_000
_TOML_TEXT = re.compile(r"""\"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")


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
    for number, line in enumerate(text.splitlines(), 1):
        # The parser takes memory for each part of a key as often as the key has parts.
        if line.count(".") > _MOST_DOTS and _TOML_TEXT.sub("", line).count(".") > _MOST_DOTS:
            raise ValueError(f"line {number} has a key of more than {_MOST_DOTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("found values nested too deeply") from None
