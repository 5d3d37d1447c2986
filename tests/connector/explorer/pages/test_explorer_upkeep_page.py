"""A page that follows a store while it is written, compacted and vacuumed shows the rows of each version."""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from support.explorer.browsers import opened
from support.explorer.following import LATER, Rows, moments, step_until

import statestore

pytestmark = pytest.mark.slow
KEYS = 11
START = 1_714_550_000_000


@dataclass
class Writer:
    """Writes and compacts a store until it is told to stop, and knows the rows of each version."""

    store: Any
    truths: dict[int, Rows] = field(default_factory=dict)
    now: Rows = field(default_factory=dict)
    ends: threading.Event = field(default_factory=threading.Event)
    compacted: int = 0

    def commit(self, number: int) -> None:
        for key in (f"key{(number * step) % KEYS:02d}" for step in (1, 3, 4)):
            self.now[key] = str(number)
            self.store.put(key, number, timestamp=START + number)
        gone = f"key{(number + 5) % KEYS:02d}"
        if number % 2 and self.now.get(gone) not in (None, str(number)):
            self.now.pop(gone)
            self.store.delete(gone, timestamp=START + number)
        self.truths[self.store.version + 1] = dict(self.now)  # before anybody can see it
        self.store.commit()
        if number % 3 == 2:
            self.truths[self.store.version + 1] = dict(self.now)
            before = self.store.version
            self.compacted += self.store.compact(full=number % 2 == 0) > before
            self.store.vacuum(older_than=0)

    def run(self) -> None:
        for number in itertools.count(1):
            if self.ends.is_set():
                return
            self.commit(number)

    def truth(self, version: int) -> Rows:
        return self.truths[version]


def rows_of(rows: list[list[str]]) -> Rows:
    return {row[0]: row[1] for row in rows}


def test_a_store_that_is_written_compacted_and_vacuumed(browser: Any, tmp_path: Path) -> None:
    store = statestore.connect(tmp_path / "own").create_store("visits", key={"k": "string"}, value={"n": "bigint"})
    writer = Writer(store)
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)
        writer.commit(0)
        made = statestore.explore(tmp_path / "own")
        stack.callback(made.stop)
        page = stack.enter_context(opened(browser, f"{made.url}&table=visits"))
        expect(page.locator(".badge")).to_have_text("● newest, followed")
        pool = stack.enter_context(ThreadPoolExecutor(1))
        running = pool.submit(writer.run)
        stack.callback(writer.ends.set)
        seen: set[int] = set()
        for version, rows in moments(page, rows_of):
            assert rows == writer.truth(version), f"version {version}"
            seen.add(version)
            if len(seen) == 2:  # in the past while all goes on
                page.get_by_role("button", name="one version back").press("Enter")
            elif len(seen) == 3:
                page.get_by_role("button", name="Go live").press("Enter")
            elif len(seen) == 4:
                break
        # What is typed stays while newer versions come.
        for tab, label, text in (("Life of a key", "Key", "key01"), ("Compare", "From version", str(min(seen)))):
            page.get_by_role("button", name=tab, exact=True).first.press("Enter")
            typed = page.get_by_role("textbox", name=label, exact=True)
            typed.fill(text)
            shown = page.get_by_role("slider").get_attribute("aria-valuenow") or ""
            expect(page.get_by_role("slider")).not_to_have_attribute("aria-valuenow", shown, timeout=LATER)
            expect(typed).to_have_value(text)
        page.keyboard.press("Enter")
        writer.ends.set()
        running.result()
        assert writer.compacted > 3
        expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", str(store.version), timeout=LATER)
        old, new = writer.truth(min(seen)), writer.now
        added, removed = new.keys() - old.keys(), old.keys() - new.keys()
        changed = [key for key in new.keys() & old.keys() if new[key] != old[key]]
        sums = f"+ {len(added)} addedΔ {len(changed)} changed− {len(removed)} removed"  # noqa: RUF001
        expect(page.locator(".sums")).to_have_text(sums, timeout=LATER)
        page.get_by_role("button", name="State", exact=True).press("Enter")
        step_until(page, store.version, rows_of, writer.truth)
        expect(page.get_by_role("alert")).to_have_count(0)
