"""Rows of stores and files that processes read while some of them are killed, and what must come of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import statestore
from support.dying_workers.deaths import FOLDER
from support.local_cluster import MASTER, linked_home
from support.paths import TESTS
from support.processes.scripts import command

VERSIONS, IDS, STEP = 6, 3_000, 1_500
FILES, ROWS, USERS = 3, 4_000, 9_000
AMOUNTS = [(amount * 7_919 % USERS, amount) for amount in range(FILES * ROWS)]
"""User and amount of the rows of files."""
Case = tuple[str, str, str, int, str, int]
"""A query, a step, when in it, the number of deaths, who dies, and how often the step is passed before."""


def version_rows(version: int) -> dict[int, int]:
    """The value of each id that a commit writes; half of the ids are those of the commit before."""
    first = (version - 1) * STEP
    return {each: version * 100_000 + each for each in range(first, first + IDS)}


def write_input(folder: Path) -> None:
    """Write the stores ``t``, versioned, and ``live``, and the files."""
    catalog = statestore.connect(folder / "w")
    types: dict[str, Any] = {"key": {"id": "bigint"}, "value": {"v": "bigint"}}
    with catalog.create_store("t", **types) as store, catalog.create_store("live", "key_value", **types) as live:
        for version in range(1, VERSIONS + 1):
            rows = version_rows(version)
            table = pa.table({"id": list(rows), "v": list(rows.values())})
            store.write(table.append_column("timestamp", pa.array([version * 1000] * len(rows))))
            live.write(table)
    (folder / "in").mkdir()
    for number in range(FILES):
        users, amounts = zip(*AMOUNTS[number * ROWS : (number + 1) * ROWS], strict=True)
        path = folder / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"user": users, "amount": amounts}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def state(version: int) -> dict[int, int]:
    """The value of each id after a commit."""
    found: dict[int, int] = {}
    for number in range(1, version + 1):
        found |= version_rows(number)
    return found


def changes() -> Iterable[tuple[int, str, int, int]]:
    """The change feed of the stores: version, kind, id, value."""
    for version in range(1, VERSIONS + 1):
        before = state(version - 1)
        for each, value in version_rows(version).items():
            if each in before:
                yield version, "update_preimage", each, before[each]
            yield version, "update_postimage" if each in before else "insert", each, value


def joined() -> Counter[tuple[int, int, int]]:
    """The rows whose user had a value at the time of the amount, with that value."""
    rows = {n: version_rows(n) for n in range(1, VERSIONS + 1)}
    met = [(user, amount, [n for n in rows if n * 1000 <= amount and user in rows[n]]) for user, amount in AMOUNTS]
    return Counter((user, amount, rows[found[-1]][user]) for user, amount, found in met if found)


def counted() -> Counter[tuple[int, int]]:
    """Each user with each number that a count by user comes to."""
    seen = Counter[int]()
    found = Counter[tuple[int, int]]()
    for user, _ in AMOUNTS:
        seen[user] += 1
        found[user, seen[user]] += 1
    return found


def run(script: str, folder: Path, master: str, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Run the cases in a process with a session of its own, on these rows; return what came of them."""
    write_input(folder)
    paths = [str(TESTS / "support" / "dying_workers"), str(TESTS), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, FOLDER: str(folder / "deaths"), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if master == MASTER:
        env["SPARK_HOME"] = str(linked_home(folder))
    done = subprocess.run(
        command(script, master, folder, json.dumps(cases)), capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found
