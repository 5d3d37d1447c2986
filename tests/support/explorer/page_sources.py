"""A copy of the sources of the explorer's page, with their packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXPLORER = Path(__file__).parents[3] / "connector" / "explorer"


@pytest.fixture(scope="session")
def explorer_web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sources, after `npm ci`, beside an empty folder for the bundle."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing; install Node.js with npm")
    folder = tmp_path_factory.mktemp("explorer")
    shutil.copytree(EXPLORER / "web", folder / "web", ignore=shutil.ignore_patterns("node_modules"))
    (folder / "static").mkdir()
    subprocess.run(["npm", "ci"], cwd=folder / "web", check=True, capture_output=True, timeout=300)
    return folder / "web"
