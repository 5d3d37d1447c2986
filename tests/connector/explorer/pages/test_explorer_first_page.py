"""What an address shows is there before all else is known, and stays when something beside it fails."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from support.explorer.browsers import opened
from support.paths import DATA

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("explorer")
    value = {"at": "struct<x bigint, y string>", "all": "array<bigint>"}
    with statestore.connect(folder).create_store("s", key={"k": "string"}, value=value) as store:
        for number, name in enumerate("bca"):
            store.put(name, {"at": {"x": number % 2, "y": name}, "all": [number]}, timestamp=1)
        store.commit()
    with tarfile.open(DATA / "kafka" / "half-flushed.tar.xz") as archive:
        archive.extractall(folder / "kafka", filter="data")
    made = statestore.explore(folder, folder / "kafka" / "eos28n")
    yield made
    made.stop()


@pytest.fixture
def page(browser: Browser, explorer: Explorer) -> Iterator[Page]:
    with opened(browser, explorer.url, allowed="status of 503") as found:
        expect(found.get_by_role("heading", level=1)).to_be_visible()
        yield found


def show(page: Page, **view: str) -> None:
    page.goto(f"{page.url.partition('?')[0]}?{urlencode(view)}")


def keys(page: Page) -> list[str]:
    return page.locator("table.rows tbody tr:not(.space) td:first-child").all_inner_texts()


def test_an_address_of_a_table_asks_for_that_table_alone(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    show(page, table="s")
    expect(page.get_by_role("status")).to_contain_text("3 rows")
    assert "/api/tables" in asked and "/api/overview" not in asked
    asked.clear()
    with page.expect_request("**/api/overview*"):
        show(page, table="s", tab="life", key="a")
    expect(page.get_by_role("status")).to_contain_text("1 version")
    assert asked.index("/api/life") < asked.index("/api/overview")
    page.get_by_role("button", name="statestore explorer").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("states to look into")
    show(page, table="none")
    expect(page.get_by_role("alert")).to_contain_text("There is no table none here")
    show(page, place="7", table="s")
    expect(page.get_by_role("alert")).to_contain_text("expected 0 to 1")


def test_an_order_that_there_is_not_leaves_the_rows(page: Page) -> None:
    show(page, table="s")
    expect(page.get_by_role("status")).to_contain_text("3 rows")
    page.get_by_role("button", name="at", exact=True).click()
    expect(page.get_by_role("columnheader", name="at")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("table.rows tbody tr:not(.space)").first).to_contain_text('{"x": 0, "y": "a"}')
    assert keys(page) == ["a", "b", "c"]
    page.get_by_role("button", name="all", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("has no order here; sort by another column")
    expect(page.get_by_role("columnheader", name="at")).to_have_attribute("aria-sort", "ascending")
    assert keys(page) == ["a", "b", "c"]
    page.get_by_role("button", name="at ↑").click()
    expect(page.get_by_role("columnheader", name="at")).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_role("alert")).to_have_count(0)
    show(page, table="s", sort="all")
    page.get_by_role("button", name="Read without this order").click()
    expect(page.get_by_role("status")).to_contain_text("3 rows")


def test_notices_stand_above_the_rows(page: Page) -> None:
    said = page.get_by_role("status").filter(has_text="no offset of the store")
    show(page, place="1", table="counts")
    expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
    expect(said).to_be_visible()
    show(page, place="1", tab="sql", sql="FROM counts")
    expect(page.locator("table.rows tbody tr:not(.space)").first).to_be_visible()
    expect(said).to_be_visible()
    show(page, table="s")
    expect(page.get_by_role("status")).to_contain_text("3 rows")
    expect(said).to_have_count(0)
    show(page)
    expect(said).to_be_visible()  # the rows of the overview are counted by a read


def test_a_full_line_is_a_sentence(page: Page) -> None:
    def full(route: Route) -> None:
        route.fulfill(status=503, body=json.dumps({"code": "EXPLORER_LIMIT", "error": "8 statements to answer"}))

    page.route("**/api/sql?**", full)
    show(page, tab="sql", sql="SELECT 1 AS one")
    expect(page.get_by_role("alert")).to_contain_text("8 statements to answer")
    page.unroute("**/api/sql?**")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status").first).to_contain_text("1 row in ")


def test_what_fails_beside_a_life_is_no_alert(page: Page) -> None:
    """Another table of the same operator, whose history cannot be read."""

    def beside(route: Route) -> None:
        found = route.fetch()
        places = found.json()
        (own,) = places[0]["tables"]
        own["operator"] = "join"
        places[0]["tables"] = [own, {**own, "store": "other"}, {**own, "store": "apart", "operator": None}]
        route.fulfill(response=found, json=places)

    page.route("**/api/overview*", beside)
    show(page, table="s", tab="life", key="a")
    expect(page.get_by_text("Not drawn beside it: other: ")).to_be_visible()
    expect(page.get_by_text("apart: ")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
