"""The life of a key and the comparison in a real browser: lanes, beliefs, timers, the other side of a join, filters."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import SIZES, opened, violations
from support.flink.fixtures import SQL_KEYS, fixture

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
NAMES = ("spark4.3.0-join__rkcl", "spark4.3.0-twsttl__rkcl")
START = 1_714_550_000_000


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("life")
    key: dict[str, Any] = {"item": "string", "shop": "int"}
    with statestore.connect(folder / "own").create_store("prices", key=key, value={"price": "double"}) as store:
        for number, second in enumerate((0, 100, 50, 200)):
            store.put(("curry", 1), float(number), timestamp=START + second * 1000)
            store.put(("curry", 2), 5.0 if number < 2 else 6.0, timestamp=START + number * 1000)
            store.commit()
        # What is known now tells nothing of the first three of these: a row that was replaced, deletes, and nothing.
        store.put(("naan", 1), 1.0, timestamp=START)
        store.put(("rice", 1), 1.0, timestamp=START)
        store.commit()
        store.put(("naan", 1), 2.0, timestamp=START)
        store.delete(("rice", 1), timestamp=START)
        store.commit()
        store.delete(("naan", 1), timestamp=START + 1000)
        store.commit()
    with tarfile.open(CHECKPOINTS) as archive:
        kept = [each for each in archive if any(name in each.name for name in NAMES)]
        archive.extractall(folder, kept, filter="data")
    made = statestore.explore(folder / "own", *(folder / "checkpoints" / name for name in NAMES))
    yield made
    made.stop()


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}-{size[1]}")
def page(request: pytest.FixtureRequest, browser: Any, explorer: Explorer) -> Iterator[Page]:
    with opened(browser, explorer.url, *request.param) as found:
        found.locator("button.link").first.wait_for()
        yield found


def show(page: Page, explorer: Explorer, view: str) -> None:
    page.goto(f"{explorer.url}&{view}")


def test_a_piece_of_what_was_believed_leads_to_that_state(page: Page, explorer: Explorer, explorer_web: Path) -> None:
    show(page, explorer, "table=prices&tab=life&key=curry")
    expect(page.locator(".lane-names span")).to_have_text(["curry, 1", "curry, 2"])
    # By the keyboard alone: open what was believed, go to version 2, and there to its second piece.
    page.locator(".believed summary").focus()
    page.keyboard.press("Enter")
    plane = page.get_by_role("application")
    expect(page.locator("#piece")).to_contain_text("As of version 4, curry, 1")
    plane.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    expect(page.locator("#piece")).to_contain_text("As of version 2, curry, 1: 2024-05-01 07:55:00 UTC to now")
    expect(page.locator("#piece strong")).to_have_text("price 1.0")
    assert violations(page, explorer_web) == []
    page.keyboard.press("Enter")
    row = page.locator("table.rows tbody tr:not(.space)")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("1.0")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", "2")
    page.go_back()
    expect(page.locator(".lane-names span").first).to_have_text("curry, 1")


def test_versions_that_left_nothing_have_lines_too(page: Page, explorer: Explorer, explorer_web: Path) -> None:
    show(page, explorer, "table=prices&tab=life&key=naan,1")
    page.get_by_text("What was believed when", exact=True).click()
    expect(page.locator(".believed")).to_contain_text("all 3 versions that wrote it or deleted it")
    expect(page.locator(".believed .lane-names span")).to_have_text(["7", "6", "5"])
    expect(page.locator("#piece")).to_contain_text("As of version 7, naan, 1: 2024-05-01 07:53:20 UTC to 2024")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#piece strong")).to_have_text("price 1.0")
    # A key of which nothing is known now.
    show(page, explorer, "table=prices&tab=life&key=rice,1")
    expect(page.get_by_text("This key has no version in what is known now.")).to_be_visible()
    page.get_by_text("What was believed when", exact=True).click()
    expect(page.locator("#piece")).to_have_text("As of version 6, it had no value at any time that is kept.")
    expect(page.locator("line.none")).to_have_count(1)
    assert violations(page, explorer_web) == []
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#piece strong")).to_have_text("price 1.0")
    page.keyboard.press("Enter")
    expect(page.locator("table.rows tbody tr:not(.space)")).to_contain_text("rice")
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", "5")


def test_great_numbers_keep_their_digits(browser: Any, tmp_path: Path) -> None:
    value = {"n": "bigint", "pair": "struct<a:bigint,b:string>"}
    with statestore.connect(tmp_path / "own").create_store("s", key={"k": "bigint"}, value=value) as store:
        for number in (9_007_199_254_740_993, -9_007_199_254_740_995):
            store.put(9_007_199_254_740_993, (number, {"a": number, "b": "7.50, \\"}), timestamp=START)
            store.commit()
    made = statestore.explore(tmp_path / "own")
    with opened(browser, made.url) as page:
        page.locator("button.link").wait_for()
        show(page, made, "table=s&tab=compare&from=1")
        cells = page.get_by_role("grid", name="rows that differ").get_by_role("gridcell")
        expect(cells.nth(2)).to_contain_text("9007199254740993 → -9007199254740995")
        expect(cells.nth(3)).to_contain_text('→ {"a": -9007199254740995, "b": "7.50, \\\\"}')
        show(page, made, "table=s")
        page.locator("table.rows tbody tr:not(.space)").dblclick()
        expect(page.locator(".life tbody tr").first).to_contain_text("-9007199254740995")
    made.stop()


STRANGE: dict[str, tuple[str, list[Any]]] = {
    "texts": ("string", ["", "\x1b[1m\x7f", "\u202e'a\"", "a\nb"]),
    "structs": ("struct<t:string,u:string,n:int>", [{"t": None, "u": '\x7f"', "n": 1}]),
    "raw": ("binary", [b"\x00\xff"]),
}
ZEROS = "place=1&table=GroupAggregate[5].accState"  # by doubles, each with its number in two savepoints


def test_strange_keys_are_opened_and_typed_as_they_are_shown(browser: Any, tmp_path: Path) -> None:
    for name, (kind, keys) in STRANGE.items():
        with statestore.connect(tmp_path / "own").create_store(name, key={"k": kind}, value={"v": "int"}) as store:
            for number, key in enumerate(keys):
                store.put(key, 1000 + number, timestamp=START)
            store.commit()
    made = statestore.explore(tmp_path / "own", fixture(SQL_KEYS))
    with opened(browser, made.url) as page:
        rows = page.locator("table.rows tbody tr:not(.space)")
        lines = page.get_by_role("region", name="versions of the key").locator("tbody tr")

        def type_key(text: str) -> None:
            page.get_by_role("textbox", name="Key", exact=True).fill(text)
            page.keyboard.press("Enter")
            expect(page).to_have_url(re.compile("key="))

        for name, (_, keys) in STRANGE.items():
            show(page, made, f"table={name}")
            expect(rows).to_have_count(len(keys))
            cells = [row.get_by_role("gridcell").all_text_contents()[:2] for row in rows.all()]
            for number, (_, value) in reversed(list(enumerate(cells))):
                rows.nth(number).dblclick()
                expect(lines).to_have_count(1)
                expect(lines).to_contain_text(value)
                if number:
                    page.go_back()
            type_key(cells[-1][0])
            expect(lines).to_contain_text(cells[-1][1])
        for text, versions in (('{"f0": -0.0}', 2), ('{"f0": "NaN"}', 4)):  # NaNs of two bits are shown together
            show(page, made, ZEROS)
            page.get_by_role("gridcell", name=text, exact=True).first.dblclick()
            expect(lines).to_have_count(versions)
            type_key(text)
            expect(lines).to_have_count(versions)
    made.stop()


def test_both_sides_of_a_join_and_its_commits(page: Page, explorer: Explorer, explorer_web: Path) -> None:
    show(page, explorer, "place=1&table=left&tab=life&key=key-00-*")
    expect(page.locator(".lane-names span")).to_have_text(['left: {"field0": "key-00-", "field1": 0}', "right"])
    commits = page.get_by_role("region", name="commits")
    expect(commits).to_contain_text('{"logOffset":3}')
    expect(commits).to_contain_text("watermark")
    assert violations(page, explorer_web) == []


def test_pending_timers_have_their_times(page: Page, explorer: Explorer) -> None:
    show(page, explorer, "place=2&table=val&tab=life&key=%5Bnull%2C12%5D")
    expect(page.locator(".lane-names span")).to_have_count(7)
    expect(page.locator(".pending li")).to_have_count(4)
    expect(page.locator(".pending li").first).to_contain_text("timers: pending, due 2026-11-20 16:38:50.118 UTC")


def test_a_comparison_is_restricted_and_counted(page: Page, explorer: Explorer, explorer_web: Path) -> None:
    show(page, explorer, "table=prices&tab=compare&from=1")
    expect(page.locator(".sums")).to_have_text("+ 0 addedΔ 2 changed\u2212 0 removed")
    page.get_by_role("button", name="Add a filter").click()
    page.get_by_label("column").select_option("shop")
    page.get_by_label("value").fill("2")
    page.get_by_label("value").press("Enter")
    expect(page.locator(".sums")).to_have_text("+ 0 addedΔ 1 changed\u2212 0 removed")
    page.get_by_label("at state time").fill("2024-05-01T07:53:25Z")
    page.get_by_role("button", name="Compare", exact=True).last.click()
    expect(page.locator(".sums")).to_contain_text("1 changed")
    assert "from_as_of=2024-05-01" in page.url
    show(page, explorer, "place=1&table=left&tab=compare&from=2")
    page.get_by_text("By partition_id").click()
    expect(page.get_by_role("region", name="differences by partition_id").locator("tbody tr")).to_have_count(2)
    assert violations(page, explorer_web) == []
