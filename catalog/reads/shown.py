"""Objects that show themselves: a few lines in a terminal, a small table in a notebook.

Every name and value is escaped: what was stored is shown as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statestore.catalog.reads.captured import shown_columns_of
from statestore.formats.values.python_times import python_values
from statestore.formats.values.times import format_duration, format_time
from statestore.formats.values.types import shown_field

if TYPE_CHECKING:
    from statestore.catalog.log.log_state import LogState
    from statestore.catalog.log.storage import Storage
    from statestore.catalog.log.store_spec import StoreSpec

MOST_TEXT = 100  # characters of a cell
MOST_COLUMNS = 50


def printable(text: str) -> str:
    """Return a text for a terminal, without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """Return a text as HTML that shows it."""
    import html

    return html.escape(text.encode(errors="backslashreplace").decode())


def shown_columns(schema: pa.Schema) -> str:
    """Return the columns with their types in one line."""
    parts = [f"{field.name} {shown_field(field)}" for field in list(schema)[:MOST_COLUMNS]]
    return listed(parts, len(schema)) or "no columns"


def listed(parts: Sequence[str], count: int | None = None) -> str:
    """Return names behind each other, with how many of ``count`` were left out."""
    left = (len(parts) if count is None else count) - len(parts[:MOST_COLUMNS])
    return ", ".join(parts[:MOST_COLUMNS]) + (f" and {left} more" if left > 0 else "")


def html_page(title: str, said: str, table: str = "") -> str:
    """Return a heading, a table that is HTML already, and a line below it."""
    return f"<div><b>{escape(title)}</b>{table}<small>{escape(said)}</small></div>"


def html_table(rows: pa.Table) -> str:
    """Return a few rows as an HTML table."""
    shown = rows.select(range(min(rows.num_columns, MOST_COLUMNS)))
    cells = [[_cell(value) for value in python_values(column)] for column in shown.columns]
    header = [f"{field.name}\n{shown_field(field)}" for field in shown.schema]
    return html_cells(header, zip(*cells, strict=True))


def html_cells(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return texts as an HTML table; a newline in the header begins a smaller line."""
    head = "".join(f"<th>{'<br><small>'.join(map(escape, h.split(chr(10), 1)))}{_closed(h)}</th>" for h in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if header else f"<table>{body}</table>"


def html_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and what they are, a row each."""
    return html_cells((), facts)


def _closed(header: str) -> str:
    return "</small>" if "\n" in header else ""


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


Facts = Sequence[tuple[str, str]]


class ShowsItself:
    """An object with a title and a few facts. To show it never raises, and never reads rows."""

    def _about(self) -> tuple[str, Facts]:
        """Return the title, and what is known, by name. May raise."""
        raise NotImplementedError

    def __repr__(self) -> str:
        title, facts = _shown_of(self)
        return "\n".join([printable(title), *(printable(f"  {name}: {what}") for name, what in facts)])

    def _repr_html_(self) -> str:
        title, facts = _shown_of(self)
        return html_page(title, "", html_facts(facts))


def _shown_of(item: ShowsItself) -> tuple[str, Facts]:
    try:
        return item._about()
    except Exception as error:  # of a store that is gone or damaged, or of an object that was never whole
        return f"{type(item).__name__} that cannot be shown", [("because", str(error) or type(error).__name__)]


def store_title(spec: StoreSpec, storage: Storage) -> str:
    serde = "" if spec.serde == "natural" else f" with serde {spec.serde}"
    return f"{spec.kind} store {spec.name!r}{serde} at {storage}"


def columns_of(spec: StoreSpec) -> Facts:
    """Return the columns of keys and values, and how long they are kept."""
    kept = spec.history_retention if spec.windowing is None else spec.windowing.retention
    key, value = shown_columns_of(spec)
    facts = [("key", shown_columns(key))]
    if len(value):
        facts.append(("value", shown_columns(value)))
    if spec.captured is not None:
        facts.append(("captured from", f"{spec.captured.kind} {spec.captured.state!r} of {spec.captured.path}"))
    return facts if kept is None else [*facts, ("kept for", format_duration(kept))]


def contents_of(log_state: LogState) -> Facts:
    """Return what the newest version has."""
    rows = sum(m.rows for m in log_state.segments if not m.tombstone and m.role != "belief")
    oldest = 0 if log_state.horizon is None else log_state.horizon.version
    facts = [("versions", f"{oldest} to {log_state.version}"), ("rows", f"{rows}, with those of the past")]
    newest = log_state.stream_time
    return facts if newest is None else [*facts, ("newest moment", format_time(newest))]


class NamedItems(ShowsItself):
    """Something that has stores or tables by name, and returns them as a dict would."""

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _item(self, name: str) -> Any:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        return self._item(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __len__(self) -> int:
        return len(self._names())

    def __bool__(self) -> bool:
        """Return True: a warehouse without stores is a warehouse, and to ask for one must not list it."""
        return True

    def _ipython_key_completions_(self) -> list[str]:
        try:
            return self._names()
        except Exception:  # a completion that cannot be made is no completion
            return []
