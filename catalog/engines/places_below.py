"""Folders below a local one that can be opened, such as the checkpoints of several jobs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from statestore.catalog.log.log_names import STORE_FILE
from statestore.formats.engine_offer import Engine
from statestore.formats.engines import recognised, unreadable
from statestore.formats.errors import StateStoreError
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location

MOST = 1_000  # folders that are looked at
DEPTH = 4
LISTED = 3


LeaveOut = Callable[[str], None]


def _silent(reason: str) -> None:
    """Report nothing."""


def places_below(folder: Path, depth: int = DEPTH, leave_out: LeaveOut = _silent) -> list[str]:
    """Return the folders below ``folder`` that hold a warehouse or the state of an engine, by their names, and those
    that an engine has begun and that cannot be read yet. Nothing below one of them is looked at.

    Of more than MOST folders, the nearest ones are looked at. ``leave_out`` gets a sentence about folders that are not
    looked at: because they are too many, lie more than ``depth`` folders down, or cannot be listed.
    """
    return sorted(str(path) for path, _ in _places(folder, depth, leave_out))


def places_beside(folder: Path, engine: Engine | None) -> list[str]:
    """Return the folders directly in a place, the state of ``engine`` or a warehouse, that are places of their own and
    no part of it."""
    included = engine if engine is not None and engine.includes_below else None
    found = [(path, of) for path, of in _places(folder, 1) if of is not None and of is not included]
    return sorted(str(path) for path, _ in found)


def hint_of(places: list[str], root: Path) -> str:
    """Return the end of an error about their folder; empty if there are none."""
    if not places:
        return ""
    return f"; its folders can be opened, each with a path of its own: {listed_below(places, root)}"


def listed_below(places: list[str], root: Path) -> str:
    """Return the first of some folders below ``root``, by their paths from there."""
    listed = ", ".join(str(Path(each).relative_to(root)) for each in places[:LISTED])
    return f"{listed} and {len(places) - LISTED} more" if len(places) > LISTED else listed


def _places(root: Path, depth: int, leave_out: LeaveOut = _silent) -> Iterator[tuple[Path, Engine | None]]:
    """Yield the places below a folder, the nearest first, and the engine whose state each is."""
    waiting = deque([(root, 0)])
    looked = 0
    is_cut = False
    deep: list[Path] = []
    while waiting and not is_cut:
        folder, level = waiting.popleft()
        children = _folders_in(folder, leave_out)
        if level == depth:
            deep += [folder] if children else []
            continue
        for child in children:
            if looked == MOST:
                is_cut = True
                break
            looked += 1
            is_place, engine = _place(child)
            if is_place:
                yield child, engine
            elif level + 1 < depth or leave_out is not _silent:
                waiting.append((child, level + 1))
    if is_cut:
        leave_out(f"only the nearest {MOST:,} folders were looked at; give paths further down")
    if deep:
        listed = listed_below([str(each) for each in deep], root)
        leave_out(f"folders more than {depth} folders down were not looked at, those in {listed}; give their paths")


def _folders_in(folder: Path, leave_out: LeaveOut) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = (each.name for each in entries if each.is_dir(follow_symlinks=False) or _links_to_folder(each))
            return [folder / name for name in sorted(islice(found, MOST + 1))]
    except OSError as error:
        leave_out(f"{folder} was not looked at: {error.strerror or error}")
        return []


def _links_to_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a link to a folder outside of its own, which no loop of links is."""
    if not entry.is_symlink() or not Path(entry.path).is_dir():  # False for a loop of links
        return False
    target, here = Path(entry.path).resolve(), Path(entry.path).parent.resolve()
    return not here.is_relative_to(target)


def _place(folder: Path) -> tuple[bool, Engine | None]:
    try:
        if (folder / STORE_FILE).is_file():  # a store is part of a warehouse, and no engine is asked about it
            return False, None
        listed = folder_at(parse_location(folder)).remembering()
        engine = recognised(listed)
        if engine is not None or unreadable(listed):
            return True, engine
        return any((each / STORE_FILE).is_file() for each in folder.iterdir()), None
    except (StateStoreError, OSError):
        return False, None
