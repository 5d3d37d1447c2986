"""A place for the keyed store of a test (`support.places`). Loaded as a plugin, never imported.

Tests that have a store run in a directory, or in all ``PLACES`` of their module; ``in_places`` says otherwise for one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.places import DIRECTORY, warehouse_in


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = any("place" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "place" in metafunc.fixturenames and not marked:
        metafunc.parametrize("place", getattr(metafunc.module, "PLACES", (DIRECTORY,)), indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The path or URI of a warehouse that does not exist yet."""
    return warehouse_in(getattr(request, "param", DIRECTORY), request, tmp_path)
