"""The checkpoints with which Spark tests that it goes on with those of earlier releases: 2.1 to 4.0.

They are in the jar of its tests, which Maven fetches the first time. Nothing of it is kept in this repository.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from support.maven import jars_of
from support.paths import TESTS

PROJECT = TESTS / "engines" / "spark" / "checkpoints"
INSIDE = "structured-streaming/"


def unpacked_checkpoints(folder: Path) -> Path:
    """Unpack the checkpoints below a folder; return the folder in which they are.

    Skips the test where Maven or the jar cannot be had, unless STATESTORE_SPARK_CHECKPOINTS=required, as in CI.
    """
    jar = jars_of(PROJECT, folder, "STATESTORE_SPARK_CHECKPOINTS")
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return folder / INSIDE
