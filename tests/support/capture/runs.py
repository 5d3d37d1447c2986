"""Runs of a query beside captures that are killed and stopped, after which it is known what nobody could have read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from support.capture.followers import Follower
from support.capture.queries import FollowedQuery, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPPED = 5
"""Batches that a query runs while nobody captures: more than it keeps."""
LONGEST_S = 0.5
"""A capture is killed within this time after a batch was begun."""


@dataclass(frozen=True)
class Judged:
    """A run of ``batches`` of a query, with kills and stops of the capture beside it."""

    query: str
    layout: str
    batches: int
    kills: int
    stops: int
    seed: int = 1

    def __str__(self) -> str:
        return f"{self.query}-{self.layout}-{self.batches}".replace(" ", "_")


@dataclass(frozen=True)
class Ran:
    """The query that ran, where it was captured, and the batches that nobody could have read."""

    query: FollowedQuery
    warehouse: Path
    gaps: set[int]


def paced(spark: SparkSession, folder: Path, judged: Judged, checked: int = 20) -> Ran:
    """Run a query, each batch after the one before was captured, but for captures that are killed meanwhile and stopped
    for longer than batches are kept. Each ``checked``-th batch is compared with Spark's own reader.
    """
    chance = Random(judged.seed)
    query = FollowedQuery(spark, folder, judged.query, judged.layout, judged.seed)
    warehouse = folder / "warehouse"
    special = chance.sample(range(2, judged.batches - 1), judged.kills + judged.stops)
    kills, stops = {*special[: judged.kills]}, {*special[judged.kills :]}
    gaps: set[int] = set()

    def start() -> Follower:
        return Follower(query.checkpoint, warehouse, folder)

    with running(query) as streaming:

        def step() -> None:
            query.feed()
            streaming.processAllAvailable()

        step()
        capture = start()
        try:
            for number in range(1, judged.batches):
                if number in kills:
                    query.feed()
                    capture.pause(chance.random() * LONGEST_S)
                    capture.kill()
                    streaming.processAllAvailable()
                    capture = start()
                elif number in stops:
                    capture.await_batch(query.states, len(query.batches) - 1)
                    capture.stop()
                    last = len(query.batches) - 1
                    for _ in range(STOPPED):
                        step()
                    gaps |= {*range(last + 1, query.first_readable(last))}
                    capture = start()
                else:
                    step()
                capture.await_batch(query.states, len(query.batches) - 1)
                if number % checked == 1:
                    check_by_spark(query)
            capture.stop()
        finally:
            if capture.process.poll() is None:
                capture.kill()
    return Ran(query, warehouse, gaps)


def free(spark: SparkSession, folder: Path, judged: Judged) -> Ran:
    """Run a query as fast as it can, beside captures that are killed at any moment, and stopped until what they have
    seen is gone.

    Nobody knows which batches each of them could have read.
    """
    chance = Random(judged.seed)
    query = FollowedQuery(spark, folder, judged.query, judged.layout, judged.seed)
    warehouse = folder / "warehouse"
    with running(query) as streaming:
        query.feed()
        streaming.processAllAvailable()
        for _ in range(1, judged.batches):
            query.feed()
        capture = Follower(query.checkpoint, warehouse, folder)
        try:
            for number in range(judged.kills):
                first = len(query.batches)
                capture.await_batch(query.states, first - 1)
                capture.pause(chance.random() * LONGEST_S)
                capture.kill()
                if number < judged.stops:
                    while len(query.batches) < min(first + STOPPED, judged.batches):
                        assert not streaming.awaitTermination(1)
                capture = Follower(query.checkpoint, warehouse, folder)
            streaming.processAllAvailable()
            capture.await_batch(query.states, judged.batches - 1)
            capture.stop()
        finally:
            if capture.process.poll() is None:
                capture.kill()
    return Ran(query, warehouse, set())


def check_by_spark(query: FollowedQuery) -> None:
    """Check that the model of the newest batch is what Spark's own reader says."""
    batch = len(query.batches) - 1
    for state, rows in query.truth()[batch].items():
        found = query.read_by_spark(state, batch)
        assert found == rows, f"batch {batch}, {state}: Spark has {found - rows} more, the model {rows - found}"
