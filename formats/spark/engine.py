"""Spark Structured Streaming as an `Engine`: the checkpoints of its queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from statestore.formats.engine_offer import Engine
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import Location
from statestore.formats.spark.state_options import EDIT_SETTINGS, OPTIONS, selection_of
from statestore.formats.values.expansion import parse_json

if TYPE_CHECKING:
    from statestore.formats.engine import Source


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a checkpoint with state, also of a query that has committed no batch yet."""
    return folder.holds("commits", "state") or folder.holds("offsets", "state")


def unreadable(folder: Folder) -> str:
    """Return what a checkpoint without state is: of a query that has not committed a batch, or that keeps no state."""
    found = set(folder.folders())
    if not found and _is_new(folder):
        return (
            "is the checkpoint of a streaming query that has planned no batch yet (it has metadata, and no folder "
            "offsets); see the log of the query"
        )
    if "offsets" not in found or not ({"commits", "sources", "state"} & found or "metadata" in folder.files()):
        return ""
    there = ", ".join(sorted({"metadata", *_FOLDERS} & {*found, *folder.files()}))
    if "commits" in found:
        last = max(folder.at("commits").numbered(), default=None)
        done = "has committed no batch yet" if last is None else f"has committed batch {last}"
        return (
            f"is the checkpoint of a streaming query that {done} and keeps no state (it has {there}, and no folder "
            "state); only queries with aggregation, deduplication, a join of streams or state of their own keep some"
        )
    planned = max(folder.at("offsets").numbered(), default=None)
    begun = "" if planned is None else f"; batch {planned} was begun"
    return (
        f"is the checkpoint of a streaming query whose first batch is not committed (it has {there}, and no folder "
        f"commits{begun}); the option uncommitted shows the state that it has written; or let the query commit it, and "
        "see its log if it does not"
    )


def _is_new(folder: Folder) -> bool:
    """Return whether all that a folder has is the id of a query."""
    if not folder.files().keys() <= {"metadata", ".metadata.crc"} or "metadata" not in folder.files():
        return False
    try:
        written = parse_json(folder.read_small("metadata"))
    except (StateStoreError, ValueError):
        return False
    return isinstance(written, dict) and set(written) == {"id"}


def open_state(location: Location, options: Mapping[str, str]) -> Source:
    """Open the states for users, or the one state that options of Spark's own ``statestore`` source select.

    Raises NotFoundError NOTHING_HERE for a query without a log of commits, unless its begun batches are asked for.
    Raises InvalidInputError STATE_SELECTION, NotFoundError SPARK_STATE_NOT_FOUND, CorruptError SPARK_STATE_FILE.
    """
    from statestore.formats.spark.checkpoint.checkpoint_files import SPARK_FILES
    from statestore.formats.spark.checkpoint.given_types import given_of
    from statestore.formats.spark.source import open_source

    lower = {name.lower(): value for name, value in options.items()}
    selection, given = selection_of(options), given_of(lower)
    folder = folder_at(location, SPARK_FILES).remembering()
    if not given.uncommitted and not folder.holds("commits"):
        raise NotFoundError(ErrorCode.NOTHING_HERE, f"{location} {unreadable(folder)}")
    if selection is None:
        return open_source(location, given)
    from statestore.formats.spark.selection import selected_source

    return selected_source(location, selection, given)


_FOLDERS = ("commits", "offsets", "sources", "state")
ENGINE = Engine(
    "spark",
    "checkpoint of Structured Streaming",
    OPTIONS,
    recognises,
    open_state,
    unreadable=unreadable,
    edit_settings=EDIT_SETTINGS,
)
