"""Partitions found in a broker's log directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import log_records, open_log

FIRST = f"{0:020d}.log"


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def test_partitions_are_directories_with_segments(tmp_path: Path) -> None:
    make(
        tmp_path,
        f"a-b-1/{FIRST}", f"a-b-0/{FIRST}", f"a-b-0/{7:020d}.log", f"a-b-10/{FIRST}", f"a-b-2/{0:020d}.index",
        f"a-b-3.0123abc-delete/{FIRST}", f"a-b-4.77-future/{FIRST}", f"a-b-05/{FIRST}", f"x/{FIRST}",
        f"a-b-0/{9:020d}.log.deleted", f"a-b-0/{9:020d}.log.cleaned", "meta.properties",
    )  # fmt: skip
    found = log_partitions(tmp_path)
    assert [(each.topic, each.partition) for each in found] == [("a-b", 0), ("a-b", 1), ("a-b", 10)]
    assert found[0].segments == (FIRST, f"{7:020d}.log")


def test_a_single_partition_may_be_given_and_be_empty(tmp_path: Path) -> None:
    make(tmp_path, f"t-4/{FIRST}")
    assert log_partitions(tmp_path / "t-4")[0].partition == 4
    (tmp_path / "u-2").mkdir()
    empty = open_log(log_partitions(tmp_path / "u-2")[0])
    assert (empty.findings.records, empty.findings.first_offset, list(empty.read())) == (0, None, [])


def test_one_of_several_topics_is_chosen(tmp_path: Path) -> None:
    make(tmp_path, f"a-0/{FIRST}", f"b-0/{FIRST}")
    assert [each.topic for each in log_partitions(tmp_path, "b")] == ["b"]
    with pytest.raises(InvalidInputError, match="topic=") as error:
        list(log_records(tmp_path))
    assert error.value.code == ErrorCode.MISSING_OPTION
    assert list(log_records(tmp_path, "a")) == []


def test_where_nothing_is_the_topics_are_named(tmp_path: Path) -> None:
    make(tmp_path, f"a-0/{FIRST}")
    with pytest.raises(NotFoundError, match="topics here: a"):
        log_partitions(tmp_path, "c")
    with pytest.raises(NotFoundError) as error:
        log_partitions(tmp_path / "none")
    assert error.value.code == ErrorCode.PATH_NOT_FOUND
