"""Kafka's cases of key-value, window, join-window and session stores, each against a live store with Kafka's serdes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.parameters import named
from support.stores.kafka_vectors import cases, run_case
from support.stores.live_adapters import ADAPTERS


@pytest.mark.parametrize("name", ["keyvalue", "window", "session", "engine-stores"])
def test_cases(name: str, tmp_path: Path) -> None:
    for number, case in enumerate(cases(name)):
        with named(case["id"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            adapter = ADAPTERS[case["store"]["type"]](folder, case["store"])
            assert run_case(case, adapter) == sum("expect" in op for op in case["ops"]) > 0
            adapter.store.close()
