"""Names of the files of a RocksDB directory, and the generation of their content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from statestore.formats.kafka.directory.listings import Entry

CURRENT = "CURRENT"
FIXED = re.compile(r"[0-9]{1,20}\.(sst|ldb|blob)")
"""Names of files that never change once RocksDB's MANIFEST refers to them."""
CHANGING = re.compile(r"CURRENT|MANIFEST-[0-9]{1,20}|OPTIONS-[0-9]{1,20}|[0-9]{1,20}\.log")
"""Names of other files that RocksDB needs to open a directory."""
MANIFEST = re.compile(r"MANIFEST-[0-9]{1,20}")


def generation_of_files(entries: Iterable[Entry]) -> str:
    """A text that changes with the files of a database that hold rows: their names, sizes and times of change."""
    return digest(
        {
            entry.name: [entry.size, entry.modified]
            for entry in entries
            if entry.kind == "file"
            and (entry.name == CURRENT or MANIFEST.fullmatch(entry.name) or FIXED.fullmatch(entry.name))
        }
    )


def digest(parts: Mapping[str, object]) -> str:
    """32 hexadecimal digits that differ where the parts differ."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
