"""Fixtures of the tests of Flink's formats."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.flink.value_model import walking


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def each_way(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Decode values interpreted, and by the compiled loop."""
    with walking(request.param):
        yield request.param
