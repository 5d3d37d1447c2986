"""Names of files and folders that hold changelogs: a broker's log directory, or files of exported records.

<topic>-<partition>/<20 digits>.log        segments of a broker's log, of any topic
<topic>-changelog[-<n>].jsonl              records of a changelog; also Parquet and Arrow files
"""

from __future__ import annotations

import re

from statestore.formats.places.folder import Folder

SUFFIX = "-changelog"
RECORD_FILE = re.compile(rf"(.+{SUFFIX})(-\d+)?\.(jsonl|ndjson|json|parquet|arrow|feather|ipc)")
_PARTITION_FOLDER = re.compile(r".+-\d+")
_SEGMENT = re.compile(r"\d{20}\.log")
_MOST_LISTED = 8


def recognises_changelogs(folder: Folder) -> bool:
    """Return whether a local folder has topics: by names alone, and one listing more at most."""
    if not folder.is_local:
        return False
    if any(RECORD_FILE.fullmatch(name) for name in folder.files()) or _has_segment(folder):
        return True
    partitions = [name for name in folder.folders() if _PARTITION_FOLDER.fullmatch(name)]
    return any(_has_segment(folder.at(name)) for name in partitions[:_MOST_LISTED])


def _has_segment(folder: Folder) -> bool:
    return any(_SEGMENT.fullmatch(name) for name in folder.files())
