"""Reads of small tables by Spark's tasks; otherwise the driver reads them while it plans the query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from statestore.connector.spark.planner import read_plan


@contextmanager
def reads_by_tasks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_plan, "MOST_READ", -1)
        patch.setattr(read_plan, "MOST_SUMMED", -1)
        yield
