"""A fixture for tests of code that has a compiled form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statestore.formats.bytes import byte_columns
from statestore.formats.spark.checkpoint import crc_files
from statestore.formats.spark.providers import compression


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def compiled_or_not(request: Any) -> Iterator[None]:
    """A module's tests once with numpy and once with the compiled loops that take its place when they are loaded."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (byte_columns, compression, crc_files):
            patch.setattr(module, "is_loaded", lambda: request.param == "compiled")
        yield
