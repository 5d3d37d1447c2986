"""An edit of a job's state is killed at any of many moments: its source is as it was, its target absent or whole."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest
from faults.children import Ended, children
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.engines.toy_edits import tree
from support.flink.fixtures import fixture, manifest
from support.object_stores.clients import client
from support.object_stores.s3_server import BUCKET, S3Server

import statestore
from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.errors import InvalidInputError, NotFoundError

TRIALS = "faults.trials.job_edit_trials"
MOMENTS = [2, pytest.param(100, marks=pytest.mark.slow)]
CHECKPOINT = ("unaligned", "chk-")
OF_FLINK = 'DELETE FROM "kv-long.history"'
OF_SPARK = "DELETE FROM state WHERE key.k = 'key-06-éé'"
Rows = dict[str, list[str]]


def run(function: str, **arguments: Any) -> Ended:
    return children().run(f"{TRIALS}:{function}", **arguments)


def rows(at: str | Path) -> Rows:
    warehouse = statestore.inspect(at)
    return {name: sorted(map(repr, warehouse.table(name).scan().read_all().to_pylist())) for name in warehouse.tables()}


def moments(total: int, wanted: int) -> list[int]:
    """Numbers from 1 to the total, evenly spread, the last ones among them."""
    return sorted({total - total * number // wanted for number in range(min(wanted, total))})


@pytest.mark.parametrize("wanted", MOMENTS)
def test_a_checkpoint_of_flink_on_a_disk(tmp_path: Path, wanted: int) -> None:
    run_name, form = CHECKPOINT
    place = next(str(each["path"]) for each in manifest(run_name)["snapshots"] if form in each["path"])
    job = Path(place).parent
    shutil.copytree(fixture(run_name) / job, tmp_path / job)
    before, target = tree(tmp_path / job), tmp_path / "target"
    edit = partial(run, "on_disk", root=str(tmp_path), source=place, text=OF_FLINK)
    counted = edit(way="never", at=1)
    assert counted.bad is None, counted.bad
    expected = rows(target)
    assert expected["kv-long.history"] == []
    shutil.rmtree(target)
    for at in moments(counted.value, wanted):
        ended = edit(way="kill", at=at)
        assert ended.signal is not None, (at, ended)
        assert tree(tmp_path / job) == before, at
        if target.exists():
            assert (target / "edit.json").exists() and rows(target) == expected, at
            shutil.rmtree(target)
    again = edit(way="never", at=1)
    assert again.bad is None and rows(target) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([job.name, "target"])


@pytest.mark.parametrize("wanted", MOMENTS)
def test_a_checkpoint_of_spark_in_an_object_store(s3_server: S3Server, wanted: int) -> None:
    """The next edit to the same target says what there is; once it is removed, the edit succeeds."""
    bucket, prefix = s3_server.folder / BUCKET, f"killed-{wanted}"
    checkpoint = checkpoint_path("spark4.3.0-agg__hdfs")
    for path in [path for path in checkpoint.rglob("*") if path.is_file()]:
        key = f"{prefix}/source/{path.relative_to(checkpoint).as_posix()}"
        obstore.put(client(s3_server), key, path.read_bytes())
    source, uri = (s3_server.warehouse(f"{prefix}/{name}") for name in ("source", "target"))
    before, target = tree(bucket / prefix / "source"), bucket / prefix / "target"
    counted = run("in_store", source=source, target=uri, at=0, text=OF_SPARK)
    assert counted.bad is None, counted.bad
    expected, whole = rows(uri), files(target)
    shutil.rmtree(target)
    newest = max(int(name.removeprefix("offsets/")) for name in whole if name.startswith("offsets/"))
    seen = set()
    for at in moments(counted.value, wanted):
        ended = run("in_store", source=source, target=uri, at=at, text=OF_SPARK)
        assert ended.signal is not None, (at, ended)
        assert tree(bucket / prefix / "source") == before, at
        found = files(target) if target.exists() else {}
        if {f"offsets/{newest}", f"offsets/{newest - 1}"} <= found.keys():
            assert whole.keys() <= found.keys(), "from both a query goes on, so all must be there"
        seen.add(check_what_is_left(uri, found, expected))
        if target.exists():
            shutil.rmtree(target)
    assert "unfinished" in seen and ("whole" in seen or wanted < 100)
    again = run("in_store", source=source, target=uri, at=0, text=OF_SPARK)
    assert again.bad is None and rows(uri) == expected and files(target).keys() == whole.keys()


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_what_is_left(uri: str, found: dict[str, bytes], expected: Rows) -> str:
    if not found:
        return "absent"
    if UNFINISHED_FILE not in found:
        assert "edit.json" in found and rows(uri) == expected
        return "whole"
    with pytest.raises((NotFoundError, InvalidInputError), match="NOTHING_HERE"):
        statestore.inspect(uri)
    with pytest.raises(InvalidInputError, match=r"was begun by process \d+ .* remove all objects below"):
        statestore.edit(checkpoint_path("spark4.3.0-agg__hdfs"), uri)
    return "unfinished"
