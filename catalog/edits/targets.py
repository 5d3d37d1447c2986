"""The place of a target: a folder of this machine, or one of an object store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from statestore.catalog.edits.target_errors import lies_in_source
from statestore.catalog.edits.target_folder import TargetFolder, new_folder, refuse_existing, refuse_inside
from statestore.formats.places.locations import (
    OBJECT_SCHEMES,
    Location,
    bucket_of,
    is_object_store,
    not_local,
    parse_location,
)

if TYPE_CHECKING:
    from statestore.catalog.edits.object_target import ObjectTarget

MadeTarget: TypeAlias = "TargetFolder | ObjectTarget"
"""A target while it is made."""


def target_location(target: str | os.PathLike[str]) -> Location:
    """Return the place of a target. Raises UnsupportedError UNSUPPORTED_PATH for one that is neither local nor in an
    object store, InvalidInputError TARGET_EXISTS where something is, NO_ACCESS."""
    location = parse_location(target)
    if location.is_local:
        refuse_existing(location.path)
    elif is_object_store(location):
        from statestore.catalog.edits.object_claim import refuse_objects

        refuse_objects(location)
    else:
        raise not_local(location, "the target of an edit is in an object store or")
    return location


def refuse_around(target: Location, folder: Location) -> None:
    """Raise InvalidInputError TARGET_EXISTS for a target within a folder of the source, or around it."""
    if target.is_local and folder.is_local:
        refuse_inside(target.path, folder.path)
    kinds = {OBJECT_SCHEMES.get(each.scheme) for each in (target, folder)}
    if len(kinds) > 1 or None in kinds or bucket_of(target) != bucket_of(folder):
        return
    one, other = (f"{each.path}/".lstrip("/") for each in (target, folder))
    if one.startswith(other) or other.startswith(one):
        raise lies_in_source(str(target), str(folder))


@contextlib.contextmanager
def new_target(location: Location) -> Iterator[MadeTarget]:
    """Lend a target that is there once it is published, and of which nothing is left if it was not."""
    if location.is_local:
        with new_folder(Path(location.path)) as folder:
            yield folder
        return
    from statestore.catalog.edits.object_target import new_objects

    with new_objects(location) as objects:
        yield objects
