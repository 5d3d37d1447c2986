"""Everything at once: writers, readers, upkeep, kills and jumping clocks, on one store, until the time is over."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faults.campaign import SEED, Sweep, scratch
from faults.children import Ended, children

KINDS = ("versioned", "key_value", "window")
SHARE = 0.05 / len(KINDS)
WRITERS, READERS = 2, 1
TURN = 4.0  # seconds of one process, at most


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_everything_at_once(kind: str) -> None:
    sweep, rng = Sweep(f"soak, {kind}", SHARE), random.Random(f"{SEED}/{kind}")
    crowd = children(WRITERS + READERS)
    with scratch() as folder:
        root, logs = str(folder / "warehouse"), [str(folder / f"log-{number}") for number in range(WRITERS)]
        assert crowd.run("faults.crowd:create", root=root, kind=kind).bad is None

        def turn(number: int, seed: int) -> Ended:
            """One process: a writer, killed now and then, or a reader."""
            seconds = random.Random(seed).uniform(1, TURN)
            dies = random.Random(seed + 1).uniform(0.1, seconds) if seed % 3 == 0 else None
            if number < WRITERS:
                return crowd.run(
                    "faults.crowd:write", root=root, kind=kind, log=logs[number], seed=seed,
                    first=10_000 + number * 200_000, seconds=seconds, kill_after=dies,
                )  # fmt: skip
            return crowd.run("faults.crowd:read", root=root, kind=kind, seed=seed, seconds=seconds, kill_after=dies)

        while True:
            seeds = [rng.randrange(1 << 30) for _ in range(WRITERS + READERS)]
            with ThreadPoolExecutor(WRITERS + READERS) as threads:
                turns = list(threads.map(turn, range(WRITERS + READERS), seeds))
            sweep.figures["trials"] += len(turns)
            for number, ended in enumerate(turns):
                sweep.figures["killed"] += ended.signal == 9
                if ended.bad is not None and ended.signal != 9:
                    who = "writer" if number < WRITERS else "reader"
                    sweep.found(f"{who}: {ended.bad.splitlines()[0]}", f"{kind}/{seeds[number]}")
            checked = crowd.run("faults.crowd:check", root=root, kind=kind, logs=logs)
            for what in [checked.bad.splitlines()[0]] if checked.bad else checked.value:
                sweep.found(what, f"{kind}/{seeds}")
            if checked.bad or checked.value or not sweep.goes_on():
                break
        sweep.figures["acknowledged"] = sum(Path(log).read_bytes().count(b"done") for log in logs if Path(log).exists())
    sweep.finish()
