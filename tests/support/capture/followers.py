"""Captures in processes of their own, which are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import statestore
from statestore.formats.errors import StateStoreError

PATIENCE_S = 60.0


class Follower:
    """A process of ``statestore capture --follow``. What it prints lies in ``folder``."""

    def __init__(self, checkpoint: Path | str, warehouse: Path, folder: Path, *options: str) -> None:
        self._warehouse = warehouse
        self._said = folder / f"capture-{len(list(folder.glob('capture-*.jsonl')))}.jsonl"
        command = [sys.executable, "-m", "statestore", "capture", str(checkpoint), str(warehouse)]
        with self._said.open("w") as out, self._said.with_suffix(".txt").open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--follow", "--every", "20ms", "--json", *options], stdout=out, stderr=errors
            )

    def pause(self, seconds: float) -> None:
        """Wait so long, while the process goes on."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.poll() is None, self.output()

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL, self.output()

    def stop(self) -> None:
        """Stop it as a service manager does."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.output()

    def await_batch(self, states: tuple[str, ...], batch: int) -> None:
        """Wait until a batch of each state is captured."""
        waited = 0.0
        while any(newest(self._warehouse, state) < batch for state in states):
            self.pause(0.03)
            waited += 0.03
            assert waited < PATIENCE_S, f"batch {batch} is not captured: {self.output()}"

    def output(self) -> str:
        """What it printed to its streams, the end of it."""
        said, errors = self._said.read_text(), self._said.with_suffix(".txt").read_text()
        return f"status {self.process.returncode}\n{said[-2000:]}\n{errors[-4000:]}"


def newest(warehouse: Path, state: str) -> int:
    """The newest batch of a state that a warehouse has; -1 if there is none."""
    try:
        versions = statestore.inspect(warehouse).table(state).versions()
    except StateStoreError:
        return -1
    return max((batch for batch in versions["batch"].to_pylist() if batch is not None), default=-1)
