"""The process that compacts a store for a writer: ``python -m statestore.catalog.upkeep.compaction_worker FOLDER``.

It opens the store by itself and compacts it as a writer's own thread does (`Background`). Lines that it reads:
``commit ROWS`` after a commit of so many rows, and ``finish`` when the writer closes its handle. Lines that it
writes are JSON: ``{"failed": …}`` after each step, null if it succeeded, and ``{"finished": true}``. It ends when its
input does: after the step that is under way, which is given up.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.store_spec import STORE_FILE, decode_spec
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.upkeep.background_compaction import Background
from statestore.formats.errors import StateStoreError

READ_BYTES = 1 << 16


def main(folder: Path) -> None:
    """Compact the store of a folder until the input ends."""
    logging.getLogger("statestore").addHandler(logging.NullHandler())  # the writer logs what fails
    storage = LocalStorage(folder)
    files = shared_files(storage, decode_spec(storage.read(STORE_FILE), str(folder / STORE_FILE)))
    background = Background(files, report=lambda: _say(failed=background.failed))
    log_state = files.log_state()
    for rows, finishes in _messages():
        try:
            log_state = load_log_state(storage, base=log_state)
            if rows:
                background.committed(log_state, rows)
            if finishes:
                background.finish(log_state)
        except StateStoreError as error:
            _say(failed=f"{type(error).__name__}: {error}")
        if finishes:
            _say(finished=True)
    background.stop()


def _messages() -> Iterator[tuple[int, bool]]:
    """Yield (rows committed, whether to finish) of all lines that have come since the last look."""
    rest = b""
    while data := os.read(sys.stdin.fileno(), READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        words = [line.split() for line in lines]
        yield sum(int(word[1]) for word in words if word[0] == b"commit"), [b"finish"] in words


def _say(**message: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except StateStoreError as error:
        _say(failed=f"{type(error).__name__}: {error}")
        sys.exit(1)
