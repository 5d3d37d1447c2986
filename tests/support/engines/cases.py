"""State of each engine with its true rows, for the suite of all engines.

A new engine adds a function that makes a case, and its name to `CASES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.formats.flink.engine import open_state
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.checkpoint.state_views import find_state_view
from support.checkpoints.checkpoint_models import states_of
from support.checkpoints.checkpoint_tables import began, micros
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset, opened
from support.engines.toys import STEP, VERSIONS, write_toys
from support.flink.fixtures import fixture, manifest, taken_us
from support.keyed.keyed_made import STATES, make

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """The tables of ``path``: ``states`` are the rows of each readable version, ``times`` when versions began to hold
    (epoch microseconds), by table. ``whole``: nothing was before the oldest of them. ``sized``: the bytes of one table
    are known."""

    path: str
    states: dict[str, dict[int, Counter[Row]]]
    times: dict[int, int]
    whole: bool = True
    sized: bool = True


def toys(folder: Path) -> Case:
    path = write_toys(folder / "toys")
    rows = {number: Counter((*key, n) for key, n in state.items()) for number, state in VERSIONS.items()}
    return Case(str(path), {"toys": rows}, {number: number * STEP * 1000 for number in VERSIONS})


def keyed(folder: Path, discard: tuple[int, ...] = ()) -> Case:
    made = make(folder / "warehouse", seed=7, tasks=2, versions=5, discard=discard)
    states = {
        f"sessions.{state}": {
            version: Counter((*key, value) for key, value in kept[state].items()) for version, kept in made.kept.items()
        }
        for state in STATES
    }
    return Case(made.path, states, made.times, made.whole)


def spark(name: str) -> Case:
    """A checkpoint; that each batch is read as Spark reads it is the subject of tests/formats/spark."""
    checkpoint, path = opened(name), checkpoint_path(name)
    several = len(checkpoint.operators) > 1
    states = {}
    for operator in checkpoint.operators:
        for shown in USER_STATES[name]:
            found = find_state_view(checkpoint, operator.operator_id, {"state": "default"}.get(shown, shown))
            states[f"{shown}_{operator.operator_id}" if several else shown] = states_of(checkpoint, found)
    return Case(str(path), states, {batch: micros(began(path, batch)) for batch in checkpoint.batches})


def flink(run: str, states: tuple[str, ...], folder: str = "") -> Case:
    """The snapshots of a job, each read by itself; that they are what the job counted is tested in tests/formats."""
    found: dict[str, dict[int, Counter[Row]]] = {state: {} for state in states}
    for each in manifest(run)["snapshots"]:
        if not each["path"].startswith(folder):
            continue
        source = open_state(parse_location(fixture(run) / each["path"]), {})
        for state in states:
            at = source.at(state, each["checkpoint_id"])
            batches = [batch for part in at.parts(()) for batch in at.rows(part, at.schema.names, ())]
            found[state][each["checkpoint_id"]] = multiset(pa.Table.from_batches(batches, at.schema))
    times = {number: taken_us(number) for rows in found.values() for number in rows}
    return Case(str(fixture(run) / folder), found, times, whole=False, sized=False)


FLINK_STATES = {
    "rocksdb": ("kv-long.history", "kv-tuple.m", "timers.event_user-timers"),
    "hashmap": ("kv-long.balance", "kv-string.attrs", "kv-tuple.m"),
    "windows-hashmap": ("count.window-contents", "interval-join.LEFT_BUFFER"),
}
USER_STATES = {
    "spark4.3.0-agg__rkcl": ("state",),
    "spark4.3.0-agg__hdfs": ("state",),
    "spark4.3.0-join__hdfs": ("left", "right"),
    "spark4.3.0-twsttl__rkcl": ("mp", "lst", "timers"),
}
CASES: dict[str, Callable[[Path], Case]] = {
    "toy": toys,
    "keyed": keyed,
    "keyed without its first snapshots": lambda folder: keyed(folder, discard=(1, 3)),
    **{
        f"flink {run}": lambda _, run=run, states=states: flink(run, states)  # type: ignore[misc]
        for run, states in FLINK_STATES.items()
    },
    "flink rescaled": lambda _: flink("rescaled-small", ("accounts.order",), "70ff416c315c67a5cac9773d02ca16e6"),
    **{f"spark {name}": lambda _, name=name: spark(name) for name in USER_STATES},  # type: ignore[misc]
}


def rows_of(table: pa.Table) -> Counter[Row]:
    """Rows as plain values, counted."""
    return multiset(table)
