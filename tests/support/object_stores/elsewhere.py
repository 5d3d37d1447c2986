"""Warehouses of tests in an object store: the suites of stores and doors run there as they are.

With ``STATESTORE_TEST_WAREHOUSES=s3``, a warehouse that a test makes in a local directory is one in the real S3 server
instead, and with ``memory`` one in the memory of the test process. A path at which there are files stays local: the
checkpoints, directories and files of engines that tests read.

The stores of tests are small. So that their files are written and read as large ones are, page by page, the sizes from
which that is worth it are 0 there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from statestore.catalog.commits.new_files import REMOTE
from statestore.formats.places.locations import Location, parse_location

VARIABLE = "STATESTORE_TEST_WAREHOUSES"
_AS_LARGE = {
    "statestore.formats.segments.ipc_file.PAGED_FILE_BYTES": 0,
    "statestore.catalog.log.storage_objects.WHOLE_BYTES": 0,
    "statestore.catalog.commits.new_files.REMOTE": replace(REMOTE, batch_rows=8),
    "statestore.catalog.commits.new_files.REMOTE_MIN_ROWS": 8,
}


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
        for name, value in _AS_LARGE.items():
            patches.enter_context(mock.patch(name, value))
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
