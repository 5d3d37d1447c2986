"""A hook of MkDocs: pages of the repository outside docs/ become pages of the site, and links between all of them work.

In a checkout a link leads to a file. On the site the same link leads to the page that was made of it. A link to a file
that is no page of the site becomes plain text. A link to nothing stays, so that ``mkdocs build --strict`` reports it.
What is inside a list gets the four spaces that MkDocs needs; the pages have as many as the marker of the list is wide.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# File of the repository -> page of the site.
PAGES = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")

INDENTED = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    parts = FENCE.split(markdown)
    outside = [INDENTED.sub("    ", part) for part in parts[::2]]
    parts[::2] = [LINK.sub(lambda found: linked(found, uri, files), part) for part in outside]
    return "".join(parts)


def linked(found: re.Match[str], uri: str, files: Files) -> str:
    """Return a link of the checkout as one of the site."""
    text, target, anchor = found["text"], found["target"], found["anchor"] or ""
    if not target or "://" in target:
        return found[0]
    source = SOURCES.get(uri, f"docs/{uri}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    there = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
    if there is not None and files.get_file_from_path(there) is not None:
        return f"{text}({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{anchor})"
    return text[1:-1] if (ROOT / path).exists() else found[0]
