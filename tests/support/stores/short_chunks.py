"""Chunks, packs and checkpoints of few versions, so that short logs have many of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

LENGTH = 16
_MODULES = (
    *(f"statestore.catalog.log.{name}" for name in ("version_chunks", "versions", "log_checkpoint")),
    "statestore.catalog.log.entry_packs",
    "statestore.catalog.upkeep.log_trimming",
    "statestore.catalog.checks.verify_log",
)
_LENGTHS = {"CHUNK_VERSIONS": LENGTH, "PACKED_VERSIONS": LENGTH, "KEPT_ENTRIES": LENGTH, "_FRAME_VERSIONS": 5}


@contextmanager
def short_chunks() -> Iterator[None]:
    """Make every run of a log 16 versions long, with a log checkpoint every 4."""
    with pytest.MonkeyPatch.context() as patch:
        for module in map(importlib.import_module, _MODULES):
            _patch(patch, module)
        patch.setattr("statestore.catalog.commits.publish_commit.LOG_CHECKPOINT_INTERVAL", 4)
        yield


def _patch(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    for name, value in _LENGTHS.items():
        if hasattr(module, name):
            patch.setattr(module, name, value)
