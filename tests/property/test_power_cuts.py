"""The power is cut at any moment: writes acknowledged as durable are there, and every store opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from faults.campaign import ONLY, Sweep, scratch, shuffled
from faults.children import Zygote, children
from faults.disks import HELD, MODELS, Cut, disk_after, make_disk
from faults.subjects import SUBJECTS
from faults.trace import Step, read_trace
from support.parameters import mostly_slow

KINDS = (*SUBJECTS, "keyed")
SHARE = 0.2 / len(KINDS)
DRAWS = 3  # of what is held in part
BIG = 400  # writes: several pages of a changelog


def recorded(zygote: Zygote, folder: Path, kind: str, big: int) -> tuple[list[Step], str]:
    """The steps of the workload, and the folder it worked in."""
    root = folder / "disk"
    root.mkdir()
    ended = zygote.run(
        "faults.trials.power_trials:record", kind=kind, root=str(root), trace=str(folder / "trace"), big=big
    )
    assert ended.bad is None, ended.bad
    return read_trace(folder / "trace", str(root)), str(root)


def cuts(steps: list[Step]) -> list[Cut]:
    """Every point, model and choice; where much is written only each 37th of the writes in a row."""
    points = [n for n, step in enumerate(steps, 1) if step.do not in ("write", "mark") or n % 37 == 0]
    return [
        Cut(point, model, held, draw)
        for point in points
        for model in MODELS
        for held in HELD
        for draw in range(DRAWS if held == "some" else 1)
    ]


def attempt(sweep: Sweep, folder: Path, zygote: Zygote, kind: str, trial: tuple[list[Step], str, Cut]) -> None:
    steps, root, cut = trial
    disk, target = disk_after(steps, root, cut), folder / f"disk-{id(zygote)}"
    shutil.rmtree(target, ignore_errors=True)
    make_disk(disk, target)
    marks = [json.loads(step.name) for step in steps[: cut.upto] if step.do == "mark"]
    arguments: dict[str, Any] = {"kind": kind, "folder": str(target), "marks": marks}
    ended = zygote.run("faults.trials.power_trials:check", **arguments, other_boot=str(folder / "other-boot"))
    sweep.figures["trials"] += 1
    wrong = [ended.bad.splitlines()[0]] if ended.bad is not None else ended.value
    for what in wrong:
        sweep.found(f"{cut.model}: {what}", f"{kind}/{cut}")


def sweep_kind(kind: str, big: int, most: int | None = None) -> None:
    sweep = Sweep(f"power cuts, {kind}", SHARE, most)
    found = children()
    with scratch() as folder:
        (folder / "other-boot").write_text("another-boot\n")
        with found.zygote() as zygote:
            steps, root = recorded(zygote, folder, kind, big)
        sweep.figures["calls recorded"] = len(steps)
        chosen = shuffled(cuts(steps), sweep.name)
        if ONLY:
            name, _, rest = ONLY.partition("/")
            upto, model, held, draw = rest.split("/") if name == kind else ("0", "", "", "0")
            chosen = [Cut(int(upto), model, held, int(draw))] if name == kind else []
        trials = [(steps, root, cut) for cut in chosen]
        sweep.begin()
        found.each(trials, lambda zygote, trial: attempt(sweep, folder, zygote, kind, trial), sweep.goes_on)
    sweep.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_power_may_be_cut_at_any_moment(kind: str) -> None:
    sweep_kind(kind, BIG)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(["versioned", "key_value"], ["key_value"]))
def test_the_power_may_be_cut_now_and_then(kind: str) -> None:
    """A few of the trials above, for every run of the tests."""
    sweep_kind(kind, big=3, most=10)
