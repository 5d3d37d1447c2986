"""Questions before something is removed, asked on stderr and answered on stdin."""

from __future__ import annotations

import sys


def agreed(question: str) -> bool:
    """Ask, and return whether the answer is yes; no answer is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
