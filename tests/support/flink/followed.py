"""A plain model of the job ``Followed``, and the job beside which its checkpoints are captured and captures are killed.

The state of a checkpoint is that of the events before the number that the source had stored in it, which the job
writes when it ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

from support.flink.running.job import PATIENCE_S, Job, output_of, started_job

Rows = dict[tuple[Any, ...], Any]
STATES = ("followed.last", "followed.events", "followed.kinds")
KEYS = {"followed.last": ("key",), "followed.events": ("key", "position"), "followed.kinds": ("key", "map_key")}
VALUES = {"followed.last": "value", "followed.events": "value", "followed.kinds": "map_value"}

_RESTARTS = "restart-strategy.type=fixed-delay#restart-strategy.fixed-delay.delay=100ms"


@dataclass
class FollowedModel:
    """The state after ``events`` events, by key."""

    keys: int
    events: int = 0
    last: dict[int, float] = field(default_factory=dict)
    lists: dict[int, list[int]] = field(default_factory=dict)
    maps: dict[int, dict[str, int]] = field(default_factory=dict)

    def go_to(self, events: int) -> None:
        for number in range(self.events, events):
            self._take(number, number if number < self.keys else number * 7919 % self.keys)
        self.events = events

    def rows(self) -> dict[str, Rows]:
        """The rows of each state, by its row key."""
        return {
            "followed.last": {(key,): value for key, value in self.last.items()},
            "followed.events": {
                (key, at): value for key, listed in self.lists.items() for at, value in enumerate(listed)
            },
            "followed.kinds": {(key, kind): value for key, kinds in self.maps.items() for kind, value in kinds.items()},
        }

    def _take(self, number: int, key: int) -> None:
        if number % 17 == 3:
            for state in (self.last, self.lists, self.maps):
                state.pop(key, None)
            return
        self.last[key] = number * 0.5
        self.lists[key] = [number, -number] if number % 7 == 5 else [*self.lists.get(key, []), number]
        kinds = self.maps.setdefault(key, {})
        kinds[f"kind {number % 5}"] = number
        if number % 4 == 1:
            kinds.pop(f"kind {number % 3}", None)


@dataclass(frozen=True)
class Followed:
    """A run of the job, which takes a checkpoint each ``interval`` ms and keeps the last ``retained``.

    ``kills`` captures are killed, and the last one ends after so many events as ``after`` says. After some of the
    kills, ``stops``, nobody captures for longer than the job keeps a checkpoint.
    """

    seed: int
    kills: int
    keys: int = 1000
    interval: int = 300
    retained: int = 2
    after: int = 3
    stops: int = 0
    options: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()

    def job(self) -> Job:
        own = f"execution.checkpointing.interval={self.interval}ms"
        extra = "#".join((own, f"execution.checkpointing.num-retained={self.retained}", _RESTARTS, *self.settings))
        steps = f"emit:{2 * self.keys},flow:{max(1, self.keys // 200)},positions"
        return Job("Followed", steps, (("keys", str(self.keys)), ("extra", extra), *self.options))


@dataclass(eq=False)
class Watch(Thread):
    """Looks all the time which checkpoints are complete: ``seen`` has the moment (epoch seconds) at which each was
    there last, and the time of its ``_metadata`` (epoch milliseconds).
    """

    folder: Path
    seen: dict[int, tuple[float, int]] = field(default_factory=dict)
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        while not self.stop.wait(0.005):
            for path in self.folder.glob("chk-*/_metadata"):
                with suppress(FileNotFoundError):
                    written = path.stat().st_mtime_ns // 10**6
                    self.seen[int(path.parent.name.removeprefix("chk-"))] = time.time(), written


@dataclass(frozen=True)
class FollowedRun:
    """The ``folder`` of the job's checkpoints, the ``positions`` of all that were complete, by number, and what a
    `Watch` has seen of them.
    """

    folder: Path
    positions: dict[int, int]
    seen: dict[int, tuple[float, int]]


def capture_beside(class_path: str, folder: Path, warehouse: Path, followed: Followed) -> FollowedRun:
    """Run the job, and capture it by processes that are killed at random moments, but for the last."""
    chance = Random(followed.seed)
    with started_job(class_path, folder, followed.job()) as job:
        place = _first_checkpoint(job, folder)
        watch = Watch(place)
        watch.start()
        for number in range(followed.kills):
            with _capture(place, warehouse, folder / f"capture-{number}.txt") as capture:
                assert capture.stdout is not None
                for _ in range(chance.randrange(8)):
                    capture.stdout.readline()
                _pause(capture, chance.random() / 2)
                capture.kill()
            if number < followed.stops:
                _until_gone(job, place, followed.retained)
        with _capture(place, warehouse, folder / "capture.txt") as capture:
            assert capture.stdout is not None
            for _ in range(followed.after):
                assert capture.stdout.readline(), (folder / "capture.txt").read_text()
            capture.send_signal(signal.SIGTERM)
            capture.stdout.read()
            assert capture.wait(PATIENCE_S) == 0, (folder / "capture.txt").read_text()
        watch.stop.set()
        watch.join()
        (folder / "state" / "stop").touch()
        assert job.wait(PATIENCE_S) == 0, output_of(folder)
    lines = (folder / "state" / "positions.jsonl").read_text().splitlines()
    positions = {each["checkpoint"]: each["events"] for each in map(json.loads, lines)}
    return FollowedRun(place, positions, watch.seen)


def _capture(place: Path, warehouse: Path, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "statestore", "capture", str(place), str(warehouse), "--json"]
    command += [part for state in STATES for part in ("--state", state)]
    with log.open("w") as errors:
        return subprocess.Popen(
            [*command, "--follow", "--every", "20ms"], stdout=subprocess.PIPE, stderr=errors, text=True
        )


def _pause(process: subprocess.Popen[Any], seconds: float) -> None:
    """Wait so long, or until a process ends, which it should not."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError(f"{process.args!r} ended with {process.returncode}")


def _complete(place: Path) -> set[int]:
    return {int(each.parent.name.removeprefix("chk-")) for each in place.glob("chk-*/_metadata")}


def _first_checkpoint(job: subprocess.Popen[bytes], folder: Path) -> Path:
    """The folder of the job's checkpoints, once there is one with the first value of each key."""
    while not (found := sorted((folder / "state").glob("*/chk-*/_metadata"))):
        _pause(job, 0.02)
    return found[0].parent.parent


def _until_gone(job: subprocess.Popen[bytes], place: Path, retained: int) -> None:
    """Wait until all checkpoints that are there are gone, and one that nobody has seen, too."""
    last = max(_complete(place), default=0)
    while min(_complete(place), default=0) <= last + 1:
        _pause(job, 0.02)
