"""The page by the keyboard alone: overview, scrubber, filters, rows, the life of a key, two moments, and back."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect
from support.explorer.browsers import opened, violations
from support.explorer.keyboard import Keyboard

import statestore
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
JOIN = "spark4.3.0-join__rkcl"
START = 1_714_550_000_000
USERS = 1_200


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("keyboard")
    catalog = statestore.connect(folder / "own")
    with catalog.create_store("visits", key={"user": "string"}, value={"n": "bigint"}) as store:
        users = [f"user{number:04d}" for number in range(USERS)]
        for commit in range(5):
            moment = pa.array([START + commit] * USERS, pa.timestamp("ms", "UTC"))
            numbers = [10_000 * commit + number for number in range(USERS)]
            store.put_all(pa.table({"user": users, "n": numbers, "timestamp": moment}))
            store.commit()
    key: dict[str, Any] = {"item": "string", "shop": "int"}
    with catalog.create_store("prices", key=key, value={"price": "double"}) as store:
        for number, second in enumerate((0, 100, 50, 200)):
            store.put(("curry", 1), float(number), timestamp=START + second * 1000)
            store.put(("curry", 2), 5.0 if number < 2 else 6.0, timestamp=START + number * 1000)
            store.commit()
        for number in range(250):
            store.put(("naan", 1), float(number), timestamp=START + number)
        store.commit()
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(folder, [each for each in archive if JOIN in each.name], filter="data")
    made = statestore.explore(folder / "own", folder / "checkpoints" / JOIN)
    yield made
    made.stop()


@pytest.fixture
def page(browser: Any, explorer: Explorer) -> Iterator[Page]:
    with opened(browser, explorer.url) as found:
        yield found


def slider(page: Page) -> Locator:
    return page.get_by_role("slider")


def rows(page: Page) -> Locator:
    return page.locator("table.rows tbody tr:not(.space)")


def counted(page: Page) -> Locator:
    return page.locator(".answers [role=status]")


def test_a_table_is_found_and_opened_and_left(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    expect(page.get_by_role("button", name="visits", exact=True)).to_be_visible()
    keys.to("searchbox", "Find by name")
    keys.write("RIC")
    expect(page.get_by_role("button", name="visits", exact=True)).to_have_count(0)
    assert violations(page, explorer_web) == []
    keys.open("button", "prices")
    # What was pressed is gone; the heading of the table has the focus, and the way goes on from there.
    expect(page.get_by_role("heading", name="prices")).to_be_focused()
    expect(slider(page)).to_be_visible()
    page.keyboard.press("Tab")
    expect(slider(page)).to_be_focused()
    keys.to("button", "statestore explorer", back=True)
    keys.press("Enter")
    expect(page.get_by_role("button", name="visits", exact=True)).to_be_visible()
    keys.is_seen()


def test_time_is_scrubbed(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "visits")
    keys.to("slider", "version")
    for key, version in (("Home", "0"), ("ArrowRight", "1"), ("ArrowUp", "2"), ("PageUp", "3"), ("PageDown", "2")):
        keys.press(key)
        expect(slider(page)).to_have_attribute("aria-valuenow", version)
    expect(rows(page).first).to_contain_text("10000")
    keys.open("button", "one version on")
    keys.open("button", "one version on", key="Space")
    expect(rows(page).first).to_contain_text("30000")
    keys.to("button", "one version back", back=True)
    keys.press("Enter")
    expect(rows(page).first).to_contain_text("20000")
    keys.open("button", "Play")
    expect(page.locator(".badge")).to_have_text("● newest, followed")
    expect(rows(page).first).to_contain_text("40000")
    for name, version in (("oldest version", "0"), ("newest version", "6")):
        keys.open("button", name)
        expect(slider(page)).to_have_attribute("aria-valuenow", version)
    keys.to("textbox", "Go to")
    keys.write("nonsense", "Enter")
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    keys.write("2@2024-05-01T07:53:20.001Z", "Enter")
    expect(slider(page)).to_have_attribute("aria-valuenow", "2")
    expect(page.get_by_role("alert")).to_have_count(0)
    keys.to("textbox", "State time")
    expect(rows(page).first).to_contain_text("10000")
    keys.write("2024-05-01T07:53:20Z", "Enter")
    expect(rows(page).nth(1)).to_contain_text("user0001")
    expect(rows(page).nth(1).locator("td").nth(1)).to_have_text("Δ1")
    assert violations(page, explorer_web) == []
    keys.write("", "Enter")
    expect(rows(page).first).to_contain_text("10000")


def test_rows_are_found_sorted_and_paged(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "visits")
    keys.open("button", "Add a filter")
    expect(page.get_by_role("combobox", name="column")).to_be_focused()
    keys.to("combobox", "operator")
    keys.choose("starts with")
    keys.to("textbox", "value")
    keys.write("user00", "Enter")
    expect(counted(page)).to_contain_text("100 rows")
    keys.to("combobox", "operator", back=True)
    keys.choose("=")
    keys.to("textbox", "value")
    keys.write("user0007", "Enter")
    expect(counted(page)).to_contain_text("1 row ")
    expect(page.get_by_text("A look-up by key.")).to_be_visible()
    keys.open("button", "Add a filter")
    keys.choose("n")
    keys.to("textbox", "value", page.get_by_role("group", name="condition 2"))
    keys.write("0")
    keys.open("button", "Apply")
    expect(counted(page)).to_contain_text("0 rows")
    assert violations(page, explorer_web) == []
    for number in (2, 1):
        keys.to("button", f"remove condition {number}", back=number == 1)
        keys.press("Enter")
        expect(page.get_by_role("button", name=f"remove condition {number}")).to_have_count(0)
    expect(page.get_by_role("button", name="Add a filter")).to_be_focused()
    expect(counted(page)).to_contain_text("1,200 rows")
    # A heading sorts, and does not open the row that is chosen.
    keys.open("button", "n")
    expect(page.get_by_role("columnheader", name="n", exact=False).last).to_have_attribute("aria-sort", "ascending")
    keys.press("Enter")
    expect(page.get_by_role("button", name="n ↓")).to_be_focused()
    expect(rows(page).first).to_contain_text("41199")
    keys.to("grid", "rows of the state", back=True)
    keys.press("End")
    expect(page.locator("tr.active")).to_contain_text("user0000")
    keys.press("PageUp", "Home", "ArrowDown")
    expect(page.locator("tr.active")).to_contain_text("user1198")
    assert violations(page, explorer_web) == []
    keys.press("Enter")
    expect(page.locator(".life [role=status]").first).to_contain_text("5 versions in 5 commits")
    expect(page.get_by_role("button", name="Life of a key")).to_be_focused()
    page.go_back()  # one step, because Enter did not press what got the focus
    expect(rows(page).first).to_contain_text("41199")


def test_a_scan_is_cancelled_and_read_again(page: Page, keys: Keyboard, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    watched = Limits.watched

    def held(limits: Limits, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in watched(limits, batches):
            yield batch
            while not goes_on.wait(0.05):
                limits.check()

    keys.open("button", "visits")
    expect(counted(page)).to_contain_text("1,200 rows")
    monkeypatch.setattr(Limits, "watched", held)
    try:
        keys.open("button", "Add a filter")
        keys.choose("n")
        keys.to("textbox", "value")
        keys.write("40640", "Enter")
        keys.open("button", "Cancel")
        expect(counted(page)).to_have_text("Cancelled.")
        expect(page.get_by_role("button", name="Read again")).to_be_focused()
    finally:
        goes_on.set()
    keys.press("Enter")
    expect(counted(page)).to_contain_text("1 row ")
    keys.is_seen()


def test_the_life_of_a_key(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "prices")
    keys.open("button", "Life of a key")
    keys.to("textbox", "Key")
    keys.write("curry", "Enter")
    expect(page.locator(".lane-names span")).to_have_text(["curry, 1", "curry, 2"])
    keys.to_this(page.locator("summary", has_text="What was believed when"))
    keys.press("Enter")
    keys.to("combobox", "Key")
    keys.choose("curry, 2")
    expect(page.locator("#piece")).to_contain_text("curry, 2")
    keys.choose("curry, 1")
    piece = page.locator("#piece")
    expect(piece).to_contain_text("As of version 4, curry, 1")
    keys.to_this(page.get_by_role("application"))
    keys.press("ArrowDown", "ArrowDown", "End")
    expect(piece).to_contain_text("As of version 2, curry, 1: 2024-05-01 07:55:00 UTC to now: price 1.0")
    assert violations(page, explorer_web) == []
    keys.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("1.0")
    expect(slider(page)).to_have_attribute("aria-valuenow", "2")
    keys.is_seen()
    # A commit of a version, from the list; and a key with more versions than are shown at first.
    keys.open("button", "Life of a key")
    keys.to("textbox", "Key")
    keys.write("curry", "Enter")
    keys.open("button", "1", page.get_by_role("row", name="curry 2"))
    expect(slider(page)).to_have_attribute("aria-valuenow", "1")
    keys.is_seen()
    keys.open("button", "Life of a key")
    keys.to("textbox", "Key")
    keys.write("naan*", "Enter")
    expect(page.locator(".life [role=status]").first).to_contain_text("250 versions; the newest 100 are shown")
    keys.open("button", "Show up to 2,000")
    expect(page.locator(".life [role=status]").first).to_contain_text("250 versions in 1 commit")
    keys.is_seen()


def test_two_moments_are_compared(page: Page, keys: Keyboard, explorer_web: Path) -> None:
    keys.open("button", "prices")
    keys.open("button", "Compare")
    keys.to("textbox", "From version")
    keys.write("1", "Enter")
    sums = page.locator(".sums")
    expect(sums).to_have_text("+ 1 addedΔ 2 changed− 0 removed")  # noqa: RUF001
    keys.open("button", "Add a filter")
    keys.choose("item")
    keys.to("textbox", "value")
    keys.write("curry", "Enter")
    expect(sums).to_have_text("+ 0 addedΔ 2 changed− 0 removed")  # noqa: RUF001
    keys.to("textbox", "at state time", back=True)
    keys.write("2024-05-01T07:53:19Z", "Enter")  # before the first row
    expect(sums).to_have_text("+ 2 addedΔ 0 changed− 0 removed")  # noqa: RUF001
    assert violations(page, explorer_web) == []
    keys.to("button", "remove condition 1")
    keys.press("Enter")
    expect(sums).to_have_text("+ 3 addedΔ 0 changed− 0 removed")  # noqa: RUF001
    keys.is_seen()


def test_partitions_of_a_comparison(page: Page, keys: Keyboard) -> None:
    keys.open("button", "left")
    keys.open("button", "Compare")
    keys.to("textbox", "From version")
    keys.write("2", "Enter")
    keys.to_this(page.locator("summary", has_text="By partition_id"))
    keys.press("Enter")
    expect(page.get_by_role("region", name="differences by partition_id").locator("tbody tr")).to_have_count(2)


def test_a_wide_table_is_scrolled_and_not_the_time(browser: Any, explorer: Explorer) -> None:
    with opened(browser, f"{explorer.url}&table=prices&tab=life&key=curry", 360) as page:
        expect(page.get_by_role("region", name="versions of the key")).to_be_visible()
        Keyboard(page).to("region", "versions of the key")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.activeElement.scrollLeft > 0")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => document.activeElement.scrollLeft === 0")
        expect(page.locator(".badge")).to_have_text("● newest, followed")


def test_back_and_forward(page: Page, keys: Keyboard) -> None:
    """A page that is left and shown again has the focus somewhere. The browser's keys for it are not the page's."""
    keys.open("button", "visits")
    keys.open("button", "Compare")
    expect(page.get_by_label("From version")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("grid")).to_be_visible()
    keys.is_seen()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("to look into")
    keys.is_seen()
    page.go_forward()
    page.go_forward()
    expect(page.get_by_label("From version")).to_be_visible()
    keys.is_seen()
