"""Versions that a page shows while it follows, with their rows, each compared with the truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from playwright.sync_api import Page

LATER = 20_000  # milliseconds
MOMENT = """() => {
  const grid = document.querySelector(".grid");
  if (grid?.getAttribute("aria-busy") !== "false") return "";
  const texts = cell => [...cell.childNodes].filter(each => each.nodeType === Node.TEXT_NODE);
  const own = cell => texts(cell).map(each => each.data).join("");
  const rows = [...grid.querySelectorAll("tbody tr:not(.space)")].map(row => [...row.cells].map(own));
  return JSON.stringify([document.querySelector("[role=slider]").ariaValueNow, rows]);
}"""
"""The version that the page names and the rows below it, without their marks; empty while rows are read."""
NEXT = f"known => {{ const now = ({MOMENT})(); return now && !known.includes(now) ? now : null; }}"

Rows = dict[str, Any]


def moments(page: Page, read: Callable[[list[list[str]]], Rows]) -> Iterator[tuple[int, Rows]]:
    """Yield each pair of a version and its rows that the page shows, once, as soon as it is drawn."""
    known: list[str] = []
    while True:
        found = page.wait_for_function(NEXT, arg=known, timeout=LATER).json_value()
        known.append(found)
        version, rows = json.loads(found)
        yield int(version), read(rows)


def step_until(page: Page, version: int, read: Callable[[list[list[str]]], Rows], truth: Callable[[int], Rows]) -> int:
    """Compare all that is shown until a version is; return how many moments there were."""
    for number, (shown, rows) in enumerate(moments(page, read), 1):
        assert rows == truth(shown), f"version {shown}"
        if shown == version:
            return number
    raise AssertionError
