"""Make docs/performance.md, its plot and the README's figures from the results of a run.

python -m benchmarks.page RESULTS.jsonl       copies the results to docs/performance.jsonl first
python -m benchmarks.page                     makes the page from docs/performance.jsonl again
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from benchmarks.page.plot import save_plot
from benchmarks.page.summary import summary
from benchmarks.page.text import page
from benchmarks.results.figure import Results, read_file

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
KEPT = DOCS / "performance.jsonl"
BEGIN, END = "<!-- figures of python -m benchmarks -->\n", "<!-- end of figures -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="?", default=KEPT)
    given = parser.parse_args().results.resolve()
    if given != KEPT:
        shutil.copyfile(given, KEPT)
    results = read_file(KEPT)
    (DOCS / "performance.md").write_text(page(results), "utf-8")
    save_plot(results, DOCS / "performance.png")
    readme = ROOT / "README.md"
    readme.write_text(with_figures(readme.read_text("utf-8"), results), "utf-8")


def with_figures(readme: str, results: Results) -> str:
    """The README with the summary of these results between its two marks."""
    block = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not block.search(readme):
        raise SystemExit(f"README.md has no lines {BEGIN.strip()} and {END.strip()}, between which its figures stand.")
    return block.sub(lambda _: f"{BEGIN}\n{summary(results)}\n{END}", readme)


if __name__ == "__main__":
    main()
