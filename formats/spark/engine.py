"""Spark Structured Streaming as an `Engine`: the checkpoints of its queries."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.formats.engine import Engine, Source
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location
from statestore.formats.spark.state_options import OPTIONS, selection_of


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a checkpoint."""
    return folder.holds("commits", "state")


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the states for users, or the one state that options of Spark's own ``statestore`` source select.

    Raises InvalidInputError STATE_SELECTION, NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE.
    """
    from statestore.formats.spark.selection import selected_source
    from statestore.formats.spark.source import open_source

    selection = selection_of(options)
    return open_source(location) if selection is None else selected_source(location, selection)


ENGINE = Engine("spark", "checkpoint of Structured Streaming", OPTIONS, recognises, open_state)
