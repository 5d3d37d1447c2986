"""Flink as an `Engine`: the savepoints and checkpoints of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from statestore.formats.engine_offer import Engine
from statestore.formats.flink.flink_options import EDIT_SETTINGS, OPTIONS
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location

if TYPE_CHECKING:
    from statestore.formats.engine import Source


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a savepoint or checkpoint, or has those of jobs."""
    from statestore.formats.flink.snapshot.job_snapshots import recognises as is_flink

    return is_flink(folder)


def unreadable(folder: Folder) -> str:
    """Return what a folder is that is named as a snapshot of Flink and is not complete."""
    from statestore.formats.flink.snapshot.job_snapshots import incomplete

    return incomplete(folder)


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the states of a job in all its snapshots at a location, or in one snapshot.

    Raises InvalidInputError STATE_SELECTION, INVALID_OPTION and NO_ACCESS, NotFoundError FLINK_FILE_MISSING,
    CorruptError FLINK_METADATA, UnsupportedError FLINK_UNSUPPORTED.
    """
    from statestore.formats.flink.flink_settings import settings_of
    from statestore.formats.flink.opening import open_source

    return open_source(location, settings_of(options))


ENGINE = Engine(
    "flink",
    "savepoint or checkpoint of Flink",
    OPTIONS,
    recognises,
    open_state,
    unreadable=unreadable,
    includes_below=True,
    edit_settings=EDIT_SETTINGS,
)
