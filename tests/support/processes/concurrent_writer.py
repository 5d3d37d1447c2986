"""A process that commits to a store together with others: `concurrent_writer.py WAREHOUSE NAME COMMITS`.

Prints each commit as a line of JSON: [version, rows]. Started by test_concurrency.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator

import statestore
from support.stores.versioned_checks import HORIZON, Put, as_table


def commits(root: str, name: str, count: int) -> Iterator[tuple[int, list[Put]]]:
    """Write rows of random times, so that most are late for another writer, and compact now and then."""
    chance = random.Random(name)
    with statestore.connect(root).open_store("s") as store:
        for number in range(count):
            rows: list[Put] = []
            for _ in range(3):
                value = None if chance.random() < 0.2 else chance.randrange(100)
                rows.append((chance.choice("abcd"), value, chance.randrange(HORIZON)))
            if number % 2:
                for key, value, time in rows:
                    store.put(key, value, timestamp=time)
                version = store.commit(transaction=(name, number))
            else:
                version = store.write(as_table(rows))
            yield version, rows
            if number % 4 == 3:
                store.compact(full=chance.random() < 0.5)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    for done in commits(sys.argv[1], sys.argv[2], int(sys.argv[3])):
        print(json.dumps(done), flush=True)
