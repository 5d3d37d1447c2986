"""The choice of who compacts a store for its writers: a thread, a process, or nobody."""

from __future__ import annotations

from typing import Any, Literal

from statestore.catalog.log.storage import local_root
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.background_compaction import Background, background_of
from statestore.catalog.upkeep.compaction_process import CompactionProcess, compaction_process_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown

AutoCompact = bool | Literal["process"]


def compaction_of(files: SegmentFiles, chosen: Any) -> Background | CompactionProcess | None:
    """Return what compacts a store for the writers of this process; None if nothing does.

    Raises InvalidInputError INVALID_OPTION for another choice, or for a process and a store that is not local.
    """
    if chosen is True:
        return background_of(files)
    if chosen is False:
        return None
    if chosen != "process":
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'auto_compact={shown(chosen)}: expected True (a thread), "process" or False',
        )
    if local_root(files.storage) is None:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f'store {files.spec.name!r}: auto_compact="process" needs a store in a local directory; use True',
        )
    return compaction_process_of(files)
