"""Fixtures for tests of tracked tasks. Loaded as a plugin, never imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.connector.keyed import task as kept_backends


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let backends be kept from batch to batch, and dispose of them at the end."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    yield
    for kept in kept_backends._kept.values():
        kept.backend.dispose()
    kept_backends._kept.clear()
    assert not list((tmp_path / "scratch").glob("*/*"))
