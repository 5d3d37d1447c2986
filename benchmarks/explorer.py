"""The explorer, measured in a real browser: its first view, a step of the scrubber, the life of a key.

    python benchmarks/explorer.py [--quick] [--folder FOLDER] [--no-spark]

A store of a million keys and ten million versions in 200 commits, with hot keys, deletes and late records, and the
checkpoint of a Spark query over two million keys are made in ``--folder``, or taken from there if an earlier run left
them. The times are those of the page: from the key press, click or navigation until the answer is drawn, two frames
later at most. Each line has the median, the 95th percentile, and the latter's share of its goal, so less than 1 is
better. ``floor`` is the same round trip with an answer of nothing: what browser, server and drawing cost alone.

It needs the extra ``dev``, Chromium, and Java for the checkpoint.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.loads.stream import Shape

TESTS = Path(__file__).resolve().parents[1] / "tests"
STEPS = 40
LIVES = 30
FRESH = 5
WINDOW: Any = {"width": 1280, "height": 900}
LISTED = "document.querySelector('.link')"
SHOWN = "document.querySelector('.grid[aria-busy=false] tr[aria-rowindex=\"2\"]')"


def main(given: argparse.Namespace) -> None:
    sys.path.insert(0, str(TESTS))
    from support.chromium import find  # type: ignore[import-not-found,unused-ignore]

    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(given.folder or made)
        shape = Shape(20_000, 10, 5_000) if given.quick else Shape(1_000_000, 10, 50_000)
        store = own_store(folder / f"store-{shape.keys}", shape)
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        print("| question | goal, ms | median | p95 | p95 / goal |\n| --- | --- | --- | --- | --- |", flush=True)
        with serving(store) as url:
            of_own_store(browser, url, shape)
        if not given.no_spark:
            with serving(spark_checkpoint(folder, 20_000 if given.quick else 2_000_000)) as url:
                of_spark(browser, url)
        browser.close()


def own_store(folder: Path, shape: Shape) -> Path:
    """Return a warehouse with the store, which the usual calls write."""
    from benchmarks.loads.stream import Stream
    from benchmarks.measures.workbench import write_history

    if not folder.exists():
        write_history(Stream(shape, 7), folder)
    return folder


def spark_checkpoint(folder: Path, keys: int) -> Path:
    from benchmarks.spark_state import made, session

    spark = session()
    found = made(spark, folder / f"one-{keys}", keys, 1)
    spark.stop()
    return found


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """Yield the address of an explorer in a process of its own, as its users start it."""
    command = [sys.executable, "-m", "statestore", "explore", str(path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = re.search(r"http://\S+", line)
                if found:
                    break
            else:
                raise RuntimeError("the explorer printed no address")
            yield found.group()
        finally:
            process.terminate()


def of_own_store(browser: Browser, url: str, shape: Shape) -> None:
    printed(
        "first view: the overview",
        1_500,
        [fresh(browser, url, LISTED) for _ in range(FRESH)],
    )
    page = opened(browser, url)
    printed("floor: one question about nothing", None, floor(page))
    name = page.locator("button.link").first.inner_text()
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_function(SHOWN)
    table = page.url
    printed(
        "first view: a table by its address", 1_500, [fresh(browser, token_of(url, table), SHOWN) for _ in range(FRESH)]
    )
    printed("scrub step back, newest first", 200, steps(page, "ArrowLeft", STEPS))
    printed("scrub step on", 200, steps(page, "ArrowRight", STEPS))
    timed(page, pressed("Home"), f"{at('0')} && document.querySelector('.grid[aria-busy=false]')")
    printed("scrub step on, oldest first", 200, steps(page, "ArrowRight", STEPS))
    printed("scrub by a twentieth", 200, steps(page, "PageUp", 15))
    timed(page, pressed("End"), SHOWN)
    from benchmarks.loads.stream import Stream

    stream = Stream(shape, 7)
    names = stream.names.take([int(stream.key[at * 997]) for at in range(LIVES)]).to_pylist()
    printed("life of a key", 150, lives(page, names))


def of_spark(browser: Browser, url: str) -> None:
    printed(
        "Spark checkpoint: the overview",
        2_000,
        [fresh(browser, url, LISTED) for _ in range(FRESH)],
    )
    page = opened(browser, url)
    page.locator("button.link").first.click()
    page.wait_for_function(SHOWN)
    words = [f"word-{number * 61:08d}" for number in range(LIVES)]
    printed("Spark checkpoint: look-up of a key", 300, lives(page, words))


def opened(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport=WINDOW, bypass_csp=True)
    page.goto(url)
    page.wait_for_function(LISTED)
    return page


def token_of(url: str, table: str) -> str:
    """Return the address of a view with the token of the printed one, as a new tab needs it."""
    return f"{table}&{url.partition('?')[2]}"


def fresh(browser: Browser, url: str, done: str) -> float:
    """Return the milliseconds from the start of the navigation, in a new window."""
    context = browser.new_context(viewport=WINDOW, bypass_csp=True)
    page = context.new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function(done, polling="raf")
    found = float(page.evaluate("performance.now()"))
    context.close()
    return found


def floor(page: Page) -> list[float]:
    asking = """async () => {
      const begun = performance.now();
      await (await fetch("/static/icon.svg")).text();
      await new Promise(requestAnimationFrame);
      return performance.now() - begun;
    }"""
    return [float(page.evaluate(asking)) for _ in range(STEPS)]


def timed(page: Page, action: str, done: str) -> float:
    """Run an action in the page, wait until what it asks for is drawn, and return the milliseconds by its clock."""
    return float(
        page.evaluate(
            f"""async () => {{
              const begun = performance.now();
              {action};
              do {{
                await new Promise(requestAnimationFrame);
                if (performance.now() - begun > 30000) throw new Error("nothing is drawn after 30 s");
              }} while (!({done}));
              return performance.now() - begun;
            }}"""
        )
    )


def at(version: str) -> str:
    return f"document.querySelector('[role=slider]').getAttribute('aria-valuenow') === {version!r}"


def pressed(key: str) -> str:
    return (
        "const slider = document.querySelector('[role=slider]');"
        f"slider.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}}));"
    )


def steps(page: Page, key: str, number: int) -> list[float]:
    found = []
    for _ in range(number):
        before = page.get_by_role("slider").get_attribute("aria-valuenow") or ""
        moved = f"!({at(before)}) && {SHOWN}"
        found.append(timed(page, pressed(key), moved))
    return found


def lives(page: Page, names: Sequence[str]) -> list[float]:
    page.get_by_role("button", name="Life of a key", exact=True).first.click()
    field = page.locator(".finder input").first
    found = []
    for name in names:
        field.fill(name)
        act = "document.querySelector('.finder button').click()"
        done = (
            f"[...document.querySelectorAll('.life .facts tbody tr')].some((row) => row.innerText.includes({name!r}))"
        )
        found.append(timed(page, act, done))
    return found


def printed(what: str, goal: float | None, found: Sequence[float]) -> None:
    ordered = sorted(found)
    high = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    wanted, share = ("", "") if goal is None else (f"{goal:,.0f}", f"{high / goal:.2f}")
    print(f"| {what} | {wanted} | {statistics.median(found):.0f} | {high:.0f} | {share} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 keys instead of a million")
    parser.add_argument("--folder", help="where the state is kept for the next run")
    parser.add_argument("--no-spark", action="store_true", help="leave the checkpoint out")
    main(parser.parse_args())
