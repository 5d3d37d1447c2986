"""A page that follows what is written, goes back and live again, and says what went wrong, in a real browser."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import SIZES, opened, violations

import statestore

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[3] / "data"
NAME = "spark4.3.0-chain__rkcl"
LATER = 15_000  # milliseconds


# The nodes at both ends of each line that is drawn.
EDGES = """() => {
  const graph = document.querySelector('.graph');
  const whole = graph.getBoundingClientRect();
  const nodes = [...graph.querySelectorAll('[data-node]')];
  const at = ({x, y}) => nodes.find((each) => {
    const box = each.getBoundingClientRect();
    const [left, top] = [x + whole.left, y + whole.top];
    return left >= box.left - 2 && left <= box.right + 2 && top >= box.top - 2 && top <= box.bottom + 2;
  })?.dataset.node;
  return [...graph.querySelectorAll('path.edge')].map(
    (path) => [at(path.getPointAtLength(0)), at(path.getPointAtLength(path.getTotalLength()))]);
}"""


def edges_of(page: Page) -> set[tuple[str, str]]:
    return {(start, end) for start, end in page.evaluate(EDGES)}


def badge(page: Page) -> Any:
    return page.locator(".badge")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_new_versions_appear_and_the_past_stays(
    browser: Any, tmp_path: Path, explorer_web: Path, width: int, scheme: str
) -> None:
    catalog = statestore.connect(tmp_path / "own")
    store = catalog.create_store("prices", key={"item": "string"}, value={"price": "double"})

    def write(price: float) -> None:
        store.put("a", price, timestamp=1_714_550_000_000 + int(price))
        store.commit()

    write(1.0)
    made = statestore.explore(tmp_path / "own")
    with opened(browser, made.url, width, scheme) as page:
        page.get_by_role("button", name="prices", exact=True).click()
        cells = page.locator("table.rows tbody tr:not(.space)")
        expect(cells).to_contain_text("1.0")
        write(2.0)
        expect(badge(page)).to_have_text("● newest, followed")
        expect(cells).to_contain_text("2.0", timeout=LATER)
        expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", "2")
        # By the keyboard, from anywhere on the page: back, while newer versions come, and live again.
        page.get_by_role("heading", name="prices").click()
        page.keyboard.press("ArrowLeft")
        expect(badge(page)).to_have_text("◷ the past, 1 newer version")
        write(3.0)
        expect(badge(page)).to_have_text("◷ the past, 2 newer versions", timeout=LATER)
        expect(cells).to_contain_text("1.0")
        page.keyboard.press("l")  # a key of the scrubber alone
        expect(badge(page)).to_have_text("◷ the past, 2 newer versions")
        page.get_by_role("slider").press("l")
        expect(cells).to_contain_text("3.0")
        # Paused, the page stays where it is.
        page.get_by_role("button", name="Stop following").click()
        expect(badge(page)).to_have_text("● newest")
        assert violations(page, explorer_web) == []
        store.close()
        page.get_by_role("button", name="Go live").click()
        catalog.drop_store("prices")
        expect(page.get_by_role("alert").first).to_contain_text("cannot be followed", timeout=LATER)
    made.stop()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_operators_lead_to_states_and_a_deleted_checkpoint_is_a_sentence(
    browser: Any, tmp_path: Path, explorer_web: Path, width: int, scheme: str
) -> None:
    with tarfile.open(DATA / "spark" / "checkpoints.tar.xz") as archive:
        archive.extractall(tmp_path, [each for each in archive if NAME in each.name], filter="data")
    checkpoint = tmp_path / "checkpoints" / NAME
    made = statestore.explore(checkpoint)
    with opened(browser, made.url, width, scheme) as page:
        page.get_by_text("Operators", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator(".operators .part strong")).to_have_text(["stateStoreSave [0]", "stateStoreSave [1]"])
        expect(page.locator(".operators .states button")).to_have_text(["state_0", "state_1"])
        expect(page.locator(".operators")).to_contain_text("Which operator feeds which is not recorded")
        read = page.get_by_role("list", name=re.compile("^read by query "))
        expect(read.get_by_role("listitem")).to_have_text('source 0 read up to {"logOffset":5}')
        inner = page.get_by_role("list", name="states of stateStoreSave [1]", exact=True)
        expect(inner.get_by_role("listitem")).to_contain_text("state_1")
        expect(page.locator(".operators path.edge")).to_have_count(5)
        assert edges_of(page) == {
            ("input source 0", "job"), ("job", "part 0"), ("job", "part 1"), ("part 0", "state state_0"),
            ("part 1", "state state_1"),
        }  # fmt: skip
        assert violations(page, explorer_web) == []
        page.get_by_role("button", name="state_1").first.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="state_1")).to_be_visible()
        expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
        shutil.rmtree(checkpoint)
        expect(page.get_by_role("alert").first).to_contain_text(str(checkpoint), timeout=LATER)
        page.get_by_role("heading", name="state_1").click()
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_role("alert").last).to_contain_text(str(checkpoint))
    made.stop()


def test_a_server_that_is_not_reached_can_be_tried_again(browser: Any, tmp_path: Path) -> None:
    with statestore.connect(tmp_path / "own").create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        store.put("a", 1, timestamp=1)
        store.commit()
    made = statestore.explore(tmp_path / "own")
    with opened(browser, made.url, allowed="ERR_") as page:
        page.locator("button.link").wait_for()
        page.route("**/api/overview*", lambda route: route.abort())
        page.get_by_role("button", name="Look again").click()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        page.unroute("**/api/overview*")
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("alert")).to_have_count(0)
        # Another start has another token, which the page cannot know.
        made.stop()
        again = statestore.explore(tmp_path / "own", port=int(made.url.split(":")[2].split("/")[0]))
        page.get_by_role("button", name="Look again").click()
        expect(page.get_by_role("alert")).to_contain_text("started again; open the address that it printed")
        again.stop()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_overview_follows_all_tables(
    browser: Any, tmp_path: Path, explorer_web: Path, width: int, scheme: str
) -> None:
    catalog = statestore.connect(tmp_path / "own")

    def write(name: str, version: int) -> None:
        key: dict[str, Any] = {"item": "string"}
        store = catalog.open_store(name) if version > 1 else catalog.create_store(name, key=key, value={"n": "bigint"})
        with store:
            store.put(f"i{version}", version, timestamp=1_714_550_000_000)
            store.commit()

    write("prices", 1)
    made = statestore.explore(tmp_path / "own")
    with opened(browser, made.url, width, scheme, allowed="ERR_") as page:
        row = page.get_by_role("row").filter(has_text="prices")
        expect(row.get_by_role("cell").nth(2)).to_have_text("1")
        write("prices", 2)
        expect(row.get_by_role("cell").nth(2)).to_have_text("2", timeout=LATER)
        expect(row).to_contain_text("0 to 2")
        write("visits", 1)
        expect(page.get_by_role("heading", level=1)).to_have_text("2 states to look into", timeout=LATER)
        expect(page.get_by_role("button", name="visits", exact=True)).to_be_visible()
        assert violations(page, explorer_web) == []
        # Back from a table, the overview shows what came meanwhile. Paused, it stays as it is.
        page.get_by_role("button", name="visits", exact=True).click()
        expect(page.get_by_role("heading", name="visits")).to_be_visible()
        write("prices", 3)
        page.get_by_role("button", name="statestore explorer").click()
        expect(row.get_by_role("cell").nth(2)).to_have_text("3", timeout=LATER)
        page.get_by_role("button", name="Stop following").click()
        with page.expect_response("**/api/overview*"):
            page.get_by_role("button", name="Look again").click()
        catalog.drop_store("visits")
        page.get_by_role("button", name="Not followed").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("1 state to look into", timeout=LATER)
        made.stop()
        expect(page.get_by_role("alert")).to_contain_text("cannot be followed", timeout=LATER)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_version_that_is_removed_while_it_is_shown_is_a_sentence(
    browser: Any, tmp_path: Path, explorer_web: Path, width: int, scheme: str
) -> None:
    catalog = statestore.connect(tmp_path / "own")
    store = catalog.create_store("prices", key={"item": "string"}, value={"price": "double"})
    for number in range(6):
        store.put("a", float(number), timestamp=1_714_550_000_000 + 1000 * number)
        store.commit()
    made = statestore.explore(tmp_path / "own")
    with opened(browser, made.url, width, scheme) as page:
        page.goto(f"{made.url}&table=prices&version=2")
        cells = page.locator("table.rows tbody tr:not(.space)")
        expect(cells).to_contain_text("1.0")
        expect(badge(page)).to_have_text("◷ the past, 4 newer versions")
        store.expire(before=1_714_550_000_000 + 4000)
        store.vacuum()
        first, last = statestore.inspect(tmp_path / "own").open("prices").kept_versions()
        assert first > 2
        said = page.get_by_role("alert").first
        kept = f"versions {first} to {last} can be read" if first < last else f"only version {last} can be read"
        expect(said).to_contain_text(f"Version 2 can no longer be read: {kept}.", timeout=LATER)
        expect(badge(page)).to_have_text("⚠ cannot be read")
        assert violations(page, explorer_web) == []
        said.get_by_role("button", name="the oldest").click()
        expect(page.get_by_role("alert")).to_have_count(0)
        (oldest,) = statestore.inspect(tmp_path / "own").table("prices").scan(version=first).read_all().to_pylist()
        expect(cells).to_contain_text(str(oldest["price"]))
        page.goto(f"{made.url}&table=prices&version=99")
        expect(page.get_by_role("alert").first).to_contain_text(f"There is no version 99: {kept}.")
        page.get_by_role("button", name="Show the newest").click()
        expect(cells).to_contain_text("5.0")
    store.close()
    made.stop()
