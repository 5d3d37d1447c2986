"""Questions in SQL on the page, in a real browser and by the keyboard: editor, completion, errors, chart, cancel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import violations

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">'
ENDLESS = "SELECT sum(a.range * b.range + c.range) FROM range(1000000) a, range(1000000) b, range(1000000) c"
FRAMES = "new Promise(done => { let n = 15; const next = () => n-- ? requestAnimationFrame(next) : done(); next(); })"
"""Completion takes no Enter in the first 75 milliseconds."""


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("explorer")
    for place, users in (("one", ("ada", HOSTILE, "bob")), ("two", ("eve",))):
        catalog = statestore.connect(folder / place)
        with catalog.create_store("visits", key={"user": "string"}, value={"n": "bigint"}) as store:
            for commit in range(4):
                for at, user in enumerate(users):
                    store.put(user, 10 * commit + at, timestamp=1_714_550_000_000 + 3_600_000 * commit)
                store.commit()
    made = statestore.explore(folder / "one", folder / "two", folder / "none")
    yield made
    made.stop()


def link(page: Page, **view: str) -> None:
    """Open an address of the page, after the first one, which brought the token."""
    expect(page.get_by_role("button", name="visits").first).to_be_visible()
    page.goto(f"{page.url.split('?')[0]}?{urlencode(view)}")


def statement(page: Page) -> Any:
    return page.get_by_role("textbox", name="SQL statement")


def typed(page: Page, text: str) -> None:
    """Replace the statement, as typed."""
    statement(page).focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def cells(page: Page, count: int) -> list[list[str]]:
    """Return the rows, once there are so many."""
    rows = page.locator("table.rows tbody tr:not(.space)")
    expect(rows).to_have_count(count)
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def lines(page: Page) -> list[str]:
    return list(page.locator(".cm-line").all_inner_texts())


def test_a_question_at_the_moment_shown_by_keyboard_alone(page: Page) -> None:
    page.get_by_role("button", name="visits").first.press("Enter")
    page.get_by_role("slider").press("Home")
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="SQL", exact=True).press("Enter")
    expect(statement(page)).to_contain_text("VERSION AS OF 1")
    page.get_by_role("slider").press("ArrowRight")
    expect(statement(page)).to_contain_text("VERSION AS OF 2")
    assert lines(page) == ["SELECT *", "FROM visits VERSION AS OF 2", "LIMIT 1000"]
    statement(page).focus()
    page.keyboard.press("Control+Enter")
    assert [row[1] for row in sorted(cells(page, 3))] == ["11", "10", "12"]
    # Completion: a table, and after it the clause of the moment; then a column of that table.
    page.keyboard.press("Control+a")
    page.keyboard.type("SELECT max(n) AS most FROM vis")
    expect(page.get_by_role("option").first).to_contain_text("visits")
    page.evaluate(FRAMES)
    page.keyboard.press("Enter")
    page.keyboard.type(" ")
    expect(page.get_by_role("option").first).to_contain_text("VERSION AS OF 2")
    page.evaluate(FRAMES)
    page.keyboard.press("Enter")
    page.keyboard.type(" WHERE us")
    expect(page.get_by_role("option").first).to_contain_text("user")
    page.evaluate(FRAMES)
    page.keyboard.press("Enter")
    page.keyboard.type(" < 'b")
    assert lines(page) == ["SELECT max(n) AS most FROM visits VERSION AS OF 2 WHERE user < 'b'"]
    page.keyboard.press("Control+Enter")
    expect(page.locator("table.rows")).to_contain_text("most")
    assert cells(page, 1) == [["11"]]
    # Tab leaves the editor, and Shift+Tab goes back.
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(statement(page)).to_be_focused()
    # The address holds the statement, and a link runs it.
    again = page.context.new_page()
    again.goto(page.url)
    expect(again.locator("table.rows")).to_contain_text("most")
    expect(statement(again)).to_contain_text("VERSION AS OF 2 WHERE")
    again.close()
    page.go_back()
    expect(page.get_by_role("status").first).to_contain_text("3 rows")
    expect(statement(page)).to_contain_text("LIMIT 1000")
    # Another moment changes no statement that was run, until one starts over.
    page.get_by_role("slider").press("ArrowLeft")
    expect(statement(page)).to_contain_text("VERSION AS OF 2")
    page.get_by_role("button", name="Start over").press("Enter")
    expect(statement(page)).to_contain_text("VERSION AS OF 1")
    expect(page.locator("table.rows")).to_have_count(0)


def test_an_error_is_marked_at_its_place(page: Page) -> None:
    link(page, table="visits", tab="sql")
    typed(page, "SELECT user,\n  nope\nFROM visits")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("line 2, column 3: ")
    expect(page.locator(".cm-lintRange-error")).to_have_text("nope")
    page.get_by_role("button", name="Go to line 2, column 3").press("Enter")
    expect(statement(page)).to_be_focused()
    page.keyboard.press("Shift+Control+ArrowRight")
    page.keyboard.insert_text("n")
    assert lines(page) == ["SELECT user,", "  n", "FROM visits"]
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status").first).to_contain_text("3 rows")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    typed(page, "DROP TABLE visits")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not change it")


def test_escape_cancels_what_runs(page: Page) -> None:
    """One statement runs at a time, so the second answer shows that the first one has ended."""
    link(page, tab="sql", sql=ENDLESS)
    expect(page.get_by_role("status").first).to_have_text("Running…")
    statement(page).focus()
    page.keyboard.press("Escape")
    expect(page.get_by_role("status").first).to_have_text("Cancelled.")
    typed(page, "SELECT 42 AS answer")
    page.keyboard.press("Control+Enter")
    expect(page.locator("table.rows")).to_contain_text("42")
    typed(page, ENDLESS)
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status").first).to_have_text("Cancelled.")


def test_places_have_their_own_tables(page: Page) -> None:
    page.get_by_role("button", name="Ask in SQL").nth(1).click()
    expect(page.get_by_label("Place").locator("option")).to_have_count(2)
    statement(page).focus()
    page.keyboard.press("Control+Enter")
    assert cells(page, 1)[0][0] == "eve"
    page.get_by_label("Place").select_option("0")
    assert sorted(row[0] for row in cells(page, 3)) == [HOSTILE, "ada", "bob"]


def test_a_chart_says_in_shapes_and_words_what_it_shows(page: Page) -> None:
    sql = "SELECT valid_from AS t, user, n FROM history('visits') ORDER BY t"
    link(page, tab="sql", sql=sql)
    page.get_by_role("button", name="Chart", exact=True).press("Enter")
    image = page.get_by_role("img", name="line chart of n by t: 12 points, n from 0 to 32")
    expect(image.locator("svg").first).to_be_visible()
    page.get_by_role("combobox", name="Series").select_option("user")
    expect(page.locator(".legend li")).to_have_count(3)
    assert HOSTILE in page.locator(".legend").inner_text()
    strokes = page.locator(".chart [aria-label=line]")
    expect(strokes).to_have_count(3)
    assert len({each.get_attribute("stroke-dasharray") for each in strokes.all()}) == 3
    page.get_by_role("combobox", name="Marks").select_option("dots")
    dots = page.locator(".chart [aria-label=dot] :is(path, circle)")
    expect(dots).to_have_count(12)
    assert len({each.get_attribute("d") for each in dots.all()}) == 3  # circles have none
    page.get_by_role("combobox", name="Marks").select_option("bar")
    expect(page.locator(".chart [aria-label=bar] rect")).to_have_count(12)
    fillings = page.locator(".chart [aria-label=bar] rect")
    assert len({each.get_attribute("fill") for each in fillings.all()}) == 3
    expect(page.get_by_text("rows with the same x are stacked")).to_be_visible()
    page.reload()
    expect(page.locator(".chart [aria-label=bar] rect")).to_have_count(12)
    assert page.title() == "statestore explorer"


def test_a_chart_says_what_it_left_out(page: Page) -> None:
    link(page, tab="sql", sql="SELECT range AS x, if(range = 7, NULL, range % 9) AS y, range % 8 AS s FROM range(6000)")
    page.get_by_role("button", name="Chart", exact=True).click()
    page.get_by_role("combobox", name="y", exact=True).select_option("y")
    page.get_by_role("combobox", name="Series").select_option("s")
    said = page.get_by_text("The same values are under Rows")
    expect(said).to_contain_text("the first 5,000 of 6,000 rows are drawn")
    expect(said).to_contain_text("1 rows without a finite x or y are left out")
    expect(said).to_contain_text("the first 6 of 8 series are drawn")


def test_nothing_is_wrong_for_those_who_hear_the_page(page: Page, explorer_web: Path) -> None:
    link(page, table="visits", tab="sql", sql="SELECT user, n FROM visits")
    expect(page.get_by_role("status").first).to_contain_text("3 rows")
    assert violations(page, explorer_web) == []
    statement(page).focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" ")
    expect(page.get_by_role("option").first).to_contain_text("VERSION AS OF")
    assert violations(page, explorer_web) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Chart", exact=True).click()
    expect(page.locator(".chart svg").first).to_be_visible()
    assert violations(page, explorer_web) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    typed(page, "SELECT nope FROM visits")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page, explorer_web) == []
