"""The bundle in static/ is what its sources make."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
STATIC = Path(__file__).parents[4] / "connector" / "explorer" / "static"


def test_the_bundle_is_made_of_its_sources(explorer_web: Path) -> None:
    """Run the commands of docs/testing.md and compare every byte."""
    for script in ("check", "build"):
        subprocess.run(["npm", "run", script], cwd=explorer_web, check=True, capture_output=True, timeout=300)
    made, kept = (
        {file.name: file.read_bytes() for file in folder.iterdir()}
        for folder in (explorer_web.parent / "static", STATIC)
    )
    assert made == kept
