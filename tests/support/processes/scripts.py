"""Command lines of the other modules of this folder, which tests run as processes of their own."""

from __future__ import annotations

import sys

from support.paths import TESTS

# The folder of tests comes first, so that the script imports `support` as tests do.
START = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"


def command(script: str, *arguments: object) -> list[str]:
    """A command line that runs ``support.processes.<script>`` with these arguments as texts."""
    return [sys.executable, "-P", "-c", START, str(TESTS), f"support.processes.{script}", *map(str, arguments)]
