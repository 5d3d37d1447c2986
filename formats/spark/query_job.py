"""The query of a checkpoint as a job: its sources, from the log of offsets, and its stateful operators."""

from __future__ import annotations

import re

from statestore.formats.jobs import Job, JobInput
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint

_MOST = 200  # characters of a position
_NOTHING = "-"
_NUMBERED = re.compile(r"(\w+):([\[{\"\d-].*)")  # format 2 of the log; a position is JSON, which begins otherwise


def query_job(checkpoint: Checkpoint) -> Job:
    """Return the query as of the checkpoint's batch."""
    unrecorded = "Which operator feeds which is not recorded in the checkpoint; their numbers count from the sink."
    name = f"query {checkpoint.query_id}" if checkpoint.query_id else "query"
    offsets = checkpoint.batch.offsets
    inputs = None if offsets is None else tuple(_source(number, line) for number, line in enumerate(offsets))
    return Job(name, unrecorded, inputs=inputs)


def operator_words(kind: str, number: int) -> str:
    """Return a stateful operator as users see it."""
    return f"{kind} [{number}]"


def _source(number: int, line: str) -> JobInput:
    numbered = _NUMBERED.fullmatch(line)
    name, position = numbered.groups() if numbered else (str(number), line)
    if position == _NOTHING:
        return JobInput(f"source {name}", "nothing read yet")
    return JobInput(f"source {name}", f"read up to {position if len(position) <= _MOST else position[:_MOST] + '…'}")
