"""`statestore report`: one self-contained page about the stores at a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from statestore.catalog.summaries import summary_of
from statestore.catalog.warehouse import Warehouse, open_warehouse
from statestore.connector.key_text import asked_key
from statestore.connector.report.charts import charts_of, lifelines_of
from statestore.connector.report.figures import PARTS, Done, StoreFigures, figures_now, figures_of
from statestore.connector.report.history import read_rows
from statestore.connector.report.lifelines import Chosen
from statestore.connector.report.page import page, panel, section, table
from statestore.connector.report.vega_scripts import vega_scripts
from statestore.connector.terminal import human_bytes
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import (
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StateStoreError,
    UnsupportedError,
    shown,
)
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import not_local, parse_location
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

HEADER = ("table", "kind", "health", "rows", "version", "row versions", "size", "from", "to", "kept", "last commit")
HEALTH = 2
NUMBERS = (3, 4, 5, 6)
Progress = Callable[[str, int, int | None], None]


def _silent(text: str, done: int, total: int | None) -> None:
    """Report nothing."""


def write_report(
    path: str | Path,
    out: str | Path,
    *,
    store: str | None = None,
    key: str | None = None,
    title: str | None = None,
    progress: Progress = _silent,
    **options: Any,
) -> Path:
    """Write the page and return its path.

    ``store``: report only this store. ``key`` gets a lifeline of its own; it is given as text, as for ``statestore
    get``. ``progress`` is called with (the store being read, the amount done, the total). ``options`` are those of
    engines that select state.

    Raises NotFoundError PATH_NOT_FOUND, NOTHING_HERE, TABLE_NOT_FOUND, KEY_NOT_FOUND if no table ever had the key, or
    REPORT_NOT_INSTALLED without the extra; InvalidInputError WRONG_KEY for a text that is a key of no table, and
    INVALID_LOCATION for an ``out`` that can be no file; StorageError DISK_FAILED if it cannot be written. Then nothing
    is written.
    """
    selected = engine_options_of("write_report", options)
    return again(lambda: write_page(path, out, selected, store=store, key=key, title=title, progress=progress))


def write_page(
    path: str | Path,
    out: str | Path,
    selected: Mapping[str, str],
    *,
    store: str | None = None,
    key: str | None = None,
    title: str | None = None,
    progress: Progress = _silent,
) -> Path:
    """Write the page as `write_report` does. ``selected`` are options of engines by their names in Spark."""
    target = _target(out)
    warehouse = open_warehouse(path, selected).pin()
    names = warehouse.tables() if store is None else [warehouse.open(store).name]
    tables = _bound(warehouse, names)
    described = [summary_of(warehouse, name, tables.get(name)) for name in names]
    charted = [item["store"] for item in described if item["status"] in ("ok", "attention") and item["store"] in tables]
    chosen = {} if key is None else _found([tables[name] for name in charted], key)
    bundle = vega_scripts()
    commits: set[tuple[int, int]] = set()
    charts: dict[str, Any] = {}
    lifelines: dict[str, list[dict[str, Any]]] = {}
    sections = []
    for number, item in enumerate(described):
        name, total = item["store"], PARTS * len(described)
        progress(name, PARTS * number, total)
        if name not in charted:
            continue
        asked = (chosen[name],) if name in chosen else ()
        done = partial(_advance, progress, name, PARTS * number, total)
        try:
            figures, reason = _figures(tables[name], asked, done, is_alone=store is not None)
        except (UnsupportedError, CorruptError, NotFoundError) as error:
            if store is not None or is_gone(error):
                raise
            item["health"] = [*item["health"], f"no figures: {error.message}"]  # the page is about the others, too
            item["status"] = "damaged" if isinstance(error, CorruptError) else item["status"]
            continue
        item["health"] = [*item["health"], f"no history: {reason}"] if reason else item["health"]
        item["keys"] = figures.rows if item["keys"] is None else item["keys"]
        item["rows"] = figures.versions
        commits |= figures.commits  # the tables of one query, job or keyed store have the same ones
        panels = []
        for index, (heading, what, spec) in enumerate(charts_of(figures)):
            charts[f"c{number}-{index}"] = spec
            panels.append(panel(f"c{number}-{index}", heading, what))
        lives = lifelines_of(figures)
        if lives:
            lifelines[f"l{number}"] = [{"key": name, "spec": spec} for name, spec in lives.items()]
            what = (
                f"every version of a key over {'state time' if figures.is_timed else 'versions'}; the colour of a step "
                "is that of its commit, of a bar its value"
            )
            panels.append(panel(f"l{number}", "Lifeline of", what, chooser=True))
        about = f"{_about(item)}; no history: {reason}" if reason else _about(item)
        sections.append(section(f"s{number}", item["store"], about, panels))
    overview = table(HEADER, [_row(item) for item in described], NUMBERS, HEALTH)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    location = warehouse.location
    folder = Path(location.path).resolve() if location.is_local else location
    heading = title or f"State in {folder.name}"
    cards = _cards(described, len(commits))
    text = page(heading, f"{folder}, as of {made}", cards, overview, sections, charts, lifelines, bundle)
    with disk_errors("write", target):
        target.write_text(text, "utf-8")
    return target


def _target(out: str | Path) -> Path:
    """Return the local file to write, which need not exist. Raises InvalidInputError INVALID_LOCATION."""
    location = parse_location(out)
    if not location.is_local:
        raise not_local(location, "a report is written into")
    if Path(location.path).is_dir():
        raise InvalidInputError(
            ErrorCode.INVALID_LOCATION,
            f"out is {shown(str(out))}, a directory; give the path of a file, such as "
            f"{Path(location.path) / 'report.html'}",
        )
    return Path(out)


def _advance(progress: Progress, name: str, before: int, total: int, done: int) -> None:
    progress(name, before + done, total)


def _figures(table: StateTable, chosen: Chosen, done: Done, *, is_alone: bool) -> tuple[StoreFigures, str]:
    """Return the figures of a table, and the reason why it has no history, which one that is alone must have."""
    try:
        return figures_of(table, chosen, done), ""
    except NotFoundError as error:
        if is_alone or error.code != ErrorCode.TIME_NOT_KEPT:
            raise
        return figures_now(table), error.message


def _bound(warehouse: Warehouse, names: Sequence[str]) -> dict[str, StateTable]:
    """Return the tables of a pinned warehouse that can be opened, each bound to its state now.

    All figures of a table are then of one version.
    """
    tables: dict[str, StateTable] = {}
    for name in names:
        try:
            tables[name] = warehouse.open(name).for_plan()
        except StateStoreError:
            continue  # its summary says what is wrong
    return tables


def _found(tables: Sequence[StateTable], key: str) -> dict[str, tuple[Filter, ...]]:
    """Return the filters that find a key, for each table that has or had it.

    Raises InvalidInputError WRONG_KEY if the text is a key of no table, NotFoundError KEY_NOT_FOUND if none had it.
    """
    found: dict[str, tuple[Filter, ...]] = {}
    refused: InvalidInputError | None = None
    asked = []
    for each in tables:
        try:
            filters = asked_key(each, key)
        except InvalidInputError as error:
            refused = error
            continue
        asked.append(each.name)
        query = Query(mode="history", columns=each.key_columns, filters=filters)
        if any(batch.num_rows for batch in read_rows(each, query)):
            found[each.name] = filters
    if refused is not None and not asked:
        raise refused
    if not found:
        raise NotFoundError(
            ErrorCode.KEY_NOT_FOUND,
            f"key {shown(key)}: {', '.join(asked) or 'no table'} never had it in what is kept; expected a key that "
            "`statestore scan` or `statestore history` shows",
        )
    return found


def _cards(described: Sequence[dict[str, Any]], commits: int) -> list[tuple[str, str]]:
    def total(name: str, text: Callable[[int], str] = "{:,}".format) -> str:
        known = [item[name] for item in described if item[name] is not None]
        if not known:
            return "unknown"
        return text(sum(known)) if len(known) == len(described) else f"at least {text(sum(known))}"

    return [
        ("table" if len(described) == 1 else "tables", f"{len(described)}"),
        ("rows now", total("keys")),
        ("versions of rows", total("rows")),
        ("commits", f"{commits:,}"),
        ("on disk", total("bytes", human_bytes)),
    ]


def _row(item: dict[str, Any]) -> list[str]:
    def number(name: str) -> str:
        return "" if item[name] is None else f"{item[name]:,}"

    return [
        item["store"],
        item["kind"] or "",
        "; ".join(item["health"]) or "ok",
        number("keys"),
        number("version"),
        number("rows"),
        "" if item["bytes"] is None else human_bytes(item["bytes"]),
        _minute(item["from"]),
        _minute(item["to"]),
        item["retention"] or "for ever",
        f"{_minute(item['last_commit'])} {item['writer'] or ''}".strip(),
    ]


def _about(item: dict[str, Any]) -> str:
    key, value = (", ".join(f"{n} {kind}" for n, kind in (item[part] or {}).items()) for part in ("key", "value"))
    rows = "an unknown number of rows" if item["keys"] is None else f"{item['keys']:,} rows"
    return f"{item['kind']} with {rows if item['keys'] != 1 else '1 row'}: key ({key}), value ({value})"


def _minute(time: str | None) -> str:
    return "" if time is None else time[:16].replace("T", " ")
