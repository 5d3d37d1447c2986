"""Warehouses of tests in an object store: the suites of stores and doors run there as they are.

With ``STATESTORE_TEST_WAREHOUSES=s3``, a warehouse that a test makes in a local directory is one in the real S3 server
instead, and with ``memory`` one in the memory of the test process. A path at which there are files stays local: the
checkpoints, directories and files of engines that tests read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from statestore.formats.places.locations import Location, parse_location

VARIABLE = "STATESTORE_TEST_WAREHOUSES"


def chosen() -> str:
    """Return where warehouses of tests are: local, memory or s3."""
    found = os.environ.get(VARIABLE, "local")
    assert found in ("local", "memory", "s3"), f"{VARIABLE} is {found!r}; expected local, memory or s3"
    return found


@contextmanager
def warehouses_at(root: Location, below: Path) -> Iterator[None]:
    """Open warehouses whose paths are below a folder at ``root`` instead, in this process."""

    def parsed(text: Any) -> Location:
        found = parse_location(text)
        if not found.is_local or not found.path.startswith(f"{below}/") or _has_files(Path(found.path)):
            return found
        return root.at(found.path.removeprefix(f"{below}/"))

    with ExitStack() as patches:
        for name in _importers():
            patches.enter_context(mock.patch(f"{name}.parse_location", parsed))
        yield


def _importers() -> list[str]:
    """Return the module that has the function, and the loaded ones that have imported it."""
    return [
        name
        for name, module in list(sys.modules.items())
        if name.startswith("statestore.") and getattr(module, "parse_location", None) is parse_location
    ]


def _has_files(path: Path) -> bool:
    """Return whether there is a file, or a folder with something in it, at a path or around it."""
    if path.is_file():
        return True
    return path.is_dir() and any(child.is_file() or any(child.iterdir()) for child in path.iterdir())
