"""Pages of the explorer in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.chromium import find

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from support.explorer.keyboard import Keyboard

PATIENCE = 20_000  # milliseconds until a page shows what a test expects, however busy the machine is
SIZES = [(360, "light"), (1280, "dark"), (2560, "light")]
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium that the tests of a module share."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def opened(
    browser: Browser, url: str, width: int = 1280, scheme: Any = "light", allowed: str = "status of 4"
) -> Iterator[Page]:
    """Yield a page at an address; fail afterwards if it wrote an error to its console that has no ``allowed`` in it."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert [each for each in problems if allowed not in each and "status of 4" not in each] == []


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}-{size[1]}")
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A page of the module's fixture ``explorer``, in each size."""
    with opened(browser, request.getfixturevalue("explorer").url, *request.param) as found:
        yield found


def violations(page: Page, web: Path) -> list[tuple[str, list[str]]]:
    """Return the rules of WCAG A and AA that the page breaks, as axe-core finds them, and the elements."""
    page.evaluate((web / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("rules => axe.run({runOnly: rules})", RULES)
    return [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]]


@pytest.fixture
def keys(page: Page) -> Keyboard:
    """A keyboard for the page, which is shown."""
    from playwright.sync_api import expect

    from support.explorer.keyboard import Keyboard

    expect(page.get_by_role("heading", level=1)).to_be_visible()
    return Keyboard(page)
