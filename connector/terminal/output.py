"""The output of commands: tables for people, JSON for machines. Data goes to stdout, everything else to stderr.

On a terminal a table never wraps: long cells are cut with … (except with ``full``), and if even cut cells do not fit,
each row becomes a block of lines. In a pipe cells are whole, with one line for each row, without colour.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from statestore.connector.terminal.grid import Grid, blocks, cut_to, fits, widths_within
from statestore.formats.values.python_times import python_values

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.text import Text

LONG_CELL = 60  # characters of a cell on a terminal
# Characters in a value that would move the cursor, recolour the terminal or break a row of a table.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CONTROL_BUT_BREAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def terminal_width() -> int | None:
    """The number of columns of the terminal at stdout; None if stdout is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def message_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def show_table(table: pa.Table, *, as_json: bool, title: str | None = None, full: bool = False) -> None:
    """Print all rows of ``table``, as JSON lines with one object a row, or as a table."""
    if as_json:
        show_json(table.to_batches())
        return
    show_grid(grid_of(table), title=title, full=full)


def show_json(batches: Iterable[pa.RecordBatch]) -> None:
    """Print batches as JSON lines, as they arrive."""
    for batch in batches:
        for value in json_objects(batch):
            print(json_text(value))


def json_objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch in terms of JSON."""
    names = unique_names(batch.schema.names)
    for row in _rows(batch):
        yield plain(dict(zip(names, row, strict=True)))


def show_line(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(json_text(plain(value)))


def show_object(value: dict[str, Any], *, as_json: bool, title: str | None = None) -> None:
    """Print one object as JSON, or as a two-column table of its fields."""
    if as_json:
        show_line(value)
        return
    grid = Grid(["field", "value"], [False, False], [[name, cell(item)] for name, item in value.items()])
    show_grid(grid, title=title, full=True)


def grid_of(table: pa.Table) -> Grid:
    """The cells of a table as texts."""
    import pyarrow as pa

    types = pa.types
    numeric = [
        bool(types.is_integer(f.type) or types.is_floating(f.type) or types.is_decimal(f.type)) for f in table.schema
    ]
    rows = [[cell(value) for value in row] for batch in table.to_batches() for row in _rows(batch)]
    return Grid([printable(name) for name in table.column_names], numeric, rows)


def show_grid(grid: Grid, *, title: str | None = None, full: bool = False) -> None:
    """Print cells as a table, or as blocks where the terminal is too narrow for one."""
    from rich.table import Table
    from rich.text import Text

    width = terminal_width()
    shown = grid if width is None or full else cut_to(grid, LONG_CELL)
    needed = fits(shown)
    if width is not None and needed > width:
        widths = None if full else widths_within(shown, width)
        if widths is None:
            show_blocks(grid, None if full else width, title)
            return
        shown = cut_to(shown, widths)
    console = _console(max(needed, width or 0, 1))
    if title:
        console.print(Text(title, style="italic"))
    table = Table(header_style="bold")
    for name, right in zip(shown.names, shown.numeric, strict=True):
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*map(_styled, row))
    console.print(table)


def show_text(text: str) -> None:
    """Print a sentence that belongs to the result: to stdout, wrapped by a terminal only."""
    from rich.text import Text

    _console(terminal_width() or max(2 * len(text), 1)).print(Text(printable(text)))


def show_blocks(grid: Grid, width: int | None, title: str | None = None, *, fold: bool = False) -> None:
    """Print each row as a block of lines, cut to ``width``, or with ``fold`` continued on further lines."""
    from rich.text import Text

    console = _console()
    if title:
        console.print(Text(title, style="italic"))
    for line in blocks(grid, width, fold):
        console.print(Text(line), soft_wrap=True)


def _styled(text: str | None) -> Text:
    from rich.text import Text

    return Text("null", style="dim") if text is None else Text(text)


def say(text: str) -> None:
    """Print a message to stderr."""
    from rich.text import Text

    message_console().print(Text(CONTROL_BUT_BREAKS.sub(_escaped, text)), soft_wrap=True)


def say_error(text: str) -> None:
    """Print an error in one line to stderr."""
    say(f"statestore: {' '.join(text.split())}")


def say_notice(text: str) -> None:
    """Print in one line to stderr why rows that are printed may not be current."""
    say(f"notice: {' '.join(text.split())}")


def cell(value: Any) -> str | None:
    """A value in a table, None for null; binary as base64:… where it is not in a struct or a list."""
    if value is None:
        return None
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bytes):
        return f"base64:{plain(value)}"  # as a key of binary is typed
    shown = plain(value)
    return printable(shown) if isinstance(shown, str) else json_text(shown)


def json_text(value: Any) -> str:
    """Return JSON in one line. What a terminal would not show as it is, or cannot, is escaped as JSON has it."""
    if not _shows_unicode():
        return json.dumps(value)
    return CONTROL.sub(lambda character: f"\\u{ord(character[0]):04x}", json.dumps(value, ensure_ascii=False))


def printable(text: str) -> str:
    """``text`` in one line; control characters are written out, like \\x1b, and what stdout cannot show, like \\xfc."""
    shown = CONTROL.sub(_escaped, text)
    encoding = None if _shows_unicode() else sys.stdout.encoding
    return shown if encoding is None else shown.encode(encoding, "backslashreplace").decode(encoding)


def _shows_unicode() -> bool:
    """Return whether stdout takes every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def _console(width: int | None = None) -> Console:
    """Return a console for stdout. Where that takes no Unicode, marks such as that of a cut are written out."""
    from rich.console import Console

    if not _shows_unicode():
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return Console(width=width, highlight=False)


def _escaped(character: re.Match[str]) -> str:
    escapes, code = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}, ord(character[0])
    return escapes.get(character[0], f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def plain(value: Any) -> Any:
    """``value`` in terms of JSON: times as ISO-8601 in UTC, binary as base64, decimals and similar types as text; NaN
    and the infinities, which JSON does not have, also as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if type(value).__name__ == "MonthDayNano":  # Arrow's named tuple
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield rows as tuples and not as dicts, because SQL may give two columns one name."""
    if not batch.num_columns:
        return iter([()] * batch.num_rows)
    return zip(*(python_values(column) for column in batch.columns), strict=True)


def unique_names(names: Sequence[str]) -> list[str]:
    """Names for a JSON object: a, a_1, a_2 for three columns named a."""
    unique: dict[str, None] = {}
    for name in names:
        candidate, number = name, 0
        while candidate in unique:
            number += 1
            candidate = f"{name}_{number}"
        unique[candidate] = None
    return list(unique)


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
