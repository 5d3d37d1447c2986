"""The row that is marked, as commands to copy that edit it: by mouse and by keyboard, and only for engines' states."""

from __future__ import annotations

import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import violations

import statestore
from statestore.connector.explorer.server import Explorer

pytestmark = pytest.mark.slow
CHECKPOINTS = Path(__file__).parents[3] / "data" / "spark" / "checkpoints.tar.xz"
NAME = "spark4.3.0-agg__rkcl"


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("edited")
    with statestore.connect(folder / "own").create_store("visits", key={"user": "string"}, value={"n": "int"}) as store:
        store.put("ada", 1, timestamp=1)
        store.commit()
    with tarfile.open(CHECKPOINTS) as archive:
        archive.extractall(folder, [each for each in archive if NAME in each.name], filter="data")
    made = statestore.explore(folder / "checkpoints" / NAME, folder / "own")
    yield made
    made.stop()


def test_a_row_is_copied_as_an_edit(page: Page, explorer: Explorer, explorer_web: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_role("button", name="statestore explorer")).to_be_visible()
    page.goto(f"{explorer.url}&table=state")
    row = page.locator("table.rows tbody tr:not(.space)").nth(2)
    row.click()
    cells = row.locator("td").all_inner_texts()
    page.locator("summary", has_text="Copy row 3 as an edit…").press("Enter")
    changed = page.get_by_role("textbox", name="Change the row, to copy")
    expect(changed).to_be_visible()
    assert violations(page, explorer_web) == []
    page.get_by_role("button", name="Copy Delete the row").press("Enter")
    expect(page.get_by_text("Copied.")).to_be_visible()
    words = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert words[:2] == ["statestore", "edit"] and words[3] == "--into"
    edit = statestore.edit(words[2])
    edit.sql(shlex.split(changed.input_value())[-1])
    assert not edit.edits()
    edit.sql(words[-1])
    (gone,) = edit.edits()
    (key,) = (each["key"]["k"] for each in gone.removed.to_pylist())
    assert any(key in cell for cell in cells)
    # Another row has other commands, while they are open.
    page.locator(".grid").press("ArrowDown")
    expect(page.locator("summary", has_text="Copy row 4 as an edit…")).to_be_visible()
    expect(changed).to_be_visible()
    expect(changed).not_to_have_value(shlex.join(words))
    page.goto(f"{explorer.url}&place=1&table=visits")
    expect(page.locator("table.rows tbody tr:not(.space)")).to_have_count(1)
    expect(page.locator("summary", has_text="as an edit")).to_have_count(0)
