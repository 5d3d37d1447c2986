"""The picture of the explorer in README.md is what the page looks like. ``STATESTORE_PICTURES=write`` makes it anew."""

from __future__ import annotations

import base64
import os
import random
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.explorer.browsers import opened

import statestore
from statestore.catalog.commits import publish_commit

pytestmark = pytest.mark.slow
PICTURE = Path(__file__).parents[4] / "docs" / "pictures" / "explorer.png"
BEGIN_MS = 1_714_540_200_000  # 2024-05-01 05:10 UTC
FONT = "DejaVu Sans"  # of the kept picture
MOST, MOST_OTHERWISE = 3.0, 12.0  # of 255, with this font and with another one, whose lines have other heights
CITIES = ("Lisbon", "Porto", "Madrid", "Lyon", "Turin", "Graz", "Gdańsk", "Oslo", "Cork", "Ghent")
# Both pictures are drawn into a small canvas, which evens out the edges of letters.
DIFFERENCE = """async (pictures) => {
  const pixels = async (data) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = new OffscreenCanvas(160, 95);
    const drawing = canvas.getContext("2d");
    drawing.drawImage(image, 0, 0, 160, 95);
    return [image.width, image.height, ...drawing.getImageData(0, 0, 160, 95).data];
  };
  const [one, two] = await Promise.all(pictures.map(pixels));
  const far = one.reduce((sum, each, at) => sum + Math.abs(each - two[at]), 0);
  return one[0] === two[0] && one[1] === two[1] ? far / one.length : 255;
}"""


@pytest.fixture
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of balances over a morning, whose commits have the times of that morning."""
    now = BEGIN_MS
    clock = SimpleNamespace(time_ns=lambda: now * 1_000_000)
    monkeypatch.setattr(publish_commit, "time", clock)
    chosen = random.Random(22)
    catalog = statestore.connect(tmp_path / "bank")
    balances: dict[str, int] = {}
    value = {"balance": "bigint", "last_transfer": "bigint", "city": "string", "transfers": "int"}
    with catalog.create_store("balances", key={"account": "string"}, value=value) as store:
        for minute in range(0, 300, 5):
            for _ in range(round(25 + 120 * chosen.random() * ((minute % 100) / 100))):
                account = f"acc-{chosen.randrange(400):04d}"
                amount = chosen.randrange(-400, 600) * 10
                balances[account] = balances.get(account, 2_000) + amount
                now = BEGIN_MS + minute * 60_000 + chosen.randrange(300_000)
                count = int(abs(amount)) % 17 + 1
                store.put(account, (balances[account], amount, chosen.choice(CITIES), count), timestamp=now)
            now = BEGIN_MS + (minute + 5) * 60_000
            store.commit()
    return tmp_path / "bank"


def test_the_picture_in_the_readme(browser: Any, accounts: Path, tmp_path: Path) -> None:
    made = statestore.explore(accounts)
    try:
        with opened(browser, made.url, 1280) as page:
            taken = picture(page)
            if os.environ.get("STATESTORE_PICTURES") == "write":
                PICTURE.write_bytes(taken)
            (tmp_path / "explorer.png").write_bytes(taken)
            kept = PICTURE.read_bytes()
            texts = [base64.b64encode(each).decode() for each in (taken, kept)]
            font = font_of_the_page()
            most = MOST if font == FONT else MOST_OTHERWISE
            assert page.evaluate(DIFFERENCE, texts) < most, f"compare {tmp_path / 'explorer.png'} with {PICTURE}"
    finally:
        made.stop()


def font_of_the_page() -> str:
    """Return the font that stands for ``system-ui``; empty where that is not known."""
    program = shutil.which("fc-match")
    if program is None:
        return ""
    return subprocess.run([program, "-f", "%{family}", "system-ui"], capture_output=True, text=True).stdout


def picture(page: Page) -> bytes:
    page.set_viewport_size({"width": 1280, "height": 760})
    page.get_by_role("button", name="balances").click()
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    for _ in range(39):
        page.keyboard.press("ArrowRight")
    expect(page.locator("div.grid")).to_have_attribute("aria-busy", "false")
    page.keyboard.press("Escape")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("div.grid")).to_have_attribute("aria-busy", "false")
    expect(page.locator("span.mark").first).to_be_visible()
    slider.blur()
    return page.screenshot(animations="disabled")
