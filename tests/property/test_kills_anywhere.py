"""SIGKILL at any call and at any moment: writes that an outside log lists as acknowledged are there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from faults.campaign import ONLY, SEED, Sweep, scratch
from faults.children import Children, Ended, Zygote, children
from faults.subjects import SUBJECTS
from support.parameters import mostly_slow

KINDS = (*SUBJECTS, "keyed")
SHARE = 0.12 / len(KINDS)
ACTS = {"keyed": 4}  # of one life; each is many calls
LIVES = 4  # of one store


def life(zygote: Zygote, kind: str, root: Path, log: Path, seed: int, **death: Any) -> Ended:
    """Write until killed."""
    count = ACTS.get(kind, 25)
    arguments: dict[str, Any] = {"root": str(root), "log": str(log), "seed": seed, "count": count, **death}
    if kind == "keyed":
        return zygote.run("faults.workload:keyed_until_killed", **arguments)
    return zygote.run("faults.workload:write_until_killed", kind=kind, **arguments)


def check(zygote: Zygote, kind: str, root: Path, log: Path) -> list[str]:
    arguments: dict[str, Any] = {"root": str(root), "log": str(log)}
    if kind == "keyed":
        ended = zygote.run("faults.workload:check_keyed_after_kill", **arguments)
    else:
        ended = zygote.run("faults.workload:check_after_kill", kind=kind, **arguments)
    return [ended.bad.splitlines()[0]] if ended.bad is not None else list(ended.value)


def attempt(sweep: Sweep, folder: Path, zygote: Zygote, kind: str, draw: int) -> None:
    """Several lives of one store, each ended at a call or at a moment."""
    rng = random.Random(draw)
    root, log = folder / f"root-{id(zygote)}", folder / f"log-{id(zygote)}"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    log.unlink(missing_ok=True)
    for number in range(LIVES):
        death: dict[str, Any] = {"way": rng.choice(("kill", "kill after")), "at": rng.randint(1, 160)}
        if rng.random() < 0.3:
            death = {"kill_after": rng.uniform(0.005, 0.4)}
        ended = life(zygote, kind, root, log, draw * LIVES + number, **death)
        sweep.figures["trials"] += 1
        sweep.figures["killed"] += ended.signal == 9
        wrong = check(zygote, kind, root, log)
        if ended.bad is not None and ended.signal != 9:
            wrong.append(ended.bad.splitlines()[0])
        for what in wrong:
            sweep.found(f"{'at a moment' if 'kill_after' in death else 'at a call'}: {what}", f"{kind}/{draw}")
        if wrong:
            return


def sweep_kind(kind: str, found: Children, most: int | None = None) -> None:
    sweep = Sweep(f"kills, {kind}", SHARE, most)
    with scratch() as folder:
        draws = range(SEED * 10**7, SEED * 10**7 + 10**6)
        if ONLY:
            name, _, draw = ONLY.partition("/")
            draws = range(int(draw), int(draw) + 1) if name == kind else range(0)
        sweep.begin()
        found.each(draws, lambda zygote, draw: attempt(sweep, folder, zygote, kind, draw), sweep.goes_on)
    sweep.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_process_may_be_killed_at_any_call_and_moment(kind: str) -> None:
    sweep_kind(kind, children())


@pytest.mark.parametrize("kind", mostly_slow(["versioned", "key_value"], ["versioned"]))
def test_the_process_may_be_killed_now_and_then(kind: str) -> None:
    """A few of the trials above, for every run of the tests."""
    sweep_kind(kind, children(1), most=1)
