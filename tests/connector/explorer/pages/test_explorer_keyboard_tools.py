"""The page by the keyboard alone: SQL, growth, following, operators, copies and exports, and the order of Tab."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Locator, Page, expect
from support.explorer.browsers import opened, violations
from support.explorer.keyboard import Keyboard, TabOrder, tab_order

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
CHAIN = "spark4.3.0-chain__rkcl"
START = 1_714_550_000_000
ENDLESS = "SELECT sum(a.range * b.range + c.range) FROM range(1000000) a, range(1000000) b, range(1000000) c"
FRAMES = "new Promise(done => { let n = 15; const next = () => n-- ? requestAnimationFrame(next) : done(); next(); })"
"""Completion takes no Enter in the first 75 milliseconds."""
LATER = 15_000  # milliseconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyboard")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Any]:
    """A store that is written while it is shown."""
    with statestore.connect(folder / "own").create_store("visits", key={"user": "string"}, value={"n": "int"}) as made:
        for commit in range(3):
            for at, user in enumerate(("ada", "bob", "eve")):
                made.put(user, 10 * commit + at, timestamp=START + commit)
            made.put("bob", 10 * commit + 5, timestamp=START + 100 + commit)
            made.commit()
        yield made


@pytest.fixture(scope="module")
def explorer(folder: Path, store: Any) -> Iterator[Explorer]:
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(folder, [each for each in archive if CHAIN in each.name], filter="data")
    made = statestore.explore(folder / "own", folder / "checkpoints" / CHAIN)
    yield made
    made.stop()


@pytest.fixture
def page(browser: Any, explorer: Explorer) -> Iterator[Page]:
    with opened(browser, explorer.url) as found:
        yield found


def rows(page: Page) -> Locator:
    return page.locator("table.rows tbody tr:not(.space)")


def summary(page: Page, text: str) -> Locator:
    return page.locator("summary", has_text=text)


def said(page: Page) -> Locator:
    return page.locator(".run [role=status]")


def test_a_statement_is_written_run_drawn_and_cancelled(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "visits")
    keys.open("button", "SQL")
    keys.to("textbox", "SQL statement")
    keys.write("SELECT nope FROM vis")
    expect(page.get_by_role("option").first).to_contain_text("visits")
    page.evaluate(FRAMES)
    keys.press("Enter", "Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("line 1, column 8: ")
    assert violations(page, explorer_web) == []
    # Tab leaves the editor in both directions.
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()
    keys.open("button", "Go to line 1, column 8")
    expect(page.get_by_role("textbox", name="SQL statement")).to_be_focused()
    keys.press("Shift+Control+ArrowRight")
    page.keyboard.insert_text("user, max(n) AS most")
    keys.press("Control+End")
    page.keyboard.type(" GROUP BY ALL")
    keys.press("Escape", "Control+Enter")
    expect(rows(page)).to_have_count(3)
    assert sorted(row.inner_text().split() for row in rows(page).all()) == [["ada", "20"], ["bob", "25"], ["eve", "22"]]
    keys.press("Shift+Tab")
    assert page.evaluate("document.activeElement.className") != "editor"
    keys.is_seen()
    keys.open("button", "most")
    expect(rows(page).first).to_contain_text("20")
    keys.to("button", "Chart", back=True)
    keys.press("Enter")
    expect(page.get_by_role("img", name="bar chart of most by user: 3 points, most from 20 to 25")).to_be_visible()
    keys.to("combobox", "Marks")
    keys.choose("Dots")
    expect(page.locator(".chart [aria-label=dot] circle")).to_have_count(3)
    assert violations(page, explorer_web) == []
    keys.to("button", "Rows", back=True)
    keys.press("Enter")
    expect(rows(page)).to_have_count(3)
    keys.to("textbox", "SQL statement", back=True)
    keys.write(ENDLESS, "Escape", "Control+Enter")
    expect(said(page)).to_have_text("Running…")
    keys.press("Escape")
    expect(said(page)).to_have_text("Cancelled.")
    keys.press("Control+Enter")
    expect(said(page)).to_have_text("Running…")
    keys.open("button", "Cancel")
    expect(said(page)).to_have_text("Cancelled.")
    keys.open("button", "Start over")
    expect(page.locator(".cm-line").first).to_have_text("SELECT *")
    keys.is_seen()


def test_a_place_is_asked(page: Page, keys: Keyboard) -> None:
    keys.open("button", "Ask in SQL", page.locator("section").nth(1))
    keys.to("combobox", "Place")
    keys.press("Home")
    expect(page.locator(".cm-content")).to_contain_text("visits")
    keys.to("textbox", "SQL statement")
    keys.press("Control+Enter")
    expect(rows(page)).to_have_count(3)


def test_growth_is_counted_and_leads_to_a_life(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "visits")
    keys.open("button", "Growth")
    expect(page.locator(".growth .chart svg")).to_have_count(3)  # answers move what comes after them down
    busiest = page.get_by_role("region", name="keys with the most versions")
    for button, answer in (
        ("Find the busiest keys", busiest),
        ("Find the biggest keys", page.get_by_role("region", name="keys with the most bytes")),
        ("Count by partition", page.get_by_text("Rows of this table have no partition")),
        ("Read the ages", page.get_by_role("region", name="age", exact=True).get_by_role("img")),
    ):
        keys.open("button", button)
        expect(answer).to_be_visible()
    expect(busiest.locator("tbody tr").first).to_contain_text("bob")
    keys.to_this(summary(page, "The numbers of ages"), back=True)
    keys.press("Enter")
    expect(page.get_by_role("region", name="numbers of ages")).to_be_visible()
    assert violations(page, explorer_web) == []
    keys.to("slider", "version")
    keys.press("Home")
    keys.open("button", "Read again", page.get_by_role("region", name="age", exact=True))
    expect(page.get_by_role("region", name="age", exact=True)).not_to_contain_text("not of version")
    keys.is_seen()
    keys.to("button", "bob", busiest, back=True)
    keys.press("Enter")
    expect(page.locator(".life [role=status]").first).to_contain_text("6 versions")
    expect(page.get_by_role("button", name="Life of a key")).to_be_focused()


def test_unknown_sizes_are_counted(page: Page, keys: Keyboard) -> None:
    keys.to_this(summary(page, "Operators"))
    keys.press("Enter")
    keys.open("button", "state_1", page.locator(".operators"))
    keys.open("button", "Growth")
    keys.open("button", "Count by reading")
    expect(page.get_by_role("region", name="size over versions")).not_to_contain_text("Unknown from metadata")
    keys.is_seen()


def test_a_store_is_followed(page: Page, keys: Keyboard, store: Any) -> None:
    keys.open("button", "visits")
    badge = page.locator(".badge")
    expect(badge).to_have_text("● newest, followed")
    expect(rows(page).first).to_contain_text("20")
    store.put("ada", 99, timestamp=START + 10_000)
    store.commit()
    expect(rows(page).first).to_contain_text("99", timeout=LATER)
    keys.is_seen()
    keys.open("button", "one version back")
    expect(badge).to_have_text("◷ the past, 1 newer version")
    expect(rows(page).first).to_contain_text("20")
    keys.open("button", "Go live")
    expect(rows(page).first).to_contain_text("99")
    keys.is_seen()  # on a button that does nothing now, and still can be found
    keys.open("button", "Stop following")
    expect(badge).to_have_text("● newest")
    keys.press("Space")
    expect(badge).to_have_text("● newest, followed")
    keys.press("ArrowLeft", "ArrowLeft")
    expect(badge).to_have_text("◷ the past, 2 newer versions")
    keys.press("l")
    expect(badge).to_have_text("● newest, followed")


def test_what_is_shown_leaves_by_the_keyboard(page: Page, keys: Keyboard, tmp_path: Path, explorer_web: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keys.open("button", "visits")
    keys.to("slider", "version")
    keys.press("Home", "ArrowRight")
    for tab, command in (("State", "scan"), ("Life of a key", "history"), ("Compare", "diff")):
        keys.open("button", tab)
        if tab == "Life of a key":
            keys.to("textbox", "Key")
            keys.write("ada", "Enter")
        keys.to_this(summary(page, "Copy as…"), back=tab == "Life of a key")
        if page.locator(".leave details").first.get_attribute("open") is None:
            keys.press("Enter")
        for name in ("Python", "SQL of DuckDB", "Spark"):
            keys.to("button", f"Copy {name}")
        keys.open("button", "Copy Command line")
        expect(page.get_by_text("Copied.")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()").startswith(f"statestore {command} ")
        keys.to("button", "State", back=True)
    keys.open("button", "State")
    keys.to_this(summary(page, "Export…"))
    keys.press("Enter")
    assert violations(page, explorer_web) == []
    with page.expect_download() as waiting:
        keys.open("button", "Parquet")
    waiting.value.save_as(tmp_path / "file")
    assert sorted(pq.read_table(tmp_path / "file")["n"].to_pylist()) == [0, 2, 5]
    expect(page.get_by_text("visits-v1.parquet: 3 rows.")).to_be_visible()
    expect(page.get_by_role("button", name="Parquet")).to_be_focused()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_tab_reaches_all_in_the_order_of_the_page(browser: Any, explorer: Explorer, width: int, scheme: str) -> None:
    with opened(browser, explorer.url, width, scheme) as page:
        expect(page.get_by_role("button", name="visits", exact=True)).to_be_visible()
        assert tab_order(page) == TabOrder([], [])
        for tab in ("state", "life", "compare", "growth", "sql"):
            page.goto(
                f"{explorer.url}&table=visits&tab={tab}&key=bob&where=%5B%5B%22user%22%2C%22%3D%22%2C%22bob%22%5D%5D"
            )
            expect(page.get_by_role("slider")).to_be_visible()
            expect(page.get_by_text("Reading…")).to_have_count(0)
            assert tab_order(page) == TabOrder([], []), tab
