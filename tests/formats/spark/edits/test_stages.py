"""Logs of a checkpoint appear in an order in which no query goes on from a part, under Hadoop's names of the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path

from statestore.formats.errors import InvalidInputError
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.edits.copied_files import metadata_paths, moved_metadata, stages

VARIABLES = "spark4.3.0-twsttl__rkcl"


def logs(folder: Path, offsets: list[int], commits: list[int]) -> Path:
    for log, numbers in (("offsets", offsets), ("commits", commits)):
        (folder / log).mkdir()
        for number in numbers:
            (folder / log / str(number)).touch()
    return folder


@pytest.mark.parametrize(
    ("offsets", "commits", "batch", "last"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], 3, [["offsets/3"], ["offsets/0", "offsets/1"], ["offsets/2"]]),
        ([8, 9, 10, 11], [9, 10], 10, [["offsets/11"], ["offsets/8", "offsets/9"], ["offsets/10"]]),
        ([4, 5], [5], 5, [["offsets/5"], ["offsets/4"]]),
        ([0], [0], 0, [["offsets/0"]]),
        ([0], [0], 1, [["offsets/1"], ["offsets/0"]]),
    ],
)
def test_the_newest_offsets_and_those_before_frame_the_others(
    tmp_path: Path, offsets: list[int], commits: list[int], batch: int, last: list[list[str]]
) -> None:
    root = folder_at(parse_location(str(logs(tmp_path, offsets, commits))))
    first, *others = stages(root, batch)
    assert set(first) == {"metadata", *(f"commits/{number}" for number in {*commits, batch})}
    assert others == last


@pytest.mark.parametrize(
    ("target", "written"),
    [
        ("s3://bucket/mended?region=eu-west-1", "s3a://bucket/mended"),
        ("s3a://key:secret@bucket/mended", "s3a://bucket/mended"),
        ("gcs://bucket/mended", "gs://bucket/mended"),
        ("abfss://c@a.dfs.core.windows.net/mended", "abfss://c@a.dfs.core.windows.net/mended"),
        ("/data/mended", "/data/mended"),
    ],
)
def test_metadata_names_the_target_as_hadoop_does(target: str, written: str) -> None:
    root = folder_at(parse_location(str(checkpoint_path(VARIABLES))))
    (path,) = metadata_paths(root)
    document = json.loads(moved_metadata(root, path, target).partition(b"\n")[2])
    paths = [each for store in document["stateStoreInfo"] for each in store["stateSchemaFilePaths"]]
    assert paths and {each.partition("/state/")[0].removeprefix("file:") for each in paths} == {written}


def test_a_container_without_its_account_is_refused() -> None:
    root = folder_at(parse_location(str(checkpoint_path(VARIABLES))))
    with pytest.raises(InvalidInputError, match=r"name the target as abfss://container@account"):
        moved_metadata(root, metadata_paths(root)[0], "az://container/mended")
