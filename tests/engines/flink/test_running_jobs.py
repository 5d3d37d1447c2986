"""Real jobs of Flink, run anew: they leave the snapshots that were asked for, each with the truth about it."""

from __future__ import annotations

import pytest
from support.flink.running.java_project import VERSIONS, class_path
from support.flink.running.job import Job, Run, run_job

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
)
KINDS = {"chk": "checkpoint", "canonical": "savepoint-canonical", "native": "savepoint-native"}


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def programs(version: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path("jobs", version, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module", params=JOBS, ids=lambda job: str(job.name))
def job(request: pytest.FixtureRequest) -> Job:
    described: Job = request.param
    return described


@pytest.fixture(scope="module")
def run(job: Job, programs: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_job(programs, tmp_path_factory.mktemp(job.name), job)


def test_each_snapshot_was_taken(run: Run, job: Job, version: str) -> None:
    asked = [KINDS[step] for step in job.steps.split(",") if step in KINDS]
    assert [each.kind for each in run.snapshots] == asked
    for each in run.snapshots:
        head = (each.folder / "_metadata").read_bytes()[:8]
        assert head == (0x4960672D).to_bytes(4) + each.metadata_version.to_bytes(4)
        assert each.metadata_version == {"2.3.0": 6, "1.20.3": 4}[version]


def test_the_truth_has_rows_of_known_operators(run: Run) -> None:
    for each in run.snapshots:
        assert each.truth
        assert {row["operator"] for row in each.truth} <= set(run.operators)
