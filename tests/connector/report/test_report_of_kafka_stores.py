"""The report on a Kafka Streams application: charts of stores with a history, the others listed with the reason."""

from __future__ import annotations

import html
import shutil
from pathlib import Path

import pytest
from support.kafka.unpacked import unpack

import statestore
from statestore.connector.report.write import write_page


@pytest.mark.slow
def test_stores_without_a_history_do_not_stop_the_report(tmp_path: Path) -> None:
    folder = unpack("bookings", tmp_path) / "state" / "bookings"
    rooms = next(folder.glob("*/rocksdb/rooms"))
    shutil.copytree(rooms, rooms.with_name("opened"), ignore=shutil.ignore_patterns("*.sst"))
    page = write_page(folder, tmp_path / "report.html", {}).read_text()
    assert "no history: store rooms of" in page
    assert "no figures: " in page and "store 'opened' of task" in html.unescape(page)
    assert 'id="s' in page
    assert "tariffs" in page
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        write_page(folder, tmp_path / "one.html", {}, store="rooms")
