"""The overview counts rows that no metadata has, and filters take fields of structs, in a real browser."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import opened, violations

import statestore
from statestore.catalog.summaries import summary_of
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
JOIN = "spark4.3.0-join__rkcl"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overview")
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(folder, [each for each in archive if JOIN in each.name], filter="data")
    return folder / "checkpoints" / JOIN


@pytest.fixture(scope="module")
def explorer(checkpoint: Path) -> Iterator[Explorer]:
    made = statestore.explore(checkpoint)
    yield made
    made.stop()


def test_rows_are_counted(page: Page, checkpoint: Path, explorer_web: Path) -> None:
    page.add_init_script("AbortSignal.timeout = () => new AbortController().signal")  # however busy the machine is
    page.reload()
    for name in ("left", "right"):
        rows = statestore.inspect(checkpoint).table(name).scan().read_all().num_rows
        cells = page.get_by_role("row").filter(has=page.get_by_role("button", name=name, exact=True))
        expect(cells.locator("td.number").first).to_have_text(str(rows))
    assert violations(page, explorer_web) == []


def test_rows_that_take_long_are_counted_when_somebody_asks(
    browser: Any, explorer: Explorer, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, explorer_web: Path
) -> None:
    """Tables of unknown size are counted unasked, and large ones are not."""
    monkeypatch.setattr(
        "statestore.connector.explorer.opened_paths.summary_of", lambda *given: {**summary_of(*given), "bytes": 1 << 40}
    )
    with opened(browser, explorer.url) as page:
        button = page.get_by_role("button", name="Count the rows of left")
        expect(button).to_be_visible()
        assert violations(page, explorer_web) == []
        button.press("Enter")
        rows = statestore.inspect(checkpoint).table("left").scan().read_all().num_rows
        expect(page.get_by_role("row").filter(has_text="left")).to_contain_text(str(rows))
        expect(page.get_by_role("button", name="Count the rows of right")).to_be_visible()


def test_a_filter_takes_a_field_of_the_key(page: Page) -> None:
    page.get_by_role("button", name="left", exact=True).click()
    page.get_by_role("button", name="Add a filter").click()
    expect(page.get_by_label("column")).to_have_value("key.field0")
    page.get_by_label("operator").select_option("starts_with")
    page.get_by_label("value").fill("key-00-")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status").first).to_contain_text("1 row")
    expect(page.locator("table.rows tbody tr:not(.space)")).to_contain_text('{"field0": "key-00-", "field1": 0}')
