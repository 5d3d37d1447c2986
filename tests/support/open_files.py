"""Files of a folder that this process holds open.

Tests count these, and not all descriptors: what tests before them left to the garbage collector, and what Spark's
gateway or a server's connection closes, changes the count of the process at any moment.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_below(folder: Path) -> list[Path]:
    """Return what each descriptor of this process names at or below `folder`, sorted; a removed file is listed, too."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append(descriptor.readlink())
    return sorted(path for path in found if path.is_relative_to(folder.resolve()))
