"""Fixtures of tests that run against a real broker: the programs in Java, and the broker, once a module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka.running.broker import Broker, running_broker
from support.kafka.running.java_process import PROJECT
from support.kafka.running.java_project import class_path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the programs."""
    return class_path(PROJECT, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def broker(programs: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker without topics."""
    with running_broker(programs, tmp_path_factory.mktemp("broker")) as broker:
        yield broker
