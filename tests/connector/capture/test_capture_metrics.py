"""Figures of a capture that goes on, as a client of Prometheus reads them."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.command_line import run
from support.stores.captured import BAG, BAG_COLUMNS, Cells, capture, new_store

import statestore
from statestore.catalog.log.source_versions import SourceVersion
from statestore.connector.capture import metrics
from statestore.connector.capture.following import CaptureEvent
from statestore.connector.capture.looks import Looks, SourceAt
from statestore.connector.capture.metrics import CaptureMetrics, served

SECOND = 1_000_000
CONTENTS: list[Cells] = [{("a", 0): (1,), ("b", 0): (1,)}, {("a", 0): (1,)}, {("a", 0): (1,), ("c", 0): (2,)}]
TOPIC = "app-stock-changelog"


def looks_at_a_store(folder: Path) -> Looks:
    """Versions 10 to 30, at as many seconds, with 25 to 29 missing."""
    store = new_store(folder, "events", BAG, BAG_COLUMNS)
    old: Cells = {}
    for place, content in enumerate(CONTENTS):
        number = 10 * (place + 1)
        missing = (25, 29) if number == 30 else None
        capture(store, SourceVersion(number, number * SECOND, (number - 4) * SECOND, None, missing), old, content,
                number - 10 or None)  # fmt: skip
        old = content
    return Looks(statestore.connect(folder), SourceAt("nowhere", {}), stores={"events of the job": store})


def figures(told: CaptureMetrics) -> dict[str, float]:
    """The figures over HTTP, without the prefix of their names; each has the labels of its state, or none."""
    with served(told, 0) as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels in ({}, {"state": "events of the job", "store": "events"})
            found[sample.name.removeprefix("statestore_capture_")] = sample.value
    return found


def test_figures_are_those_of_the_store_and_of_the_events(tmp_path: Path) -> None:
    looks = looks_at_a_store(tmp_path)
    told = CaptureMetrics(now=lambda: 100 * SECOND)
    assert figures(told) == {"waiting": 0}
    told.took(CaptureEvent("waiting", reason="no route", seconds=30))
    assert figures(told) == {"waiting": 1}
    told.looked(looks)
    size = statestore.inspect(tmp_path).summary("events").bytes
    known = {
        "lag_versions": 0,
        "lag_seconds": 70,
        "gaps_total": 1,
        "missing_versions_total": 5,
        "captured_versions_total": 0,
        "rows": 2,
        "bytes": size,
        "watermark_age_seconds": 74,
        "oldest_key_age_seconds": 90,
        "waiting": 0,
    }
    assert figures(told) == known
    about: dict[str, Any] = {"state": "events of the job", "store": "events", "version": 50, "time": 50_000}
    told.took(CaptureEvent("gap", missing=(31, 49), **about))
    told.took(CaptureEvent("captured", missing=(31, 49), watermark=46_000, behind=3, commit=4, rows=1, **about))
    assert figures(told) == known | {
        "lag_versions": 3,
        "lag_seconds": 50,
        "gaps_total": 2,
        "missing_versions_total": 5 + 19,
        "captured_versions_total": 1,
        "watermark_age_seconds": 54,
    }
    told.looked(looks)
    assert figures(told) == known | {"captured_versions_total": 1}
    looks.close()


def test_a_capture_that_follows_tells_its_looks(tmp_path: Path) -> None:
    """The last event of a look is followed by its end, before the wait for the next one."""
    folder = tmp_path / "topic"
    folder.mkdir()
    row = {"partition": 0, "offset": 0, "timestamp": 1_714_550_400_000, "key": b"a", "value": bytes(8)}
    pq.write_table(pa.Table.from_pylist([row]), folder / f"{TOPIC}.parquet")
    following = statestore.capture(
        folder, tmp_path / "w", follow=True, every=1, kind="key-value", key_serde="string", value_serde="long"
    )
    looked: list[list[str]] = []
    with following:

        def end(looks: Looks) -> None:
            looked.append(list(looks.stores))
            following.stop()

        following.looked = end
        assert [event.kind for event in following] == ["captured"]
    assert len(looked) == 1 and len(looked[0]) == 1


def test_only_this_machine_is_answered(tmp_path: Path) -> None:
    with served(CaptureMetrics(), 0) as port, socket.socket() as taken:
        assert taken.connect_ex(("127.0.0.1", port)) == 0
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0
    assert metrics.LOOPBACK == "127.0.0.1"


def test_ports_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(statestore.StateStoreError, match=f"INVALID_OPTION.*{port}"), served(CaptureMetrics(), port):
            raise AssertionError("served")
    code, _, err = run("capture", tmp_path, tmp_path / "w", "--metrics-port", "0")
    assert code == 2 and "--metrics-port goes with --follow" in err


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        pytest.raises(statestore.NotFoundError, match=r"METRICS_NOT_INSTALLED.*statestore\[capture\]"),
        served(CaptureMetrics(), 0),
    ):
        raise AssertionError("served")
