"""The ways in which a scan can read: piece by piece, many small pieces as one by Arrow, or by compiled loops."""

from __future__ import annotations

import pytest

from statestore.catalog.reads import scan

WAYS = ("pieces", "arrow", "compiled")


def read_by(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let all scans of a test read in this way; batches of a few rows are passed as views."""
    monkeypatch.setattr(scan, "copies_pay", lambda rows: way == "compiled")
    monkeypatch.setattr(scan, "GATHERED_ROWS", 0 if way == "pieces" else 1 << 40)
    monkeypatch.setattr(scan, "VIEWED_BYTES", 1 << 10)
    monkeypatch.setattr(scan, "BATCH_BYTES", 1 << 12)
