"""The report of snapshots whose times are not known, or of which there is only one."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from support.flink.fixtures import copied, fixture, manifest

from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.charts import charts_of
from statestore.connector.report.figures import figures_now
from statestore.connector.report.history import read_rows
from statestore.connector.report.write import write_page, write_report
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query

RUN = "wide-rocksdb"


def test_charts_of_a_copy_without_times_go_over_versions(tmp_path: Path) -> None:
    """The files of the copy are as old as the copy, in no order of the checkpoints."""
    folder = copied("rocksdb", tmp_path)
    for metadata in folder.rglob("_metadata"):
        os.utime(metadata, (1_700_000_000, 1_700_000_000))
    page = write_page(folder, tmp_path / "report.html", {}, store="kv-long.balance", key="0").read_text()
    assert "no history" not in page and "over versions; the colour" in page
    assert all(f"<h3>{each}" in page for each in ("Rows", "Churn", "Key groups by version", "Busiest keys", "Lifeline"))
    (specs,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    figures = json.loads(specs)
    assert '"temporal"' not in specs
    growth = figures["charts"]["c0-0"]["data"]["values"]
    assert [(row["version"], row["time"], row["keys"]) for row in growth] == [(n, None, 20) for n in (2, 3, 4, 5)]


def test_figures_of_the_newest_snapshot() -> None:
    newest = manifest(RUN)["snapshots"][-1]
    found = open_warehouse(fixture(RUN) / newest["path"]).pin()
    for name in found.tables():
        figures = figures_now(found.open(name))
        read = sum(batch.num_rows for batch in read_rows(found.open(name), Query()))
        assert figures.rows == read and figures.versions is None
        assert {heading for heading, _, _ in charts_of(figures)} <= {"Biggest keys"}


def test_a_state_that_cannot_be_read_is_said_beside_the_others(tmp_path: Path) -> None:
    newest = fixture("void-rocksdb") / manifest("void-rocksdb")["snapshots"][-1]["path"]
    page = write_report(newest, tmp_path / "report.html").read_text()
    assert "no figures: " in page and "a list of values without bytes" in page and "sets.numbers" in page
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*a list of values without bytes"):
        write_report(newest, tmp_path / "marks.html", store="sets.marks")
    assert not (tmp_path / "marks.html").exists()
