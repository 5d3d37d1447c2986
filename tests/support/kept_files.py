"""A fixture of tests that look at what is kept of files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take files for settled that were written just now, and leave nothing that is kept."""
    from statestore.formats.places import fetched_parts
    from statestore.formats.places.kept_results import forget_results

    monkeypatch.setattr(fetched_parts, "SETTLED_SECONDS", 0.0)
    forget_results()
    yield
    forget_results()
