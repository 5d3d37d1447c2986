"""The report of snapshots whose times are not known: what the newest one shows, and why there is no more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.flink.fixtures import fixture, manifest

from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.charts import charts_of
from statestore.connector.report.figures import figures_now
from statestore.connector.report.history import read_rows
from statestore.connector.report.write import write_page
from statestore.formats.state_table import Query

RUN = "wide-rocksdb"


def test_a_copy_without_times_has_charts_of_its_newest_snapshot(tmp_path: Path) -> None:
    """The files of the copy are as old as the copy, in no order of the checkpoints."""
    folder = tmp_path / "job"
    shutil.copytree(fixture(RUN), folder)
    for age, each in enumerate(manifest(RUN)["snapshots"]):
        os.utime(folder / each["path"] / "_metadata", (1_700_000_000 - age, 1_700_000_000 - age))
    page = write_page(folder, tmp_path / "report.html", {}).read_text()
    assert "no history" not in page and "1970-01-01" not in page
    assert (
        all(each in page for each in ("Biggest keys", "Churn", "Key groups by version")) and ">committed<" not in page
    )


def test_figures_of_the_newest_snapshot() -> None:
    newest = manifest(RUN)["snapshots"][-1]
    found = open_warehouse(fixture(RUN) / newest["path"]).pin()
    for name in found.tables():
        figures = figures_now(found.open(name))
        read = sum(batch.num_rows for batch in read_rows(found.open(name), Query()))
        assert figures.rows == read and figures.versions is None
        assert {heading for heading, _, _ in charts_of(figures)} <= {"Biggest keys"}
