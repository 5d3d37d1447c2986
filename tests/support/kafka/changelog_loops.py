"""A fixture for tests of changelogs: once in plain Python and numpy, once with the compiled loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statestore.formats.bytes import byte_columns, hash_passes, newest_of_keys
from statestore.formats.kafka.logs import record_batches


@pytest.fixture(params=["plain", "compiled"])
def changelog_loops(request: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (byte_columns, hash_passes, newest_of_keys, record_batches):
            patch.setattr(module, "is_loaded", lambda: request.param == "compiled")
        yield
