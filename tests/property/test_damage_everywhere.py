"""Bits flip, files are cut, zeroed and swapped, everywhere: each read returns the truth or raises an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.campaign import ONLY, SEED, Sweep, scratch
from faults.children import Zygote, children
from faults.subjects import SUBJECTS

KINDS = (*SUBJECTS, "keyed")
SHARE = 0.1 / len(KINDS)


def attempt(sweep: Sweep, folder: Path, zygote: Zygote, kind: str, draw: int) -> None:
    root = folder / f"root-{id(zygote)}"
    template = str(folder / "template")
    ended = zygote.run("faults.trials.damage_trials:damaged", template=template, root=str(root), kind=kind, draw=draw)
    if ended.bad is not None:
        sweep.figures["trials"] += 1
        sweep.found(ended.bad.splitlines()[0], f"{kind}/{draw}")
        return
    if ended.value["same"]:
        return
    sweep.figures["trials"] += 1
    sweep.figures["reads that were right"] += ended.value["right"]
    sweep.figures["reads that were refused"] += ended.value["refused"]
    for what in ended.value["wrong"]:
        sweep.found(f"{ended.value['damage']}: {what}", f"{kind}/{draw}")


def sweep_kind(kind: str) -> None:
    sweep = Sweep(f"damage, {kind}", SHARE)
    found = children()
    with scratch() as folder:
        ended = found.run("faults.trials.damage_trials:make_template", root=str(folder / "template"), kind=kind)
        assert ended.bad is None, ended.bad
        draws = range(SEED * 10**7, SEED * 10**7 + 10**6)
        if ONLY:
            name, _, draw = ONLY.partition("/")
            draws = range(int(draw), int(draw) + 1) if name == kind else range(0)
        sweep.begin()
        found.each(draws, lambda zygote, draw: attempt(sweep, folder, zygote, kind, draw), sweep.goes_on)
    sweep.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_byte_may_be_damaged(kind: str) -> None:
    sweep_kind(kind)
