"""Settings and records shared by all attacks: seed, time budget, scratch space, and the findings of a sweep.

Settings, from the environment: STATESTORE_CAMPAIGN_SEED (0), STATESTORE_CAMPAIGN_SECONDS (240, of all sweeps
together), STATESTORE_CAMPAIGN_TRIAL (do only this trial, by the name that a finding gives), STATESTORE_CAMPAIGN_DIR
(scratch space; a file system in memory is faster), STATESTORE_CAMPAIGN_REPORT (a file to which the figures and findings
of each sweep are added).
"""

from __future__ import annotations

import collections
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SEED = int(os.environ.get("STATESTORE_CAMPAIGN_SEED", "0"))
SECONDS = float(os.environ.get("STATESTORE_CAMPAIGN_SECONDS", "240"))
ONLY = os.environ.get("STATESTORE_CAMPAIGN_TRIAL")
MEMORY = Path("/dev/shm")
NEEDED = 2 << 30  # bytes of scratch space
LEAST = 5


def scratch_parent() -> str | None:
    """The folder for scratch folders: in memory if there is room, because most trials are fsyncs."""
    chosen = os.environ.get("STATESTORE_CAMPAIGN_DIR")
    if chosen:
        return chosen
    fits = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED
    return str(MEMORY) if fits else None


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="statestore-campaign-", dir=scratch_parent()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shuffled(trials: Sequence[Any], name: str) -> list[Any]:
    """The trials in the order of the seed, or only the requested one."""
    found = list(trials)
    random.Random(f"{SEED}/{name}").shuffle(found)
    return found


class Sweep:
    """The findings and figures of one sweep, which has ``share`` of the campaign's time (1.0: all of it) and makes at
    least LEAST trials, or makes ``most`` trials where that is given."""

    def __init__(self, name: str, share: float, most: int | None = None) -> None:
        self.name = name
        self.share = share
        self.most = most
        self.figures: collections.Counter[str] = collections.Counter()
        self._findings: dict[str, list[str]] = {}
        self._begin = time.monotonic()

    def begin(self) -> None:
        """Start the clock; the time before was preparation."""
        self._begin = time.monotonic()

    @property
    def seconds_left(self) -> float:
        return self.share * SECONDS - (time.monotonic() - self._begin)

    def goes_on(self) -> bool:
        """Return whether another trial is due."""
        if self.most is not None:
            return self.figures["trials"] < self.most
        return self.seconds_left > 0 or self.figures["trials"] < LEAST

    def found(self, what: str, trial: str) -> None:
        """Record that ``trial`` came out wrong, and how."""
        self._findings.setdefault(_alike(what), []).append(trial)

    def finish(self) -> None:
        """Fail if there was a finding, or no trial."""
        seconds = time.monotonic() - self._begin
        figures = {"sweep": self.name, "seed": SEED, "seconds": round(seconds), **dict(sorted(self.figures.items()))}
        print(json.dumps(figures))
        report = os.environ.get("STATESTORE_CAMPAIGN_REPORT")
        if report:
            with Path(report).open("a") as file:
                file.write(json.dumps({**figures, "findings": self._findings}) + "\n")
        lines = [
            f"{len(trials):5} x {what}\n{'':10}STATESTORE_CAMPAIGN_SEED={SEED} STATESTORE_CAMPAIGN_TRIAL='{trials[0]}'"
            for what, trials in sorted(self._findings.items(), key=lambda item: -len(item[1]))
        ]
        assert not lines, f"{figures}\n" + "\n".join(lines)
        assert ONLY or self.figures["trials"], figures


def _alike(what: str) -> str:
    """The common part of findings of one kind: no names, numbers and rows; of raw errors only the class."""
    text = re.sub(r"(^|[\s'\"])/\S+/", r"\1…/", what)
    text = re.sub(r"[0-9a-f]{16,}|\d+", "#", re.sub(r"\[\(.*|\{.*|\[#.*", "…", text))
    return re.sub(r"(raw [^:]*):.*", r"\1", text, flags=re.DOTALL).splitlines()[0][:200]
