"""Where the keyed stores of tests lie: a directory, an object store in memory, a server of S3.

Tests that have a store run in a directory, or in all ``PLACES`` of their module; ``in_places`` says otherwise for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.object_stores.doubles import memory_location

DIRECTORY, MEMORY, S3 = "directory", "memory", "s3"


def in_places(*kinds: str) -> pytest.MarkDecorator:
    """Run a test in these places only."""
    return pytest.mark.parametrize("place", kinds, indirect=True)


@contextmanager
def warehouse_in(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path or URI of a warehouse that does not exist yet; what this machine keeps of it is in ``folder``."""
    if kind == DIRECTORY:
        yield str(folder)
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STATESTORE_CACHE", str(folder / "cache"))
        patched.setenv("STATESTORE_LOCAL", str(folder / "own"))
        if kind == MEMORY:
            yield memory_location().uri
        else:
            yield request.getfixturevalue("s3_server").warehouse(f"keyed-{next(_numbers)}-{folder.name}")


_numbers = itertools.count()
