"""A script that takes keyed snapshots in an object store and kills itself at the n-th step of a request that writes.

A step is before and after each put and each removal, in any thread. The store is never made anew: a process goes on
where the one before it died, one fork after another, until one survives. Each batch adds one to the value of every key,
as a transaction, so the rows of each snapshot say how often every batch was done. The script prints the number of
deaths, then the problems that a process of its own found after each.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_objects
from statestore.formats.places.locations import parse_location
from support.processes.dying_backend import survived
from support.processes.dying_requests import die_at_request

KEYS = [f"k{number}" for number in range(60)]
BATCHES = 4


def opened(uri: str) -> KeyedStore:
    location = parse_location(uri)
    store: KeyedStore = statestore.connect(location.parent.uri).open_store(location.name)
    return store


def batches(uri: str, local: Path, last: int) -> None:
    """Do batches: two tasks each, full and incremental snapshots by turns, of which the newest two are kept."""
    die_at_request(last, "put", "delete")
    stored_objects.WHOLE_BYTES = 2_000  # larger ones go in parts
    store = opened(uri)
    newest = max(store.retained(), default=0)
    done = 0 if not newest else store.scan("v", version=newest).read_all()["value"].to_pylist()[0]
    backends = [store.backend(groups, directory=local) for groups in store.task_groups(2)]
    for number in range(done + 1, done + 1 + BATCHES):
        for backend in backends:
            value = backend.value_state("v", "bigint", default=0)
            for key in KEYS:
                if backend.key_group(key) in backend.key_groups:
                    backend.set_current_key(key)
                    value.update(value.value() + 1)
        kind: Any = "incremental" if number % 3 else "full"
        running = [backend.snapshot(kind) for backend in backends]
        version = store.commit([each.result() for each in running], transaction=("app", number))
        for backend in backends:
            backend.notify_complete(version)
        for old in store.retained()[:-2]:
            store.discard(old)
    for backend in backends:
        backend.dispose()


def problems(uri: str) -> list[str]:
    wrong: list[str] = []
    location = parse_location(uri)
    (verified,) = statestore.verify(uri)
    wrong += [str(problem) for problem in verified.problems]
    store = opened(uri)
    numbers = []
    for version in store.retained():
        rows = store.scan("v", version=version).read_all().to_pylist()
        values = {row["value"] for row in rows}
        if len(rows) != len(KEYS) or len(values) != 1:
            wrong.append(f"version {version} has {len(rows)} rows with {values}")
        numbers += list(values)
    if sorted(set(numbers)) != numbers:
        wrong.append(f"batches are there twice: {numbers}")
    done = [row["batch"] for row in store.versions().to_pylist() if row["application"] == "app"]
    if done != list(range(1, len(done) + 1)):
        wrong.append(f"transactions of {location.name}: {done}")
    spare = {each.name for each in store.vacuum(0, dry_run=True)}
    if spare != {name for name, _ in verified.unreferenced}:
        wrong.append(f"vacuum finds {spare}, verification {verified.unreferenced}")
    return wrong


def main(uri: str, local: Path, step: int) -> None:
    def begin() -> None:
        location = parse_location(uri)
        statestore.connect(location.parent.uri).create_store(location.name, "keyed", key={"k": "string"}, key_groups=8)

    def look(last: int) -> None:
        for problem in problems(uri):
            print(f"killed at step {last}: {problem}", flush=True)

    survived(begin)
    last, died = 1, 0
    while not survived(partial(batches, uri, local, last)):
        survived(partial(look, last))
        died, last = died + 1, last + step
    survived(partial(look, 0))
    print(f"died {died} times", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
