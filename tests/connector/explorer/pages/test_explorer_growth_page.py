"""The tab Growth in a real browser: by keyboard, at three sizes, with unknown numbers and hostile keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.explorer.browsers import opened, violations

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("growth")
    with statestore.connect(folder).create_store("visits", key={"user": "string"}, value={"n": "bigint"}) as store:
        for commit in range(6):
            for number in range(300):
                if commit % (number % 3 + 1) == 0:
                    store.put(f"user{number:04d}", commit, timestamp=1_714_550_000_000 + commit)
            for again in range(3):
                store.put(HOSTILE, 10 * commit + again, timestamp=1_714_550_100_000 + 10 * commit + again)
            if commit:
                store.delete(f"user{commit:04d}", timestamp=1_714_550_200_000 + commit)
            store.commit()
    made = statestore.explore(folder, checkpoint_path("spark4.3.0-win__rkcl"))
    yield made
    made.stop()


def pressed(page: Page, name: str) -> None:
    """Press a button by the keyboard."""
    page.get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")


def is_as_wide_as_the_window(page: Page) -> bool:
    return bool(page.locator("html").evaluate("each => each.scrollWidth <= window.innerWidth"))


def test_why_a_store_grows(page: Page, explorer_web: Path) -> None:
    pressed(page, "visits")
    pressed(page, "Growth")
    sizes = page.get_by_role("region", name="size over versions")
    expect(sizes.locator("svg").first).to_be_visible()
    expect(sizes).not_to_contain_text("Unknown")
    expect(sizes.get_by_role("img")).to_have_count(3)
    page.get_by_text("The numbers of sizes over versions").focus()
    page.keyboard.press("Enter")
    numbers = page.get_by_role("region", name="numbers of sizes over versions")
    expect(numbers.locator("tbody tr").nth(1)).to_contain_text("303")  # 300 users, and the hostile one 3 times
    # The line of the charts follows the scrubber.
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(sizes).to_contain_text("The line marks version 0")
    page.get_by_role("slider").focus()
    page.keyboard.press("End")
    for button in ("Find the busiest keys", "Find the biggest keys", "Count by partition", "Read the ages"):
        pressed(page, button)
    busiest = page.get_by_role("region", name="keys with the most versions")
    expect(busiest.locator("tbody tr").first).to_contain_text(HOSTILE)
    expect(busiest.locator("tbody tr").first).to_contain_text("18")
    biggest = page.get_by_role("region", name="keys with the most bytes")
    expect(biggest.locator("tbody tr").first).to_contain_text(f"{len(HOSTILE) + 8} B")
    expect(page.get_by_role("region", name="skew", exact=True)).to_contain_text("no partition or key group")
    ages = page.get_by_role("region", name="age", exact=True)
    expect(ages.get_by_role("img")).to_be_visible()
    expect(ages).to_contain_text("counted from the watermark or newest state time")
    assert violations(page, explorer_web) == []
    assert is_as_wide_as_the_window(page)
    # The life of the key, opened by Enter; the way back is the way of the browser.
    busiest.get_by_role("button", name=HOSTILE).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("18 versions in 6 commits")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("region", name="size over versions")).to_be_visible()
    assert "tab=growth" in page.url and page.title().startswith("visits")


def test_unknown_numbers_of_a_checkpoint(page: Page, explorer_web: Path) -> None:
    """Numbers that are unknown from metadata are named, blank in the table, and counted when somebody asks."""
    pressed(page, "state")
    pressed(page, "Growth")
    sizes = page.get_by_role("region", name="size over versions")
    expect(sizes).to_contain_text("written of 7 of 7 versions")
    expect(sizes).to_contain_text("They are blank, not 0.")
    page.get_by_text("The numbers of sizes over versions").click()
    row = page.get_by_role("region", name="numbers of sizes over versions").locator("tbody tr").first
    expect(row.get_by_text("unknown")).to_have_count(3)
    assert violations(page, explorer_web) == []
    pressed(page, "Count by reading")
    expect(sizes).not_to_contain_text("Unknown from metadata")
    page.get_by_text("The numbers of sizes over versions").click()
    expect(row.locator("td").nth(2)).to_have_text("39")
    expect(row.get_by_text("unknown")).to_have_count(0)
    pressed(page, "Count by partition")
    expect(page.get_by_role("region", name="skew", exact=True)).to_contain_text("2 values of partition_id have rows")
    pressed(page, "Read the ages")
    expect(page.get_by_role("region", name="rows past their end")).to_contain_text("key.window.end")
    assert violations(page, explorer_web) == []
    assert is_as_wide_as_the_window(page)


def test_what_was_read_of_another_version_says_so(browser: Any, explorer: Explorer) -> None:
    with opened(browser, explorer.url) as page:
        page.get_by_role("button", name="visits").click()
        page.get_by_role("button", name="Growth").click()
        pressed(page, "Find the biggest keys")
        biggest = page.get_by_role("region", name="keys with the most bytes")
        expect(biggest.locator("tbody tr")).to_have_count(15)
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        expect(page.get_by_text("not of version 0")).to_be_visible()
        pressed(page, "Read again")
        expect(page.get_by_role("region", name="busiest and biggest keys")).to_contain_text("There are no keys.")
        expect(page.get_by_text("not of version 0")).to_have_count(0)


def test_a_key_with_a_great_number_is_opened(browser: Any, tmp_path: Path) -> None:
    """JavaScript's numbers do not hold it."""
    key = {"k": "struct<id:bigint,part:int>"}
    with statestore.connect(tmp_path).create_store("great", key=key, value={"n": "int"}) as store:
        for number in range(3):
            store.put({"id": (1 << 53) + number, "part": 1}, number, timestamp=1_714_550_000_000)
        store.commit()
    explorer = statestore.explore(tmp_path)
    try:
        with opened(browser, explorer.url) as page:
            page.get_by_role("button", name="great").click()
            page.get_by_role("button", name="Growth").click()
            pressed(page, "Find the busiest keys")
            page.get_by_role("button", name=str((1 << 53) + 1)).click()
            life = page.get_by_role("region", name="versions of the key")
            expect(life.locator("tbody tr").first).to_contain_text(str((1 << 53) + 1))
    finally:
        explorer.stop()


def test_a_read_can_be_stopped(browser: Any, explorer: Explorer) -> None:
    with opened(browser, explorer.url) as page:
        page.get_by_role("button", name="visits").click()
        page.get_by_role("button", name="Growth").click()
        page.route("**/api/growth/busiest*", lambda route: None)  # an answer that never comes
        pressed(page, "Find the busiest keys")
        pressed(page, "Stop")
        expect(page.get_by_role("button", name="Find the busiest keys")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        page.unroute("**/api/growth/busiest*")
        pressed(page, "Find the busiest keys")
        expect(page.get_by_role("region", name="keys with the most versions")).to_be_visible()
