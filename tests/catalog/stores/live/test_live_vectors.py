"""Kafka's cases of key-value, window, join-window and session stores, each against a live store with Kafka's serdes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores.kafka_vectors import Case, cases, run_case
from support.stores.live_adapters import ADAPTERS

CASES = [case for name in ("keyvalue", "window", "session", "engine-stores") for case in cases(name)]
IDS = [f"{case['store']['type']}-{case['id']}" for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case(case: Case, tmp_path: Path) -> None:
    adapter = ADAPTERS[case["store"]["type"]](tmp_path, case["store"])
    assert run_case(case, adapter) == sum("expect" in op for op in case["ops"]) > 0
    adapter.store.close()
