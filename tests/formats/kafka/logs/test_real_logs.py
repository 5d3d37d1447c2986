"""Segment files of real brokers give the records that real consumers read from them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.kafka.changelog_loops import changelog_loops
from support.kafka.log_files import as_json, json_rows, unpacked

from statestore.formats.kafka.changelogs.record_log import Isolation
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import ISOLATIONS, log_records, open_log

__all__ = ["changelog_loops"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    return {name: unpacked(name, folder) for name in ("orders", "bookings", "broker-logs")}


@pytest.mark.parametrize("name", ["orders", "bookings"])
@pytest.mark.usefixtures("changelog_loops")
def test_changelogs_of_applications(archives: dict[str, Path], name: str) -> None:
    seen = 0
    for partition in log_partitions(archives[name] / "log"):
        wanted = [
            row
            for row in json_rows(archives[name] / "changelog" / f"{partition.topic}.jsonl")
            if row["partition"] == partition.partition
        ]
        log = open_log(partition)
        assert [as_json(row) for records in log.read() for row in records.batch().to_pylist()] == wanted
        assert log.findings.records == len(wanted)
        assert log.findings.is_complete and log.findings.notes() == ()
        seen += len(wanted)
    files = (archives[name] / "changelog").glob("*.jsonl")
    assert seen == sum(len(json_rows(file)) for file in files) > 2000


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.usefixtures("changelog_loops")
def test_every_layout_of_a_broker(archives: dict[str, Path], isolation: Isolation) -> None:
    """Compressions, transactions of two producers, segments, log append time, compaction, an open transaction."""
    wanted: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in json_rows(archives["broker-logs"] / f"{isolation}.jsonl"):
        wanted[row.pop("topic")].append(row)
    for topic, rows in wanted.items():
        found = log_records(archives["broker-logs"] / "log", topic, isolation=isolation)
        assert [as_json(row) for batch in found for row in batch.to_pylist()] == rows, topic
    assert len(wanted) == 11


def test_what_a_compacted_log_and_an_open_transaction_cannot_tell(archives: dict[str, Path]) -> None:
    logs = {p.topic: open_log(p) for p in log_partitions(archives["broker-logs"] / "log") if p.partition == 0}
    compacted, unfinished = logs["compacted"].findings, logs["open"].findings
    assert compacted.records is not None
    assert compacted.missing_offsets == compacted.next_offset - compacted.records - compacted.control_records > 50
    assert not compacted.is_complete
    assert "79 offsets missing" in compacted.notes()[0]
    assert unfinished.unstable_records == 3 and unfinished.open_transactions[0].records == 2
    assert unfinished.is_complete  # each offset is there; the log is not at rest
    assert len(unfinished.notes()) == 2
