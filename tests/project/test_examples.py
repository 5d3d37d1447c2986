"""The scripts of examples/ work: their results equal those that DuckDB computes from the raw data. So do notebooks."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.paths import ROOT

import statestore
from statestore.connector.demo.data import load

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))

RUN_NOTEBOOK = """
import sys, nbformat
from nbclient import NotebookClient
path, copy = sys.argv[1:]
notebook = nbformat.read(path, as_version=4)
NotebookClient(notebook, timeout=120, resources={"metadata": {"path": path.rpartition("/")[0]}}).execute()
nbformat.write(notebook, copy)
"""


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


@pytest.mark.slow
def test_incidents_are_the_islands_between_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = example("delay_incidents")["main"](tmp_path)
    flights = load().flights  # noqa: F841  DuckDB finds it by name
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    truth = connection.sql("""
        WITH late AS (SELECT origin, departed FROM flights WHERE dep_delay >= 60),
        marked AS (SELECT *, coalesce(departed - lag(departed) OVER w > INTERVAL 30 MINUTE, true) AS first FROM late
                   WINDOW w AS (PARTITION BY origin ORDER BY departed)),
        islands AS (SELECT *, sum(first::int) OVER (PARTITION BY origin ORDER BY departed, first DESC) AS island
                    FROM marked)
        SELECT origin, min(departed) AS session_start, max(departed) AS session_end, count(*) AS flights
        FROM islands GROUP BY origin, island
    """)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, truth.to_arrow_table().to_pylist()))
    said = capsys.readouterr().out
    assert "EWR from 2013-03-08 18:45 UTC: 110 flights" in said
    assert re.search(r"version \d+: 76 flights", said)  # a compaction in the background takes a version of its own


@pytest.mark.slow
def test_the_stream_ends_in_the_batch_result(tmp_path: Path) -> None:
    """Run in a process of its own, because the script makes and stops its Spark session."""
    script = ROOT / "examples" / "airport_delays_stream.py"
    ended = subprocess.run([sys.executable, str(script), str(tmp_path / "run")], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "version 12: 109,416 flights, 12.11 minutes late" in ended.stdout
    assert "LGA" in ended.stdout.rpartition("Airports whose mean changed most")[2]
    flights = load().flights  # noqa: F841
    truth = duckdb.sql("SELECT origin, count(*), round(avg(dep_delay), 6) FROM flights GROUP BY origin ORDER BY origin")
    found = statestore.sql(str(tmp_path / "run" / "warehouse"), "SELECT * FROM delays ORDER BY origin")
    rows = [(row["origin"], row["flights"], round(row["mean_delay"], 6)) for row in found.to_pylist()]
    assert truth is not None and rows == truth.fetchall()


def test_features_of_their_time_do_not_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors = example("point_in_time_features")["main"](tmp_path)
    said = capsys.readouterr().out
    assert errors["as of two hours before"] + 1 < errors["as of just after"]
    in_training = [float(line.partition(": ")[2].partition(" ")[0]) for line in said.splitlines()]
    assert in_training[1] + 1 < in_training[0]  # what knows the future looks better, until it is used


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_in_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel runs the cells in the folder of the notebook; each has the outputs again that a reader sees in it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    copy = tmp_path / "run.ipynb"
    command = [sys.executable, "-c", RUN_NOTEBOOK, str(path), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert texts(copy) == texts(path)
    assert path.stat().st_size < 20_000


def texts(notebook: Path) -> list[list[str]]:
    """Return the texts that each cell of code shows."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    shown = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    return [["".join(each.get("text") or each["data"]["text/plain"]) for each in outputs] for outputs in shown]
