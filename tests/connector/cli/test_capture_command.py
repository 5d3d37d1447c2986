"""The command that captures: what it prints, what it writes, how it is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from typer.testing import CliRunner

import statestore
from statestore.connector.cli.main import app

AGGREGATE = "spark4.3.0-agg__hdfs"
runner = CliRunner()


def said(*arguments: object, code: int = 0) -> str:
    """Run the command; return what it printed and said, or its error."""
    found = runner.invoke(app, [str(each) for each in arguments])
    assert found.exit_code == code, found.output
    return f"{found.output}{found.exception or ''}"


def without_batches(name: str, folder: Path, kept: range) -> Path:
    """Return a copy of a checkpoint of which only these batches are left, as a query leaves it that keeps few."""
    copy = folder / "checkpoint"
    shutil.copytree(checkpoint_path(name), copy)
    for log in ("offsets", "commits"):
        for each in (copy / log).iterdir():
            number = each.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) not in kept:
                each.unlink()
    return copy


def test_a_repeated_capture_captures_nothing_twice(tmp_path: Path) -> None:
    path = checkpoint_path(AGGREGATE)
    batches = [int(each["version"]) for each in statestore.inspect(path).table("state").versions().to_pylist()]
    first = said("capture", path, tmp_path / "w")
    assert f"{len(batches)} versions, {batches[0]} to {batches[-1]}, in store state" in first
    assert f"nothing new, version {batches[-1]} is the newest" in said("capture", path, tmp_path / "w")


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    path = checkpoint_path(AGGREGATE)
    found = [json.loads(line) for line in said("capture", path, tmp_path / "w", "--json").splitlines()]
    known = statestore.inspect(path).table("state").versions().to_pylist()
    assert [each["version"] for each in found] == [row["version"] for row in known]
    assert [each["time"] for each in found] == [row["timestamp"].timestamp() * 1000 for row in known]
    assert {(each["kind"], each["state"], each["store"], each["missing"]) for each in found} == {
        ("captured", "state", "state", None)
    }
    assert [each["behind"] for each in found] == list(range(len(found)))[::-1]
    assert said("capture", path, tmp_path / "w", "--json") == ""


def test_an_estimate_writes_nothing(tmp_path: Path) -> None:
    path = checkpoint_path(AGGREGATE)
    text = said("capture", path, tmp_path / "w", "--dry-run")
    assert "versions to capture" in text and "a day" in text and "nothing was written" in text
    assert not (tmp_path / "w").exists()
    found = json.loads(said("capture", path, tmp_path / "w", "--dry-run", "--json"))
    newest = statestore.inspect(path).table("state").scan().read_all().num_rows
    assert found["waiting"] > 1 and 0 < found["rows"] <= newest and found["day_bytes"] > found["version_bytes"] > 0


@pytest.mark.filterwarnings("ignore")
def test_batches_that_nobody_could_read_are_a_gap(tmp_path: Path) -> None:
    """The query purged what came before the second look; the third batch is bridged, and reads inside say so."""
    path = checkpoint_path(AGGREGATE)
    batches = [int(each["version"]) for each in statestore.inspect(path).table("state").versions().to_pylist()]
    early = without_batches(AGGREGATE, tmp_path / "early", range(batches[1] + 1))
    said("capture", early, tmp_path / "w")
    late = without_batches(AGGREGATE, tmp_path / "late", range(batches[-1], batches[-1] + 1))
    text = said("capture", late, tmp_path / "w")
    assert f"{batches[2]} to {batches[-2]} missing" in text or f"{batches[2]} missing" in text
    row = statestore.inspect(tmp_path / "w").table("state").versions().to_pylist()[-1]
    assert (row["batch"], row["missing_from"], row["missing_to"]) == (batches[-1], batches[2], batches[-2])
    whole = statestore.inspect(path).table("state")
    kept = statestore.inspect(tmp_path / "w").table("state")
    for version, commit in ((batches[1], row["version"] - 1), (batches[-1], row["version"])):
        want = whole.scan(version=version, columns=["key", "value"]).read_all()
        found = kept.scan(version=commit, columns=["key", "value"]).read_all()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, want.to_pylist()))


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    path = checkpoint_path(AGGREGATE)
    assert "TABLE_NOT_FOUND" in said("capture", path, tmp_path / "w", "--state", "nothing", code=1)
    statestore.connect(tmp_path / "own").create_store("state", key={"k": "string"}, value={"n": "bigint"}).close()
    assert "CAPTURE_CONFLICT" in said("capture", path, tmp_path / "own", code=1)
    assert "CAPTURE_UNSUPPORTED" in said("capture", tmp_path / "own", tmp_path / "w", code=1)
    assert "PATH_NOT_FOUND" in said("capture", tmp_path / "absent", tmp_path / "w", code=1)
    assert "INVALID_DURATION" in said("capture", path, tmp_path / "w", "--every", "soon", code=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_capture_that_follows(number: signal.Signals, tmp_path: Path) -> None:
    """It ends after what it has captured, with status 0, and another capture has nothing left to do."""
    path = checkpoint_path(AGGREGATE)
    newest = int(statestore.inspect(path).table("state").versions().to_pylist()[-1]["version"])
    begun = [sys.executable, "-m", "statestore", "capture", str(path), str(tmp_path / "w")]
    command = [*begun, "--follow", "--every", "1h", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if json.loads(line)["version"] == newest:
                process.send_signal(number)
        assert process.wait() == 0
        assert "stopped" in process.stderr.read()
    assert "nothing new" in said("capture", path, tmp_path / "w")


def test_a_version_whose_files_are_missing_is_an_error(tmp_path: Path) -> None:
    """It is not taken for a query that has no version yet."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(checkpoint_path(AGGREGATE), copy)
    for each in (copy / "state" / "0").glob("*/*"):
        if each.suffix in (".delta", ".snapshot"):
            each.unlink()
    assert "SPARK_STATE_NOT_FOUND" in said("capture", copy, tmp_path / "w", code=1)
