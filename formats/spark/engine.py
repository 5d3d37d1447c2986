"""Spark Structured Streaming as an `Engine`: the checkpoints of its queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from statestore.formats.engine import Engine, Source
from statestore.formats.places.locations import Location, open_location
from statestore.formats.spark.state_options import OPTIONS, selection_of

_FOLDERS = ("commits", "state")


def recognises(location: Location) -> bool:
    """Return whether a location holds a checkpoint: its folders are looked up, or listed where it is not local."""
    if location.is_local:
        return all(Path(location.path, name).is_dir() for name in _FOLDERS)
    from statestore.formats.spark.checkpoint.checkpoint_files import Folder

    return set(_FOLDERS) <= set(Folder(*open_location(location)).folders())


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the states for users, or the one state that options of Spark's own ``statestore`` source select.

    Raises InvalidInputError STATE_SELECTION, NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE.
    """
    from statestore.formats.spark.selection import selected_source
    from statestore.formats.spark.source import open_source

    selection = selection_of(options)
    return open_source(location) if selection is None else selected_source(location, selection)


ENGINE = Engine("spark", "checkpoint of Structured Streaming", OPTIONS, recognises, open_state)
