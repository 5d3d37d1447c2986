"""The site of the pages: links work in it as they do in a checkout, and no page asks the network for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

ASKS = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=[\"']?(https?:)?//|<link[^>]*\bhref=[\"']?(https?:)?//")


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(out)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_no_page_asks_the_network_and_links_lead_to_pages(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert [name for name, text in pages.items() if ASKS.search(text)] == []
    # From and to a file outside docs/, and to one that is no page.
    assert 'href="../tutorials/spark-checkpoint.html"' in pages["project/readme.html"]
    assert 'href="project/readme.html#what-it-costs"' in pages["comparison.html"]
    assert "<ol>\n<li>the magic" in pages["format.html"]  # a list in a list
    assert "examples" in pages["project/readme.html"] and 'href="../examples' not in pages["project/readme.html"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "reported"),
    [("[x](nowhere.md)", "nowhere.md"), ("[x](other.md#nowhere)", "#nowhere"), ("[x](../nowhere.py)", "nowhere.py")],
)
def test_a_link_to_nothing_fails(link: str, reported: str, tmp_path: Path) -> None:
    """With the settings and the hook of the real site, on two small pages."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Here\n\n{link}, [there](other.md#there)\n")
    (docs / "other.md").write_text("# There\n")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[0]
    settings = settings.replace("docs/site_links.py", str(ROOT / "docs" / "site_links.py"))
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"extra_css:\n  - site.css\n", "", settings))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert done.returncode != 0 and reported in done.stderr
