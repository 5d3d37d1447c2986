"""The version of this release, which setup.cfg takes from here.

It is not asked of the installed package, since that loads a parser of mail: a third of the time that the program takes
to say its version.
"""

from __future__ import annotations

VERSION = "0.1.0"


def show_version() -> None:
    """Print the line with which the program says its version."""
    print(f"statestore {VERSION}", flush=True)
