"""Folders below a local one that can be opened, such as the checkpoints of several jobs."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from statestore.catalog.log.store_spec import STORE_FILE
from statestore.formats.engines import recognised
from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location

MOST = 1_000  # folders that are looked at
LISTED = 3


def places_below(folder: Path) -> list[str]:
    """Return the folders directly in ``folder`` that hold a warehouse or the state of an engine, by their names.

    Of more than MOST folders, the first ones are looked at. A folder that cannot be read is left out.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in islice((e for e in entries if e.is_dir()), MOST))
    except OSError:
        return []
    return [str(folder / name) for name in names if _is_place(folder / name)]


def hint_of(places: list[str]) -> str:
    """Return the end of an error about their folder; empty if there are none."""
    if not places:
        return ""
    listed = ", ".join(Path(each).name for each in places[:LISTED])
    more = f" and {len(places) - LISTED} more" if len(places) > LISTED else ""
    return f"; its folders can be opened, each with a path of its own: {listed}{more}"


def _is_place(folder: Path) -> bool:
    try:
        if recognised(folder_at(parse_location(folder)).remembering()) is not None:
            return True
        return any((each / STORE_FILE).is_file() for each in folder.iterdir())
    except (StateStoreError, OSError):
        return False
