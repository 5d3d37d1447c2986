"""The page in a real browser, by mouse and by keyboard, with hostile names and values in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import violations

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("explorer")
    with statestore.connect(folder).create_store("visits", key={"user": "string"}, value={"n": "bigint"}) as store:
        for commit in range(5):
            for user in ("ada", HOSTILE, *(f"user{number:04d}" for number in range(1_200))):
                store.put(user, commit if user != "user0001" else 0, timestamp=1_714_550_000_000 + commit)
            store.commit()
    made = statestore.explore(folder, folder / "none")
    yield made
    made.stop()


def in_sight(page: Page) -> list[str]:
    return page.locator("table.rows tbody tr:not(.space)").first.locator("td").all_inner_texts()


def test_scrub_sort_find_compare_and_share(page: Page) -> None:
    expect(page.get_by_role("alert")).to_contain_text("PATH_NOT_FOUND")
    assert "token" not in page.url
    page.get_by_role("button", name="visits").click()
    expect(page.get_by_role("status")).to_contain_text("1,202 rows")
    # By the keyboard alone: back in time, and each step shows the state of that version.
    slider = page.get_by_role("slider")
    slider.focus()
    for _ in range(3):  # the newest version is a compaction
        page.keyboard.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuenow", "3")
    page.get_by_role("button", name="n", exact=True).click()
    page.get_by_role("button", name="n ↑").click()
    expect(page.locator("table.rows tbody tr:not(.space)").first).to_contain_text("2")
    page.get_by_label("Go to").fill("nonsense")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    page.get_by_label("Go to").fill("2@2024-05-01T08:00Z")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(slider).to_have_attribute("aria-valuenow", "2")
    assert "as_of=2024-05-01T08" in page.url
    page.get_by_label("State time").fill("")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_label("Go to").fill("3")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(slider).to_have_attribute("aria-valuenow", "3")
    # A filter, as text of the page's own.
    page.get_by_role("button", name="Add a filter").click()
    page.get_by_label("value").fill(HOSTILE)
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status")).to_contain_text("1 row")
    assert in_sight(page)[0].strip() == HOSTILE
    # The life of the key, opened by Enter.
    page.locator("div.grid").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("5 versions in 5 commits")
    expect(page.locator(".life table.facts").first.locator("tbody tr")).to_have_count(5)
    # The address holds all of it.
    again = page.context.new_page()
    again.goto(page.url)
    expect(again.get_by_role("status")).to_contain_text("5 versions in 5 commits")
    again.close()
    page.get_by_role("button", name="Compare", exact=True).first.click()
    # The filter of the state restricts the comparison, too.
    expect(page.get_by_role("status")).to_contain_text("1 changed")
    page.get_by_role("button", name="remove condition 1").click()
    expect(page.get_by_role("status")).to_contain_text("1,201 changed")
    differing = page.get_by_role("grid", name="rows that differ")
    expect(differing).to_have_attribute("aria-rowcount", "1202")
    expect(differing.locator("td.changed").first).to_contain_text("→")
    differing.focus()
    page.keyboard.press("End")
    expect(page.locator("tr.active")).to_contain_text("Δ changed")
    assert differing.locator("tbody tr").count() < 120
    assert page.title().startswith("visits")


def test_deep_rows_are_fetched_when_they_come_into_sight(page: Page) -> None:
    page.get_by_role("button", name="visits").click()
    expect(page.get_by_role("status")).to_contain_text("1,202 rows")
    expect(page.get_by_role("columnheader", name="user")).to_have_attribute("aria-sort", "ascending")
    page.locator("div.grid").focus()
    page.keyboard.press("End")
    expect(page.locator("tr.active")).to_contain_text("user1199")
    assert page.locator("table.rows tbody tr").count() < 120


def test_nothing_is_wrong_for_those_who_hear_the_page(page: Page, explorer_web: Path) -> None:
    page.get_by_role("button", name="visits").click()
    expect(page.get_by_role("status")).to_contain_text("1,202 rows")
    for name in ("State", "Life of a key", "Compare"):
        page.get_by_role("button", name=name, exact=True).first.click()
        page.wait_for_load_state("networkidle")
        assert violations(page, explorer_web) == []


def test_a_server_that_ended_is_a_sentence(browser: Any, tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        store.put("a", 1, timestamp=1)
        store.commit()
    made = statestore.explore(tmp_path)
    page = browser.new_page()
    page.goto(made.url)
    page.get_by_role("button", name="s", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("1 row")
    made.stop()
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.close()
