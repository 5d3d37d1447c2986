"""Rows printed up to a limit, and the number of those that are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statestore.connector.terminal.output import say

if TYPE_CHECKING:
    import pyarrow as pa

    from statestore.connector.cli.reading.queries import Rows


def show_some(table: pa.Table, limit: int, form: str, full: bool) -> None:
    from statestore.connector.terminal.forms import show_rows

    show_rows(table.schema, table.slice(0, limit).to_batches(), form, full=full)
    say_more(table.num_rows, limit)


def say_rest(rows: Rows) -> None:
    if not rows.cut:
        return
    total = rows.total()
    if total is None:
        say("more rows; a greater --limit shows them")
    else:
        say_more(total, rows.limit)


def say_more(count: int, limit: int) -> None:
    if count > limit:
        left = count - limit
        say(f"{left} more row{'s' if left > 1 else ''}; --limit {count} shows all")
