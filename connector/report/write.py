"""`statestore report`: one self-contained page about the stores at a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from statestore.catalog.summaries import summaries
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.charts import charts_of, lifelines_of
from statestore.connector.report.figures import figures_of
from statestore.connector.report.page import page, panel, section, table
from statestore.connector.terminal.output import human_bytes
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError

HEADER = ("store", "kind", "health", "keys", "versions", "rows", "size", "from", "to", "retention", "last commit")
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

    ``store``: report only this store. ``key`` (given as text) gets a lifeline of its own. ``progress`` is called with
    (the store being read, the number done, the total). ``options`` are those of engines that select state.

    Raises NotFoundError PATH_NOT_FOUND, NOTHING_HERE, TABLE_NOT_FOUND, or REPORT_NOT_INSTALLED without the extra.
    """
    selected = engine_options_of("write_report", options)
    return write_page(path, out, selected, store=store, key=key, title=title, progress=progress)


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
    bundle = _bundle()
    warehouse = open_warehouse(path, selected).pin()
    names = warehouse.tables() if store is None else [warehouse.open(store).name]
    described = [item for item in summaries(path, selected) if item["store"] in names]
    charts: dict[str, Any] = {}
    lifelines: dict[str, list[dict[str, Any]]] = {}
    sections = []
    for number, item in enumerate(described):
        progress(item["store"], number, len(described))
        if item["status"] == "damaged" or f"{item['store']}$versions" not in warehouse.metadata_tables():
            continue
        try:
            figures = figures_of(warehouse, item["store"], () if key is None else (key,))
        except NotFoundError as error:
            if store is not None or error.code != ErrorCode.TIME_NOT_KEPT:
                raise
            item["health"] = [*item["health"], f"no charts: {error.message}"]  # a table without a history
            continue
        panels = []
        for index, (heading, what, spec) in enumerate(charts_of(figures)):
            charts[f"c{number}-{index}"] = spec
            panels.append(panel(f"c{number}-{index}", heading, what))
        lives = lifelines_of(figures)
        if lives:
            lifelines[f"l{number}"] = [{"key": name, "spec": spec} for name, spec in lives.items()]
            what = "every version of a key over state time; the colour stands for the commit that recorded it"
            panels.append(panel(f"l{number}", "Lifeline of", what, chooser=True))
        sections.append(section(f"s{number}", item["store"], _about(item), panels))
    overview = table(HEADER, [_row(item) for item in described], NUMBERS, HEALTH)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    location = warehouse.location
    folder = Path(location.path).resolve() if location.is_local else location
    heading = title or f"State in {folder.name}"
    whole = page(heading, f"{folder}, as of {made}", _cards(described), overview, sections, charts, lifelines, bundle)
    target = Path(out)
    target.write_text(whole, "utf-8")
    return target


def _bundle() -> str:
    try:
        import vl_convert
    except ImportError:
        raise NotFoundError(
            ErrorCode.REPORT_NOT_INSTALLED,
            "the report needs the package vl-convert-python; type: pip install 'statestore[report]'",
        ) from None
    found: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return found


def _cards(described: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    def total(name: str) -> int:
        return sum(item[name] or 0 for item in described)

    return [
        ("stores", f"{len(described)}"),
        ("keys", f"{total('keys'):,}"),
        ("versions of keys", f"{total('rows'):,}"),
        ("commits", f"{total('version'):,}"),
        ("on disk", human_bytes(total("bytes"))),
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
    return f"{item['kind']} store of {item['keys'] or 0:,} keys ({key}) with values ({value})"


def _minute(time: str | None) -> str:
    return "" if time is None else time[:16].replace("T", " ")
