"""Checkpoints whose oldest files are gone, as Spark cleans them up."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from support.checkpoints.spark_state_fixtures import checkpoint_path

DATA_FILE = re.compile(r"(\d+)(_[0-9a-f-]+)?\.(delta|snapshot|zip|changelog)")


def purged(name: str, folder: Path, below: int, logs_below: int = 0) -> Path:
    """A copy without the files of state versions, and without the logs of batches, before these."""
    path = folder / "checkpoint"
    shutil.copytree(checkpoint_path(name), path)
    for file in path.glob("state/**/*"):
        found = DATA_FILE.fullmatch(file.name)
        if found is not None and int(found[1]) < below:
            file.unlink()
    for log in ("commits", "offsets"):
        for file in (path / log).iterdir():
            if file.name.isdecimal() and int(file.name) < logs_below:
                file.unlink()
    return path
