"""docs/reliability.md names tests that exist, and names every test of the campaign's sweeps."""

from __future__ import annotations

import re
from pathlib import Path

from support.paths import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
NAMED = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))


def functions_of(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE))


def test_every_test_that_the_page_names_exists() -> None:
    assert [(file, name) for file, name in sorted(NAMED) if name not in functions_of(ROOT / file)] == []
    assert len(NAMED) > 10


def test_every_sweep_is_on_the_page() -> None:
    named = {name for _, name in NAMED}
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    sweeps = [
        path for path in files if re.search(r"^from faults\.campaign import .*Sweep", path.read_text("utf-8"), re.M)
    ]
    assert len(sweeps) > 5
    assert [path.name for path in sweeps if not functions_of(path) & named] == []


def test_every_promise_in_a_table_names_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    with_tests = [row for row in rows if row.count("|") == 4]  # a call or a subject, a promise, a test
    missing = [row[:60] for row in with_tests if "::" not in row and not row.rstrip().endswith("held by |")]
    assert missing == []
