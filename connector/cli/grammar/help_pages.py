"""Commands that take a number below zero as an argument, and help pages on which no word is cut: the first sentence of
each command whole, and no option broken at a hyphen."""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDTH = 76  # of a terminal of 80 columns, less the indentation
OTHER_WORDS = {
    "help": "--help",
    "delete": "drop",
    "insert": "put",
    "list": "inspect",
    "log": "versions",
    "ls": "inspect",
    "optimize": "compact",
    "query": "sql",
    "rm": "drop",
    "select": "sql",
    "set": "put",
    "show": "scan",
    "status": "inspect",
    "tables": "inspect",
    "tail": "watch",
    "version": "--version",
}
"""Words of git, SQL and shells, and the commands that do as much."""


class Group(TyperGroup):
    """The commands of the program, each with its first sentence in the list."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; name the one that does what a word of other programs asks for."""
        known = OTHER_WORDS.get(args[0])
        if known is not None and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {known!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(1000)) for name, each in found if each is not None and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


BELOW_ZERO = re.compile(r"-(\.?[0-9]|(inf|infinity|nan)$)", re.IGNORECASE)
"""The beginning of a number, or of a duration like ``-1 day, 23:00:00``, as keys and values are printed."""


class Command(TyperCommand):
    """A command that takes what begins like a number below zero as an argument. Its last paragraph lists options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command; no option begins like a number."""
        with_value = {
            spelling
            for option in self.get_params(ctx)
            if option.param_type_name == "option" and not getattr(option, "is_flag", False)
            for spelling in (*option.opts, *option.secondary_opts)
        }
        left = iter(args)
        options: list[str] = []
        arguments: list[str] = []
        for word in left:
            if word == "--":
                arguments += left
            elif word in with_value:
                options += [word, *itertools.islice(left, 1)]
            elif word.startswith("-") and word != "-" and not BELOW_ZERO.match(word):
                options.append(word)
            else:
                arguments.append(word)
        is_needed = any(map(BELOW_ZERO.match, arguments))
        rest: list[str] = super().parse_args(ctx, [*options, "--", *arguments] if is_needed else args)
        return rest

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the last paragraph, broken at blanks only."""
        if self.epilog:
            formatter.write_paragraph()
            for line in textwrap.wrap(self.epilog, WIDTH, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
