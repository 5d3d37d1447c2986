"""A server that ends, a checkpoint that goes away and a billion rows end in a sentence, wherever the page asks."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect
from support.explorer.browsers import opened, violations

import statestore
from statestore.catalog.warehouse import Warehouse
from statestore.connector.explorer import differences, exports, limits, row_files
from statestore.connector.explorer.server import Explorer
from statestore.formats.state_table import Query

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
NAME = "spark4.3.0-agg__rkcl"
BILLION = 1_000_000_000
ENDLESS = "SELECT sum(a.range * b.range + c.range) FROM range(1000000) a, range(1000000) b, range(1000000) c"
LATER = 15_000  # milliseconds
VIEWS = {
    "state": "",
    "life": "tab=life&key=key-00-",
    "compare": "tab=compare&from=1&version=3",
    "growth": "tab=growth",
    "sql": "tab=sql",
    "export": "version=4",
    "copies": "version=2",
}
ALERTS = {
    "state": ".answers [role=alert]",
    "life": ".life [role=alert]",
    "compare": ".compare [role=alert]",
    "growth": "section[aria-label=skew] [role=alert]",
    "sql": ".ask [role=alert]",
    "export": ".leave [role=alert]",
    "copies": ".leave [role=alert]",
}
"""Where a view says what is wrong, apart from what the whole page says."""
SERVER = """
import sys, threading
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.server import explore

watched, hold = Limits.watched, threading.Event()

def held(limits, batches):
    for batch in watched(limits, batches):
        yield batch
        while hold.is_set() and not limits.gone.wait(0.05):
            pass
    limits.check()

Limits.watched = held
made = explore(sys.argv[1])
print(made.url, flush=True)
for line in sys.stdin:
    hold.set()
    print("held", flush=True)
"""
"""A server whose reads do not end after a line on its standard input."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(folder, [each for each in archive if NAME in each.name], filter="data")
    return folder / "checkpoints" / NAME


def shown(page: Page, url: str, view: str) -> None:
    """Open a view and wait until it is whole."""
    page.goto(f"{url}&table=state&{VIEWS[view]}")
    whole = {
        "life": page.get_by_role("region", name="versions of the key"),
        "compare": page.locator(".sums"),
        "growth": page.locator(".growth .chart svg").first,
        "sql": page.locator(".cm-content"),
    }
    expect(whole.get(view, page.locator("table.rows tbody tr:not(.space)").first)).to_be_visible()
    expect(page.get_by_role("slider")).to_be_visible()


def ask(page: Page, view: str, number: int) -> None:
    """Ask something that has not been asked before."""
    if view == "state":
        page.get_by_role("button", name="State", exact=True).focus()
        page.keyboard.press("ArrowLeft")
    elif view == "life":
        page.get_by_role("textbox", name="Key", exact=True).fill(f"key-0{number}*")
        page.get_by_role("button", name="Show its life").click()
    elif view == "compare":
        page.get_by_label("From version").fill(str(number))
        page.get_by_role("button", name="Compare", exact=True).last.click()
    elif view == "growth":
        page.get_by_role("button", name="Count by partition").click()
    elif view == "sql":
        page.get_by_role("textbox", name="SQL statement").focus()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(f"SELECT count(*) AS n{number} FROM state")
        page.keyboard.press("Control+Enter")
    elif view == "export":
        opened_once(page, "Export…").get_by_role("button", name=("Parquet", "Arrow")[number % 2]).click()
    else:
        opened_once(page, "Copy as…")
        page.get_by_role("slider").press("ArrowLeft")


def opened_once(page: Page, text: str) -> Locator:
    details = page.locator("details", has=page.locator("summary", has_text=text))
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    return details


def test_a_server_that_is_killed(browser: Any, checkpoint: Path, tmp_path: Path) -> None:
    """While a question waits for its answer, and before the next one."""
    command = [sys.executable, "-c", SERVER, str(checkpoint)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, **pipes) as server:
        url = server.stdout.readline().strip()  # type: ignore[union-attr]
        with contextlib.ExitStack() as stack:
            # A browser asks a server six questions at a time; each of these pages has its own six.
            pages = {view: stack.enter_context(opened(browser, url, allowed="ERR_")) for view in VIEWS}
            for view, page in pages.items():
                shown(page, url, view)
            print("hold", file=server.stdin, flush=True)
            assert server.stdout.readline().strip() == "held"  # type: ignore[union-attr]
            for view, page in pages.items():
                if view != "copies":  # which read no rows
                    ask(page, view, 2)
                    expect(page.locator(ALERTS[view])).to_have_count(0)
            server.kill()
            for number in (2, 3):
                for view, page in pages.items():
                    if number == 3 or view == "copies":
                        ask(page, view, number)
                    expect(page.locator(ALERTS[view]).first).to_contain_text("does not answer", timeout=LATER)
                    expect(page.get_by_text("Reading…")).to_have_count(0)
                    expect(page.get_by_text("Running…")).to_have_count(0)
            pages["state"].get_by_role("button", name="statestore explorer").click()
            page = pages["state"]
            expect(page.get_by_role("alert")).to_contain_text("does not answer")
            # No overview was read yet, because the page began with a table.
            with page.expect_request("**/api/overview*"):
                page.get_by_role("button", name="Try again").click()
            expect(page.get_by_role("alert")).to_contain_text("does not answer")


def test_a_checkpoint_that_is_deleted(browser: Any, checkpoint: Path, tmp_path: Path, explorer_web: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    made = statestore.explore(copy)
    with contextlib.ExitStack() as stack:
        stack.callback(made.stop)
        pages = {view: stack.enter_context(opened(browser, made.url)) for view in VIEWS}
        for view, page in pages.items():
            shown(page, made.url, view)
        shutil.rmtree(copy)
        for view, page in pages.items():
            ask(page, view, 2)
            expect(page.locator(ALERTS[view]).first).to_contain_text(str(copy))
            expect(page.get_by_text("Reading…")).to_have_count(0)
        assert violations(pages["state"], explorer_web) == []


@dataclass(frozen=True)
class Whole:
    """All rows of a table; their number is unknown until they are read."""

    rows: int | None = None


class Endless:
    """A table that gives its first rows again and again, as a billion rows."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def pin(self) -> Endless:
        return self

    def splits(self, query: Query) -> list[Whole]:
        return [Whole()]

    def count(self, query: Query) -> int | None:
        return None if query.filters else BILLION

    def read(self, split: Whole, query: Query) -> Iterator[pa.RecordBatch]:
        some = next(batch for each in self.real.splits(query) for batch in self.real.read(each, query))
        many = pa.Table.from_batches([some] * max(1, 200 // some.num_rows)).combine_chunks().to_batches()[0]
        return itertools.repeat(many)  # without an end, because a quick machine counts a billion rows in a second


@pytest.fixture
def endless(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    read = Warehouse.open
    monkeypatch.setattr(
        Warehouse, "open", lambda self, name: read(self, name) if "$" in name else Endless(read(self, name))
    )
    monkeypatch.setattr(limits, "SECONDS", 1.0)
    monkeypatch.setattr(exports, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(differences, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(row_files, "MAX_BYTES", 1)  # passed by the first rows, before a second is over on any machine
    made = statestore.explore(checkpoint)
    yield made
    made.stop()


def test_a_billion_rows(browser: Any, endless: Explorer, explorer_web: Path) -> None:
    with opened(browser, endless.url) as page:
        shown(page, endless.url, "state")
        answers = page.locator(".answers")
        expect(answers).to_contain_text("1,000,000,000 rows")
        expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()  # before, a key may be lost
        page.get_by_role("grid").press("End")
        expect(answers.get_by_role("alert")).to_contain_text("the explorer keeps to page and sort; add a filter")
        assert violations(page, explorer_web) == []
        # And from there to the first rows again.
        answers.get_by_role("button", name="Read again").click()
        expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
        # Rows that cannot be had in another order stay in their own, below the reason.
        page.get_by_role("button", name="partition_id", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("add a filter")
        expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
        page.goto(f"{endless.url}&table=state&where=%5B%5B%22partition_id%22%2C%22%3E%3D%22%2C%220%22%5D%5D")
        expect(answers).to_contain_text("The number of rows is unknown: the answer takes more than 1 seconds")
        expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
        opened_once(page, "Export…").get_by_role("button", name="Parquet").click()
        expect(page.locator(".leave [role=alert]")).to_contain_text("the most that the explorer offers as a file")
        page.goto(f"{endless.url}&table=state&{VIEWS['life']}")
        expect(page.locator(".life [role=alert]")).to_contain_text("narrow the question")
        page.goto(f"{endless.url}&table=state&{VIEWS['compare']}")
        expect(page.locator(".compare [role=alert]")).to_contain_text("the most that the explorer compares")
        page.goto(f"{endless.url}&table=state&{VIEWS['growth']}")
        for button in ("Find the busiest keys", "Find the biggest keys", "Count by partition", "Read the ages"):
            page.get_by_role("button", name=button).click()
        expect(page.locator(".growth [role=alert]")).to_have_count(4)
        assert all("narrow the question" in each for each in page.locator(".growth [role=alert]").all_inner_texts())


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (ENDLESS, "the answer takes more than 1 seconds"),
        ("SELECT a.range FROM range(100000) a CROSS JOIN range(100000) b ORDER BY b.range", "takes more than"),
        ("SELECT max(partition_id) FROM state", "the answer takes more than 1 seconds"),
        ("FROM range(1000000000)", "the explorer keeps the first 1,000,000"),
    ],
)
def test_a_billion_rows_in_sql(browser: Any, endless: Explorer, sql: str, said: str) -> None:
    with opened(browser, endless.url) as page:
        shown(page, endless.url, "sql")
        page.get_by_role("textbox", name="SQL statement").focus()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(sql)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".ask")).to_contain_text(said, timeout=LATER)
        expect(page.get_by_role("button", name="Run")).to_be_visible()
