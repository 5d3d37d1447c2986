"""Real jobs of Flink, run anew: they leave the snapshots that were asked for, each with the truth about it.

They run with the newest release. State that older ones have written lies in ``tests/data/flink``.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.flink.running.java_project import class_path
from support.flink.running.job import Job, Run, run_job
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.state_at import ElementsAt, KeyedAt

pytestmark = pytest.mark.slow

HEAP_SNAPPY = (("backend", "hashmap"), ("compress", "true"))
JOBS = (
    Job("Ledger", "emit:150,chk,emit:40,chk,restart:parallelism=3,emit:60,chk,canonical,native"),
    Job(
        "OperatorStates",
        "emit:60,chk,restart:parallelism=3,emit:20,canonical",
        (("backend", "hashmap"), ("compress", "true")),
    ),
    Job("AvroStates", "emit:40,chk,canonical"),
    Job("Windows", "emit:240,chk", (("backend", "hashmap"),)),
    Job(
        "Ledger",
        "emit:60,chk,emit:40,wait:1500,chk,restart:claim=CLAIM;parallelism=3,emit:30,chk,canonical",
        (("changelog", "1s"),),
    ),
    Job("Windows", "emit:100,chk,emit:60,chk", (("changelog", "never"), ("backend", "hashmap"))),
    Job("GenericKeys", "emit:60,chk", (("changelog", "never"), ("backend", "hashmap"))),
    # Most records of each checkpoint are in flight, and were not added to the state yet.
    Job(
        "InFlight",
        "emit:200,chk,emit:100,wait:1200,chk,emit:60,chk",
        (("changelog", "500ms"), ("extra", "execution.checkpointing.unaligned.enabled=true")),
    ),
    Job("AsyncLedger", "emit:60,chk,emit:40,chk,native", (("backend", "forst"),)),
    Job(
        "RandomStates",
        "emit:60,chk,emit:40,restart:parallelism=3,emit:30,chk,canonical,native",
        (("seed", "5"), ("maxparallelism", "32768"), ("compress", "true")),
    ),
)
KINDS = {"chk": "checkpoint", "canonical": "savepoint-canonical", "native": "savepoint-native"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path("async", tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module", params=JOBS, ids=lambda job: str(job.name))
def job(request: pytest.FixtureRequest) -> Job:
    described: Job = request.param
    return described


@pytest.fixture(scope="module")
def run(job: Job, programs: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_job(programs, tmp_path_factory.mktemp(job.name), job)


def test_each_snapshot_was_taken(run: Run, job: Job) -> None:
    asked = [KINDS[step] for step in job.steps.split(",") if step in KINDS]
    assert [each.kind for each in run.snapshots] == asked
    for each in run.snapshots:
        head = (each.folder / "_metadata").read_bytes()[:8]
        assert head == (0x4960672D).to_bytes(4) + each.metadata_version.to_bytes(4)
        assert each.metadata_version == 6


def test_the_truth_has_rows_of_known_operators(run: Run, job: Job) -> None:
    assert run.snapshots[-1].truth
    for each in run.snapshots:
        assert each.truth or job.name == "InFlight"  # the state is empty where a checkpoint overtook all records
        assert {row["operator"] for row in each.truth} <= set(run.operators)


def columns_of_bytes(at: KeyedAt | ElementsAt) -> list[str]:
    return [field.name for field in at.schema if b"statestore.serializer" in (field.metadata or {})]


def test_every_snapshot_has_the_rows_that_the_job_recorded(run: Run, job: Job) -> None:
    """Recursive Avro records have no column: these are bytes or refused."""
    names = {number: uid for uid, number in run.operators.items()}
    for each in run.snapshots:
        known: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in each.truth:
            known.setdefault((row["operator"], row["state"]), []).append(row)
        source = source_at(each.folder)
        compared, seen = 0, set()
        for state in source.opened(source.refs[-1][0]).states().values():
            place = (names.get(state.identity[0], state.identity[0]), state.identity[2])
            seen.add(place)
            at = source.at(state.name, source.newest(state.name))
            assert isinstance(at, KeyedAt | ElementsAt)
            try:
                rows = rows_of(source, state.name)
            except StateStoreError as error:
                assert isinstance(error, UnsupportedError) and job.name == "AvroStates", error
                continue
            if columns_of_bytes(at):
                assert job.name == "AvroStates" or place not in known, place
            elif place in known:
                assert lines_of(at.form, rows) == lines_of_truth(known[place])
                compared += 1
            elif not known and isinstance(at, KeyedAt):
                assert not rows
        assert set(known) <= seen
        assert compared >= max(len(known) - 3, min(len(known), 1))
