"""A process that commits to a store in an object store: `object_store_writer.py WAREHOUSE NAME COMMITS`.

Each commit has two keys that nobody else writes. Prints ``[number, version]`` as a line of JSON once a commit is
acknowledged. A commit that fails is repeated on the same handle, as a user would do.
"""

from __future__ import annotations

import json
import sys
import time

import statestore
from statestore.formats.errors import ConflictError, StorageError

PATIENCE = 120.0  # seconds


def acknowledged(store: statestore.VersionedStore) -> int:
    """Commit until the object store answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return store.commit()
        except (StorageError, ConflictError):
            if time.monotonic() > deadline:
                raise


def main(warehouse: str, name: str, commits: int) -> None:
    with statestore.connect(warehouse).open_store("counts", auto_compact=name.endswith("0")) as store:
        for number in range(commits):
            for part in "ab":
                store.put(f"{name}-{number}-{part}", number, timestamp=1_000 + number)
            print(json.dumps([number, acknowledged(store)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
