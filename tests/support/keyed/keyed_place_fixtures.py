"""A place for the keyed store of a test (`support.keyed.keyed_places`). Loaded as a plugin, never imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.keyed.keyed_places import DIRECTORY, warehouse_in


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = any("place" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "place" in metafunc.fixturenames and not marked:
        metafunc.parametrize("place", getattr(metafunc.module, "PLACES", (DIRECTORY,)), indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The path or URI of a warehouse that does not exist yet."""
    with warehouse_in(getattr(request, "param", DIRECTORY), tmp_path, request) as found:
        yield found
