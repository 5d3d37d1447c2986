"""State of running queries that keep few batches is captured beside them, by processes that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.capture.judged import check_run
from support.capture.runs import Judged, free, paced
from support.parameters import mostly_slow
from support.spark_release import since, skip_unknown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = since(4, 1, "the engine's own reader of each batch")
PACED = (
    Judged("windows", "deltas", batches=5, kills=1, stops=1),
    Judged("join", "deltas", batches=40, kills=8, stops=2),
    Judged("windows", "changelogs", batches=40, kills=8, stops=2),
    Judged("join", "changelogs", batches=40, kills=8, stops=2),
    Judged("variables", "changelogs", batches=40, kills=8, stops=2),
    Judged("windows", "zips", batches=30, kills=5, stops=1),
    Judged("join", "zips", batches=30, kills=5, stops=1),
    Judged("variables", "zips", batches=30, kills=5, stops=1),
    Judged("variables", "changelogs of format 2 with checksums", batches=30, kills=5, stops=1),
    Judged("windows", "changelogs", batches=200, kills=20, stops=2),
)


@pytest.mark.parametrize("judged", mostly_slow(PACED, quick=PACED[:1]), ids=str)
def test_captured_batches_are_the_state_that_was(spark: SparkSession, tmp_path: Path, judged: Judged) -> None:
    skip_unknown(judged.layout)
    ran = paced(spark, tmp_path, judged)
    check_run(ran.query, ran.warehouse, ran.gaps)
    assert len(ran.gaps) >= judged.stops * 2


@pytest.mark.slow
@pytest.mark.parametrize(("query", "layout"), [("windows", "changelogs"), ("join", "deltas"), ("variables", "zips")])
def test_captures_keep_up_with_a_query_that_does_not_wait(
    spark: SparkSession, tmp_path: Path, query: str, layout: str
) -> None:
    ran = free(spark, tmp_path, Judged(query, layout, batches=60, kills=5, stops=2))
    check_run(ran.query, ran.warehouse, None)
