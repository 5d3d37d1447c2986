"""``python -m benchmarks`` runs, what it calls the truth is true, and the pages say what the last run found."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.paths import ROOT
from support.stores.versioned_model import Model

from benchmarks.__main__ import main
from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.loads.stream import COLUMNS, Shape, Stream
from benchmarks.measures import MEASURES, child, peers, short_writers, small_commits
from benchmarks.measures.small_writes import Written, stream_of, write
from benchmarks.measures.workbench import Workbench
from benchmarks.page.__main__ import BEGIN, END, KEPT, with_figures
from benchmarks.page.summary import GOALS, summary
from benchmarks.page.text import page
from benchmarks.results.figure import Figure, as_line, read_file, read_results
from benchmarks.results.other_files import figures_of_lines

FAR = 10**13  # milliseconds, after all changes
HOSTILE = Shape(keys=30, factor=12, commit_rows=40, late=0.3, deletes=0.2, late_by=0.5)


def colliding_stream() -> Stream:
    """A stream in which many changes of a key have the same time."""
    stream = Stream(HOSTILE, seed=5)
    stream.time -= stream.time % 200
    return stream


def model_of(stream: Stream) -> Model:
    model = Model()
    for number in range(HOSTILE.commits):
        for row in stream.commit(number).to_pylist():
            gone = row["_change_type"] == "delete"
            model.put(row["item"], None if gone else tuple(row[name] for name in COLUMNS), row["timestamp"])
        model.commit()
    return model


def test_the_oracle_answers_as_the_model_does() -> None:
    stream = colliding_stream()
    model = model_of(stream)
    for commits in range(1, HOSTILE.commits + 1):
        for moment in [None, *np.unique(stream.time)[::5].tolist()]:
            events = live_events(stream, moment, commits)
            found = {tuple(row.values()) for row in stream.rows(events).select(COLUMNS).to_pylist()}
            assert found == {row[1] for row in model.state_at(commits, moment or FAR)}, (commits, moment)


def test_merges_by_key_come_to_the_same_rows() -> None:
    """Peers get the last change of each key in a commit, and keep the later of two by time."""
    stream = colliding_stream()
    kept: dict[str, dict[str, object]] = {}
    for number in range(HOSTILE.commits):
        merged = stream.merged(number).to_pylist()
        assert len({row["item"] for row in merged}) == len(merged)
        for row in merged:
            if row["item"] not in kept or row["timestamp"] >= kept[row["item"]]["timestamp"]:
                kept[row["item"]] = row
        live = {row["item"]: row["price"] for row in kept.values() if not row["deleted"]}
        rows = stream.rows(live_events(stream, commits=number + 1))
        assert live == dict(zip(rows["item"].to_pylist(), rows["price"].to_pylist(), strict=True))


def test_the_load_is_what_it_says() -> None:
    shape = Shape(2_000, 10, 1_000, late=0.1)
    stream = Stream(shape, seed=1)
    lengths = {len(name) for name in stream.names.to_pylist()}
    assert (min(lengths), max(lengths)) == (14, 26)
    assert len(stream.names.unique()) == shape.keys
    counts = np.sort(np.bincount(stream.key, minlength=shape.keys))[::-1]
    assert counts[:20].sum() > 0.15 * shape.events  # one key in a hundred has a sixth of all changes
    assert (counts > 0).mean() > 0.95
    assert 0.02 < stream.deleted.mean() < 0.04
    behind = np.maximum.accumulate(stream.time) - stream.time
    assert 0.09 < (behind > 0).mean() < 0.11
    assert behind.max() <= 0.05 * shape.events * 10
    assert Stream(shape, seed=1).commit(3).equals(stream.commit(3))
    assert not Stream(shape, seed=2).commit(3).equals(stream.commit(3))


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_a_wrong_cell_is_found(column: str) -> None:
    stream = Stream(HOSTILE, seed=1)
    events = live_events(stream)
    right = stream.rows(events)
    check(stream, right.take(pa.array(np.arange(len(events))[::-1])), events, "the same in another order")
    cells = right[column].to_pylist()
    cells[3] = None if cells[3] is not None else "something"
    number = right.schema.get_field_index(column)
    wrong = right.set_column(number, column, pa.array(cells, right.schema.field(column).type))
    with pytest.raises(WrongAnswerError, match=rf"1 of \d+ rows are wrong in the column {column}"):
        check(stream, wrong, events, "asked")


def test_missing_double_and_unknown_rows_are_found() -> None:
    stream = Stream(HOSTILE, seed=1)
    events = live_events(stream)
    right = stream.rows(events)
    with pytest.raises(WrongAnswerError, match="rows were found"):
        check(stream, right.slice(1), events, "asked")
    double = pa.concat_tables([right.slice(0, right.num_rows - 1), right.slice(0, 1)])
    with pytest.raises(WrongAnswerError, match="wrong"):
        check(stream, double, events, "asked")
    other = right.set_column(0, "item", pa.array([f"other-{n}" for n in range(right.num_rows)]))
    with pytest.raises(WrongAnswerError, match="never written"):
        check(stream, other, events, "asked")


def in_this_process(verb: str, path: Path, kill_after: float | None = None) -> child.Ended:
    """Work of a child, without the time that its start takes; a kill is one before anything is done."""
    if kill_after is not None:
        return child.Ended(None, 0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        child.PROGRAMS[verb](path)
    return child.Ended(json.loads(said.getvalue().splitlines()[-1]), 1 << 20)


def written_here(path: Path, commits: int, seed: int) -> Written:
    return Written(path, stream_of(commits, seed), **write(path, commits, seed))


def short_writer_here(path: Path, bench: Workbench, number: int) -> dict[str, float]:
    return short_writers.write(path, bench.size.name, bench.seed, number)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "run", in_this_process)
    monkeypatch.setattr(child, "SCANS", 1)
    monkeypatch.setattr(small_commits, "write_apart", written_here)
    monkeypatch.setattr(short_writers, "write_apart", short_writer_here)
    monkeypatch.setattr(os, "fsync", os.fsync)  # `small_writes` replaces it in its process, and adds a callback
    monkeypatch.setattr(gc, "callbacks", [])


@pytest.mark.usefixtures("one_process")
def test_every_measure_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.jsonl"
    main(["--size", "tiny", "--runs", "1", "--peers", "DuckDB", "--folder", str(tmp_path), "--out", str(out)])
    printed = capsys.readouterr().out
    results = read_file(out)
    assert [name for name in MEASURES if f"\n{name}:\n" not in printed] == []
    assert {figure.measure for figure in results.figures} == set(MEASURES)
    assert [f for f in results.figures if not math.isfinite(f.value)] == []
    measured = {goal.title for goal in GOALS if goal.figures(results)}
    unmeasured = {goal.title for goal in GOALS} - measured
    assert unmeasured == {"disk, as delivered, compacted and vacuumed / Delta, by MERGE"}  # it was not asked for
    text = page(results)
    assert "{{" not in text
    assert summary(results) in text
    assert [path.name for path in tmp_path.iterdir()] == ["results.jsonl"]


@pytest.mark.slow
def test_measures_in_processes_of_their_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    monkeypatch.setattr(short_writers, "WRITERS", 2)
    measures = {"compaction", "small_commits", "short_writers"}
    main(["--size", "tiny", "--runs", "1", "--only", ",".join(measures), "--out", str(out)])
    assert {figure.measure for figure in read_file(out).figures} == measures


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "absence", lambda name: f"{name} is not measured: there is none.")
    out = tmp_path / "results.jsonl"
    main(["--size", "tiny", "--runs", "1", "--only", "peers", "--peers", "Lance", "--out", str(out)])
    assert read_file(out).absent == ["Lance is not measured: there is none."]


def test_unknown_measures_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "reads,nothing"])
    assert "but not nothing" in capsys.readouterr().err


def test_lines_of_other_benchmarks_are_figures() -> None:
    puts = {"measure": "puts", "ratio": 0.6, "goal": "at least 0.6", "state": "compacted"}
    lines = [json.dumps(puts), json.dumps(puts), json.dumps({"measure": "m", "ratio": 2, "goal": 1.5, "rows": 9})]
    noise = ["a line of text", json.dumps({"measure": "history", "keys": 5})]
    first, second, third = figures_of_lines("live.py", [*lines, *noise])
    assert (first.measure, first.name, first.value, first.goal, first.load) == (
        "live.py",
        "puts",
        0.6,
        None,
        "compacted",
    )
    assert first.details == {"goal": "at least 0.6", "state": "compacted"}
    assert (second.name, second.load) == ("puts", "compacted, no. 2")
    assert (third.value, third.met, third.details) == (2, False, {"goal": 1.5, "rows": 9})


def test_goals_are_reached_from_below_or_above() -> None:
    assert Figure("m", "n", 1.4, 1.4).met
    assert not Figure("m", "n", 1.5, 1.4).met
    assert Figure("m", "n", 9.0, 8.0, at_least=True).met
    assert not Figure("m", "n", 7.0, 8.0, at_least=True).met
    assert Figure("m", "n", 7.0).met is None


def test_the_last_of_figures_with_one_name_counts() -> None:
    lines = [as_line(Figure("m", "n", value, load="10x")) for value in (1.0, 2.0)]
    other = as_line(Figure("m", "n", 3.0, load="100x"))
    assert [figure.value for figure in read_results([*lines, other]).figures] == [2.0, 3.0]


def test_the_page_is_made_of_the_last_run() -> None:
    page_text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert page_text == page(read_file(KEPT)), "run python -m benchmarks.page"


def test_the_readme_has_the_figures_of_the_last_run() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert BEGIN in readme and END in readme
    assert readme == with_figures(readme, read_file(KEPT)), "run python -m benchmarks.page"
