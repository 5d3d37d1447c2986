"""Help pages on which no word is cut: the first sentence of each command whole, and no option broken at a hyphen."""

from __future__ import annotations

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


class Command(TyperCommand):
    """A command whose last paragraph lists options."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the last paragraph, broken at blanks only."""
        if self.epilog:
            formatter.write_paragraph()
            for line in textwrap.wrap(self.epilog, WIDTH, break_on_hyphens=False):
                formatter.write(f"  {line}\n")
