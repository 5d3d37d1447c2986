"""A long life: a thousand rounds leave nothing behind, threads share a handle, processes fork, clocks jump."""

from __future__ import annotations

import pytest
from faults.campaign import SEED, Sweep, scratch
from faults.children import children
from faults.subjects import SUBJECTS

SHARE = 0.015  # of each test, for each kind
THREADS = 8
OTHERS = [kind for kind in SUBJECTS if kind not in ("versioned", "key_value")]
ROUNDS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS)
def test_many_rounds_leave_no_descriptors_folders_or_memory(kind: str) -> None:
    sweep = Sweep(f"rounds, {kind}", SHARE)
    with scratch() as folder:
        ended = children().run(
            "faults.endurance:rounds", root=str(folder), kind=kind, most=ROUNDS, seconds=sweep.seconds_left, limit=1200
        )
    assert ended.bad is None, ended.bad
    sweep.figures["trials"] = ended.value["rounds"]
    for what in ended.value["wrong"]:
        sweep.found(what, kind)
    sweep.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS)
def test_threads_may_share_a_handle(kind: str) -> None:
    sweep = Sweep(f"threads, {kind}", SHARE)
    with scratch() as folder:
        ended = children().run(
            "faults.endurance:threads", root=str(folder), kind=kind, count=THREADS, seconds=min(60, sweep.seconds_left),
            limit=240,
        )  # fmt: skip
    assert ended.bad is None, ended.bad
    sweep.figures["trials"] = ended.value["writes"]
    for what in ended.value["wrong"]:
        sweep.found(what, kind)
    sweep.finish()


@pytest.mark.parametrize("kind", ["versioned", "key_value", *(pytest.param(k, marks=pytest.mark.slow) for k in OTHERS)])
def test_a_process_that_has_used_a_store_may_fork(kind: str) -> None:
    with scratch() as folder:
        ended = children().run("faults.endurance:forks", root=str(folder), kind=kind, limit=120)
    assert ended.bad is None, ended.bad
    assert ended.value == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS)
def test_the_clock_may_jump(kind: str) -> None:
    with scratch() as folder:
        ended = children().run("faults.endurance:clocks", root=str(folder), kind=kind, seed=SEED, count=60)
    assert ended.bad is None, ended.bad
    assert ended.value == []
