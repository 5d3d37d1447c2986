"""A real browser, headless and without a network, for tests that need one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
CONSOLE = re.compile(r"CONSOLE[:(]\d*\)?\]?\s*(.*)")


@dataclass(frozen=True)
class Seen:
    """The document after its scripts have run, and the messages on the console."""

    document: str
    console: list[str]


def find() -> str:
    """The browser's program. Skips the test where there is none, unless STATESTORE_BROWSER=required, as in CI."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    if os.environ.get("STATESTORE_BROWSER") == "required":
        pytest.fail("no Chromium here, and STATESTORE_BROWSER=required")
    pytest.skip("no Chromium here")


def look_at(page: Path, profile: Path, *options: str) -> Seen:
    """Open a local page; every name resolves to nothing, so any use of a network fails with a message."""
    command = [find(), *QUIET, f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=30000", "--dump-dom", *options, page.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    return Seen(ended.stdout, [found[1] for line in ended.stderr.splitlines() if (found := CONSOLE.search(line))])
