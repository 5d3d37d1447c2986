"""Each pair of acts on one store, the one stopped before each of its system calls until the other is through."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.campaign import ONLY, Sweep, scratch, shuffled
from faults.children import Children, Ended, Zygote, children
from faults.keyed_neighbours import ACTS as KEYED_ACTS
from faults.trials.neighbour_trials import ACTS

KINDS = ("versioned", "key_value", "session", "keyed")
SHARE = 0.06 / len(KINDS)
PATIENCE = 1.0  # seconds that the other has before the stopped one goes on: it may wait for its lock


@dataclass(frozen=True)
class Trial:
    kind: str
    stopped: str
    other: str
    at: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.stopped}/{self.other}/{self.at}"


def module(kind: str) -> str:
    """The module with the acts on a kind of store."""
    return "faults.keyed_neighbours" if kind == "keyed" else "faults.trials.neighbour_trials"


def all_trials(found: Children, folder: Path, kind: str) -> list[Trial]:
    template, root = str(folder / "template"), str(folder / "count")
    ended = found.run(module(kind) + ":make_template", root=template, kind=kind)
    assert ended.bad is None, ended.bad
    trials = []
    acts = KEYED_ACTS if kind == "keyed" else ACTS
    for stopped in acts:
        found.run(module(kind) + ":copy", template=template, root=root)
        alone = found.run(module(kind) + ":act", root=root, kind=kind, name=stopped, who="a", at=0, gate="")
        assert alone.bad is None and alone.value["error"] is None, (stopped, alone)
        nothing = {**alone.value, "acknowledged": [], "pending": [], "read": [], "new": False}
        judged = found.run(
            module(kind) + ":judge", root=root, kind=kind, a=alone.value, b=nothing, acts=[stopped, "none"]
        )
        assert judged.value == [], (stopped, judged)
        trials += [Trial(kind, stopped, other, at + 1) for other in acts for at in range(alone.value["calls"])]
    return trials


def attempt(sweep: Sweep, folder: Path, found: Children, trial: Trial) -> None:
    root, gate = str(folder / "root"), folder / "gate"
    for name in ("reached", "go"):
        gate.with_suffix(f".{name}").unlink(missing_ok=True)
    found.run(module(trial.kind) + ":copy", template=str(folder / "template"), root=root)
    with ThreadPoolExecutor(2) as threads, found.zygote() as mine, found.zygote() as theirs:

        def run(zygote: Zygote, name: str, who: str, at: int) -> Ended:
            return zygote.run(
                module(trial.kind) + ":act", root=root, kind=trial.kind, name=name, who=who, at=at, gate=str(gate)
            )

        stopped = threads.submit(run, mine, trial.stopped, "a", trial.at)
        while not stopped.done() and not gate.with_suffix(".reached").exists():
            time.sleep(0.0005)
        going = threads.submit(run, theirs, trial.other, "b", 0)
        if not wait([going], PATIENCE).done:
            sweep.figures["waited for one another"] += 1
        gate.with_suffix(".go").touch()
        ended, other = stopped.result(), going.result()
    sweep.figures["trials"] += 1
    wrong = [
        f"{name}: {one.bad.splitlines()[0]}"
        for name, one in zip(("stopped", "other"), (ended, other), strict=True)
        if one.bad
    ]
    if not wrong:
        judged = found.run(
            module(trial.kind) + ":judge", root=root, kind=trial.kind, a=ended.value, b=other.value,
            acts=[trial.stopped, trial.other],
        )  # fmt: skip
        wrong = [judged.bad.splitlines()[0]] if judged.bad else judged.value
        sweep.figures["refused"] += bool(ended.value["error"]) + bool(other.value["error"])
    for what in wrong:
        sweep.found(f"{trial.stopped} stopped for {trial.other}: {what}", str(trial))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_another_process_may_come_between_any_two_calls(kind: str) -> None:
    sweep = Sweep(f"neighbours, {kind}", SHARE)
    found = children()
    with scratch() as folder:
        trials = shuffled(all_trials(found, folder, kind), sweep.name)
        if ONLY:
            name, stopped, other, at = ONLY.split("/")
            trials = [Trial(kind, stopped, other, int(at))] if name == kind else []
        sweep.begin()
        for trial in trials:
            if not sweep.goes_on():
                break
            attempt(sweep, folder, found, trial)
    sweep.finish()
