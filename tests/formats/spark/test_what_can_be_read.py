"""The statement which batches can be read: one in every door, of the files as they are, and true."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path

import statestore
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.notices import StateStoreWarning

HDFS, ZIPS, CHANGELOG = "spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-agg__rkcl"
FORMAT_2, FORMAT_2_ZIPS = "spark4.3.0-agg__rkv2", "spark4.0.1-agg__rk2"
BATCHES = range(6)
Damage = Callable[[Path], object]


def without(*names: str) -> Damage:
    """The removal of files of partition 0."""

    def damage(partition: Path) -> None:
        files = [file for name in names for file in partition.glob(name)]
        assert files, names
        for file in files:
            file.unlink()

    return damage


def cut(name: str) -> Damage:
    def damage(partition: Path) -> None:
        (file,) = partition.glob(name)
        file.write_bytes(file.read_bytes()[:-9])

    return damage


CASES: list[tuple[str, Damage, str]] = [
    (HDFS, without("6.delta"), "batches 0 to 4 can be read now"),
    (HDFS, without("6.delta", "2.delta"), "batches 0, 3 to 4 can be read now"),
    (HDFS, cut("6.delta"), "batches 0 to 4 can be read now"),
    (HDFS, without("1.delta", "4.snapshot"), "no batch can be read now"),
    (ZIPS, without("SSTs/*"), "no batch can be read now"),
    (ZIPS, without("6.zip"), "batches 0 to 4 can be read now"),
    (ZIPS, cut("6.zip"), "batches 0 to 4 can be read now"),
    (CHANGELOG, without("SSTs/*", "1.changelog"), "no batch can be read now"),
    (CHANGELOG, without("SSTs/*", "6.changelog"), "batches 0 to 4 can be read now"),
    (FORMAT_2, without("SSTs/*", "1_*.changelog"), "no batch can be read now"),
    (FORMAT_2_ZIPS, without("SSTs/*"), "no batch can be read now"),
    (FORMAT_2_ZIPS, cut("6_*.zip"), "batches 0 to 4 can be read now"),
]
IDS = [f"{name}-{number}" for number, (name, _, _) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "damage", "statement"), CASES, ids=IDS)
def test_every_door_says_the_same(name: str, damage: Damage, statement: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(name), tmp_path / "checkpoint"))
    damage(path / "state/0/0")
    table = statestore.inspect(path).table("state")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StateStoreWarning)
        readable = [number for number in BATCHES if can(table, number)]
    assert said(readable) == statement.replace(" and ", ", ")
    reads: list[Callable[[], Any]] = [
        lambda: table.scan().read_all(),
        lambda: table.get({"key": {"k": "no such key"}}, version=5),
        lambda: statestore.inspect(path).table("state").scan(version=5).read_all(),
    ]
    for read in reads:
        with pytest.raises((NotFoundError, CorruptError)) as raised:
            read()
        assert statement in str(raised.value).replace(" and ", ", ")
    snapshots = statestore.inspect(path).table("state$snapshots").scan().read_all().to_pylist()
    listed = [row["version"] for row in snapshots if row["readable"]]
    try:
        shown = " ".join(statestore.inspect(path).summary("state").problems)
    except NotFoundError as error:
        shown = str(error)
    assert (statement in shown.replace(" and ", ", ")) == (5 not in listed)
    # Only a read finds that bytes of changes are damaged.
    assert listed == ([*readable, 5] if "checkpoint/state/0/0/6.delta: " in str(raised.value) else readable)


def can(table: statestore.Table, number: int) -> bool:
    try:
        table.scan(version=number).read_all()
    except StateStoreError:
        return False
    return True


def said(readable: list[int]) -> str:
    """The statement in the words of a few cases."""
    if not readable:
        return "no batch can be read now"
    gap = next((n for n in range(1, len(readable)) if readable[n] != readable[n - 1] + 1), 0)
    ranges = [readable[:gap], readable[gap:]] if gap else [readable]
    texts = [f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges]
    return f"batches {', '.join(texts)} can be read now"


def test_the_error_of_a_batch_that_is_not_there_says_so(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(HDFS), tmp_path / "checkpoint"))
    with pytest.raises(NotFoundError, match="no state of batch 9; batches 0 to 5 can be read now"):
        statestore.inspect(path).table("state").scan(version=9)
