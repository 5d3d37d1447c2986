"""Texts to copy, files to download and a Cancel, by mouse and by keyboard."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import violations

import statestore
from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">'
WAIT = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explorer")


@pytest.fixture(scope="module")
def explorer(folder: Path) -> Iterator[Explorer]:
    with statestore.connect(folder).create_store("visits", key={"user": "string"}, value={"n": "bigint"}) as store:
        for commit in range(3):
            for at, user in enumerate(("ada", "bob", HOSTILE)):
                store.put(user, 10 * commit + at, timestamp=1_714_550_000_000 + commit)
            store.commit()
    made = statestore.explore(folder)
    yield made
    made.stop()


def link(page: Page, **view: str) -> None:
    """Open an address of the page, after the first one, which brought the token."""
    expect(page.get_by_role("button", name="statestore explorer")).to_be_visible()
    page.goto(f"{page.url.split('?')[0]}?{urlencode({'table': 'visits', **view})}")


def shown_text(page: Page, language: str) -> Any:
    return page.get_by_role("textbox", name=f"{language}, to copy")


def test_copy_by_mouse_and_by_keyboard(page: Page, folder: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    link(page, version="2", where=json.dumps([["user", "=", HOSTILE]]))
    expect(page.locator(".answers [role=status]")).to_contain_text("1 row")
    expect(page.get_by_text("A look-up by key.")).to_be_visible()
    page.get_by_text("Copy as…").click()
    expect(shown_text(page, "SQL of DuckDB")).to_have_value(
        f'SELECT *\nFROM "visits" VERSION AS OF 2\nWHERE "user" = \'{HOSTILE}\''
    )
    page.get_by_role("button", name="Copy Python").press("Enter")
    expect(page.get_by_text("Copied.")).to_be_visible()
    names: dict[str, Any] = {}
    exec(page.evaluate("navigator.clipboard.readText()"), names)
    assert names["rows"].to_pylist()[0]["n"] == 12
    # Another moment has other texts.
    page.get_by_role("slider").press("ArrowLeft")
    expect(shown_text(page, "SQL of DuckDB")).to_have_value(
        f'SELECT *\nFROM "visits" VERSION AS OF 1\nWHERE "user" = \'{HOSTILE}\''
    )
    for tab, view in (("life", {"key": "ada"}), ("compare", {"version": "2", "from": "1"})):
        link(page, tab=tab, **view)
        page.locator("summary", has_text="Copy as…").press("Enter")
        expect(shown_text(page, "Command line")).to_have_value(
            f"statestore history {folder} visits ada\n"
            if tab == "life"
            else f"statestore diff --from=1 --to=2 {folder} visits\n"
        )


def test_without_a_clipboard_the_text_is_selected(page: Page) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    link(page)
    page.locator("summary", has_text="Copy as…").press("Enter")
    page.get_by_role("button", name="Copy Command line").press("Enter")
    expect(page.get_by_text("The text is selected")).to_be_visible()
    expect(shown_text(page, "Command line")).to_be_focused()
    assert str(page.evaluate("getSelection().toString()")).startswith("statestore scan ")


def test_exports_are_downloaded(page: Page, tmp_path: Path) -> None:
    link(page, version="2", sort="-n")
    page.get_by_text("Export…").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Parquet").press("Enter")
    assert waiting.value.suggested_filename == "visits-v2.parquet"
    waiting.value.save_as(tmp_path / "file")
    assert pq.read_table(tmp_path / "file")["n"].to_pylist() == [12, 11, 10]
    expect(page.get_by_text("visits-v2.parquet: 3 rows.")).to_be_visible()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    waiting.value.save_as(tmp_path / "csv")
    assert (tmp_path / "csv").read_text().splitlines()[1].startswith('"<img src=x onerror=""document')


def test_a_question_that_takes_long_can_be_cancelled(
    page: Page, monkeypatch: pytest.MonkeyPatch, explorer_web: Path
) -> None:
    goes_on = threading.Event()
    watched = Limits.watched
    ended = threading.Event()

    def held(limits: Limits, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            for batch in watched(limits, batches):
                yield batch
                while not goes_on.wait(0.05):
                    limits.check()  # a question nobody waits for ends between two batches
        finally:
            ended.set()

    monkeypatch.setattr(Limits, "watched", held)
    try:
        assert page.viewport_size is not None
        where = [["n", ">", f"-{page.viewport_size['width']}"]]  # a question that was not answered before
        link(page, where=json.dumps(where))
        expect(page.get_by_text("Reading… 1 s, 3 of 9 rows looked at")).to_be_visible()
        expect(page.get_by_role("progressbar", name="share of the rows")).to_have_attribute("max", "9")
        assert violations(page, explorer_web) == []
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.locator(".answers [role=status]")).to_have_text("Cancelled.")
        assert ended.wait(WAIT)
    finally:
        goes_on.set()
    page.get_by_role("button", name="Read again").click()
    expect(page.locator(".answers [role=status]")).to_contain_text("3 rows")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_nothing_is_wrong_for_those_who_hear_the_page(page: Page, explorer_web: Path) -> None:
    link(page, where='[["n",">","1"]]')
    expect(page.get_by_text("A scan: all rows are read.")).to_be_visible()
    page.get_by_text("Copy as…").click()
    page.get_by_text("Export…").click()
    expect(shown_text(page, "Spark")).to_be_visible()
    assert violations(page, explorer_web) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
