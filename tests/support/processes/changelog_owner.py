"""A process that owns a changelog: it acknowledges three batches, prints that, and waits to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from statestore.formats.changelogs.changelog_writer import ChangelogWriter

if __name__ == "__main__":
    writer = ChangelogWriter(Path(sys.argv[1]), pa.schema({"n": pa.int64()}))
    for number in range(3):
        writer.append(pa.record_batch({"n": [number]}))
    print("acknowledged", flush=True)
    sys.stdin.read()
