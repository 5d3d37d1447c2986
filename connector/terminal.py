"""The output of commands: tables for people, JSON for machines. Data goes to stdout, everything else to stderr.

On a terminal a table never wraps: long cells are cut with … (except with ``full``), and if even cut cells do not fit,
each row becomes a block of lines. In a pipe cells are whole, with one line for each row, without colour.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.cells import cell_len, chop_cells

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values
from statestore.formats.values.unique_names import unique_names

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

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
        _show_json(table.to_batches())
        return
    show_grid(_grid_of(table), title=title, full=full)


def _show_json(batches: Iterable[pa.RecordBatch]) -> None:
    """Print batches as JSON lines, as they arrive."""
    for batch in batches:
        for value in json_objects(batch):
            print(_json_text(value))


def json_objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch in terms of JSON."""
    names = unique_names(batch.schema.names, ignore_case=False)
    for row in _rows(batch):
        yield plain(dict(zip(names, row, strict=True)))


def show_line(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(_json_text(plain(value)))


def show_object(value: dict[str, Any], *, as_json: bool, title: str | None = None) -> None:
    """Print one object as JSON, or as a two-column table of its fields."""
    if as_json:
        show_line(value)
        return
    grid = Grid(["field", "value"], [False, False], [[name, cell(item)] for name, item in value.items()])
    show_grid(grid, title=title, full=True)


def _grid_of(table: pa.Table) -> Grid:
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
    from rich.segment import Segments
    from rich.text import Text

    width = terminal_width()
    shown = grid if width is None or full else _cut_to(grid, LONG_CELL)
    needed = fits(shown)
    if width is not None and needed > width:
        widths = None if full else _widths_within(shown, width)
        if widths is None:
            show_blocks(grid, None if full else width, title)
            return
        shown = _cut_to(shown, widths)
    console = _console(max(needed, width or 0, 1))
    if title:
        console.print(Text(title, style="italic"))
    if shown.names:
        console.print(Segments(_table_of(shown, console)), end="", crop=False)
    else:
        console.print()


def _table_of(grid: Grid, console: Console) -> Iterator[Segment]:
    """Yield a table in a box, with bold names. Rich's own table measures and wraps each cell, which takes a second for
    a thousand rows.
    """
    from rich.box import HEAVY_HEAD
    from rich.segment import Segment
    from rich.style import Style

    bold, dim, line = Style(bold=True), Style(dim=True), Segment.line()
    box = HEAVY_HEAD.substitute(console.options, safe=console.safe_box)
    widths = _column_widths(grid)
    padded = [width + 2 for width in widths]
    yield Segment(box.get_top(padded))
    yield line
    yield Segment(box.head_left)
    for number, (name, width, right) in enumerate(zip(grid.names, widths, grid.numeric, strict=True)):
        yield Segment(f" {_aligned(name, width, right)} ", bold)
        yield Segment(box.head_vertical if number < len(widths) - 1 else box.head_right)
    yield line
    yield Segment(box.get_row(padded, "head"))
    yield line
    for cells in grid.rows:
        begun = box.mid_left
        for text, width, right in zip(cells, widths, grid.numeric, strict=True):
            if text is None:  # the only cell with a style of its own
                yield Segment(f"{begun} ")
                yield Segment(_aligned(NULL, width, right), dim)
                begun = f" {box.mid_vertical}"
            else:
                begun = f"{begun} {_aligned(text, width, right)} {box.mid_vertical}"
        yield Segment(begun[: -len(box.mid_vertical)] + box.mid_right)
        yield line
    yield Segment(box.get_bottom(padded))
    yield line


def _aligned(text: str, width: int, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


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
    for line in _blocks(grid, width, fold):
        console.print(Text(line), soft_wrap=True)


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
    return printable(shown) if isinstance(shown, str) else _json_text(shown)


def _json_text(value: Any) -> str:
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


def plain_text(value: Any) -> str:
    """Return a value as text: a text as it is, times as ISO-8601, binary as base64, nested values as JSON."""
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield rows as tuples and not as dicts, because SQL may give two columns one name."""
    if not batch.num_columns:
        return iter([()] * batch.num_rows)
    return zip(*(python_values(column) for column in batch.columns), strict=True)


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


# The forms in which rows are printed: a table, CSV, TSV, JSON lines, or a block of lines for each row.

FORMS = ("table", "csv", "tsv", "json")
DELIMITERS = {"csv": ",", "tsv": "\t"}


def form_of(given: str | None, as_json: bool) -> str:
    """Return the form that --format and --json ask for. Raises InvalidInputError INVALID_OPTION."""
    if given is not None and given not in FORMS:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"--format is {given}; expected {', '.join(FORMS)}")
    if as_json and given not in (None, "json"):
        raise InvalidInputError(ErrorCode.CONFLICTING_OPTIONS, f"--json and --format {given}: give one of them")
    return "json" if as_json else given or "table"


def show_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: str, *, full: bool = False) -> None:
    """Print rows. CSV, TSV and JSON are printed as the batches arrive; ``line`` is a block for each row."""
    if form == "json":
        _show_json(batches)
    elif form in DELIMITERS:
        _show_delimited(schema, batches, DELIMITERS[form])
    else:
        grid = _grid_of(pa.Table.from_batches(batches, schema=schema))
        if form == "line":
            show_blocks(grid, None)
        else:
            show_grid(grid, full=full)


def show_objects(names: Sequence[str], rows: Sequence[Mapping[str, Any]], form: str) -> bool:
    """Print objects with these names in a form other than a table; return whether the form was one."""
    if form == "json":
        for row in rows:
            show_line(row)
    elif form in DELIMITERS:
        cells = ([delimited_cell(each) for each in map(row.get, names)] for row in rows)
        show_delimited(names, cells, DELIMITERS[form])
    return form != "table"


def _show_delimited(schema: pa.Schema, batches: Iterable[pa.RecordBatch], delimiter: str) -> None:
    rows = ([delimited_cell(each) for each in value.values()] for batch in batches for value in json_objects(batch))
    show_delimited(schema.names, rows, delimiter)


def delimited_cell(value: Any) -> str | None:
    """Return the text of a value in terms of JSON, as CSV has it: a text as it is, a nested value as JSON."""
    return value if isinstance(value, str) else cell(value)


def show_delimited(names: Sequence[str], rows: Iterable[Sequence[str | None]], delimiter: str) -> None:
    """Print a header and rows as RFC 4180 has them. Null is an empty cell, an empty text is one in quotes."""
    special = re.compile(f'[{delimiter}"\\r\\n]|^$')

    def quoted(text: str | None) -> str:
        if text is None or not special.search(text):
            return "" if text is None else text
        return '"' + text.replace('"', '""') + '"'

    print(delimiter.join(map(quoted, names)))
    for row in rows:
        print(delimiter.join(map(quoted, row)))


# Cells of a table as texts: their widths, their shortening, and blocks of lines where a table is too wide.

BORDER = 3  # characters between two cells
LEAST = 12  # a column is not cut to fewer characters
NULL = "null"


@dataclass(frozen=True)
class Grid:
    """A table of texts, None for null; ``numeric`` columns are aligned right."""

    names: list[str]
    numeric: list[bool]
    rows: list[list[str | None]]


def _column_widths(grid: Grid) -> list[int]:
    widths = [cell_len(name) for name in grid.names]
    for row in grid.rows:
        widths = [max(width, cell_len(NULL if text is None else text)) for width, text in zip(widths, row, strict=True)]
    return widths


def fits(grid: Grid) -> int:
    """The width of the whole table."""
    return _with_borders(_column_widths(grid))


def _with_borders(widths: Sequence[int]) -> int:
    return sum(widths) + BORDER * len(widths) + 1


def cut(text: str, width: int) -> str:
    """``text`` if it fits, else its beginning followed by …."""
    if cell_len(text) <= width:
        return text
    return (chop_cells(text, max(width - 1, 1))[0] if width > 1 else "") + "…"


def _cut_to(grid: Grid, widths: int | Sequence[int]) -> Grid:
    """The grid with each cell cut to at most this width; names are cut like cells."""
    each = [widths] * len(grid.names) if isinstance(widths, int) else list(widths)
    rows = [[None if t is None else cut(t, w) for t, w in zip(row, each, strict=True)] for row in grid.rows]
    return replace(grid, names=[cut(n, w) for n, w in zip(grid.names, each, strict=True)], rows=rows)


def _widths_within(grid: Grid, width: int) -> list[int] | None:
    """Widths that make the table fit, taken from the widest columns; None if columns would become too narrow."""
    widths = _column_widths(grid)
    low, high = LEAST, max(widths, default=0)
    if _with_borders([min(w, low) for w in widths]) > width:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _with_borders([min(w, middle) for w in widths]) <= width else (low, middle - 1)
    return [min(w, low) for w in widths]


def _blocks(grid: Grid, width: int | None, fold: bool = False) -> Iterator[str]:
    """Yield each row as lines of name and value, cut to ``width`` if one is given, or with ``fold`` continued below."""
    margin = max((cell_len(name) for name in grid.names), default=0) + 2
    for number, row in enumerate(grid.rows, 1):
        yield f"── {number} " + "─" * max((width or 40) - 5 - len(str(number)), 1)
        for name, text in zip(grid.names, row, strict=True):
            shown = NULL if text is None else text
            begun = name + " " * (margin - cell_len(name))
            if width is None or not fold:
                yield begun + shown if width is None else cut(begun + shown, width)
                continue
            for piece in chop_cells(shown, max(width - margin, LEAST)) or [""]:
                yield begun + piece
                begun = " " * margin


# Progress bars, on stderr, and only on a terminal.

Advance = Callable[[str, int, int | None], None]
"""(the step, the amount done, the total or None if it is unknown)."""


@contextlib.contextmanager
def progress(unit_bytes: bool = False) -> Iterator[Advance]:
    """Show a bar that disappears when the work is done; show nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda text, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = DownloadColumn(binary_units=True) if unit_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def advance(text: str, done: int, total: int | None) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield advance


# Questions before something is removed, asked on stderr and answered on stdin.


def agreed(question: str) -> bool:
    """Ask, and return whether the answer is yes; no answer is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
