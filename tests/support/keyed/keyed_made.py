"""Keyed stores with a random history, and plain dicts of the values put into them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import statestore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind
from statestore.catalog.reads.table import Table

Rows = dict[tuple[Any, ...], Any]
"""Values by all columns that tell rows apart."""
STATES = ("attrs", "counts")
NAMES = [f"sessions.{state}" for state in STATES]
KINDS: tuple[SnapshotKind, ...] = ("full", "incremental", "incremental")


@dataclass
class Made:
    """A keyed store. ``kept``: the content of each kept snapshot, by state; ``times``: the time of each version's
    commit."""

    warehouse: str | Path
    kept: dict[int, dict[str, Rows]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    whole: bool = True
    """Whether nothing was discarded before the oldest that is kept."""

    @property
    def path(self) -> str:
        return str(self.warehouse)

    @property
    def newest(self) -> dict[str, Rows]:
        return self.kept[max(self.kept)]

    def at(self, version: int) -> datetime:
        return datetime.fromtimestamp(self.times[version] / 1_000_000, UTC)

    def table(self, state: str) -> Table:
        return statestore.inspect(self.path).table(f"sessions.{state}")


def make(
    warehouse: str | Path, seed: int = 0, tasks: int = 1, versions: int = 5, discard: tuple[int, ...] = ()
) -> Made:
    """A store "sessions" of users with a count each (a value state) and attributes (a map)."""
    chance = random.Random(seed)
    made = Made(warehouse)
    users = [f"user {number}" for number in range(40)] + ["", "é\0x"]
    model: dict[str, Rows] = {state: {} for state in STATES}
    with statestore.connect(warehouse).create_store("sessions", kind="keyed", key={"user": "string"}) as store:
        groups = store.task_groups(tasks)
        backends = [store.backend(each) for each in groups]
        states = [(b.value_state("counts", "bigint"), b.map_state("attrs", "string", "double")) for b in backends]
        for _ in range(versions):
            for _ in range(chance.choice([0, 8, 30])):
                user = chance.choice(users)
                group = backends[0].key_group(user)
                number = next(place for place, each in enumerate(groups) if group in each)
                backends[number].set_current_key(user)
                _change(chance, user, states[number], model)
            kind = chance.choice(KINDS)
            version = store.commit([backend.snapshot(kind).result() for backend in backends])
            for backend in backends:
                backend.notify_complete(version)
            made.kept[version] = {state: dict(rows) for state, rows in model.items()}
        for backend in backends:
            backend.dispose()
        for version in discard:
            store.discard(version)
            made.whole = made.whole and version != min(made.kept)
            del made.kept[version]
        versions_table = statestore.inspect(str(warehouse)).table("sessions.counts$versions").scan().read_all()
    for row in versions_table.to_pylist():
        made.times[row["version"]] = round(row["timestamp"].timestamp() * 1_000_000)
    return made


def _change(chance: random.Random, user: str, states: tuple[Any, Any], model: dict[str, Rows]) -> None:
    counts, attrs = states
    attribute, value = chance.choice("abc"), chance.choice([None, 0.5, float(chance.randrange(9))])
    what = chance.randrange(6)
    if what < 2:
        count = chance.randrange(100)
        counts.update(count)
        model["counts"][user,] = count
    elif what == 2:
        counts.clear()
        model["counts"].pop((user,), None)
    elif what < 5:
        attrs.put(attribute, value)
        model["attrs"][user, attribute] = value
    else:
        attrs.remove(attribute)
        model["attrs"].pop((user, attribute), None)


def rows(table: pa.Table) -> Rows:
    """A table's rows as the models have them; each key once."""
    found = [tuple(row.values()) for row in table.to_pylist()]
    assert len({row[:-1] for row in found}) == len(found)
    return {row[:-1]: row[-1] for row in found}


def expected_changes(made: Made, state: str, first: int = 0, last: int = 1 << 40) -> Counter[tuple[Any, ...]]:
    """(key…, value, kind, version) of the snapshots from ``first`` to ``last`` whose changes are known."""
    found: Counter[tuple[Any, ...]] = Counter()
    before: Mapping[tuple[Any, ...], Any] | None = {} if made.whole else None
    for version, states in made.kept.items():
        after = states[state]
        if before is not None and first <= version <= last:
            for key in before.keys() | after.keys():
                if key not in before:
                    found[(*key, after[key], "insert", version)] += 1
                elif key not in after:
                    found[(*key, before[key], "delete", version)] += 1
                elif before[key] != after[key]:
                    found[(*key, before[key], "update_preimage", version)] += 1
                    found[(*key, after[key], "update_postimage", version)] += 1
        before = after
    return found


def told_changes(made: Made, table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The changes in an answer in the form of `expected_changes`; their times must be those of their versions."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        *cells, moment, kind, version, committed = row.values()
        assert moment == committed == made.at(version)
        found[(*cells, kind, version)] += 1
    return found


def expected_history(made: Made, state: str, last: int = 1 << 40) -> Counter[tuple[Any, ...]]:
    """(key…, value, from, to, version) of all rows up to snapshot ``last``; two snapshots of one time leave none. Since
    when a row of the oldest snapshot was there is only known if nothing was discarded before it."""
    found: Counter[tuple[Any, ...]] = Counter()
    current: dict[tuple[Any, ...], tuple[Any, int]] = {}
    unknown = None if made.whole else min(made.kept)

    def start(since: int) -> tuple[datetime | None, int | None]:
        return (None, None) if since == unknown else (made.at(since), since)

    for version, states in made.kept.items():
        if version > last:
            break
        after = states[state]
        for key, (value, since) in list(current.items()):
            if key not in after or after[key] != value:
                if made.times[since] < made.times[version] or since == unknown:
                    begun, by = start(since)
                    found[(*key, value, begun, made.at(version), by)] += 1
                del current[key]
        for key, value in after.items():
            current.setdefault(key, (value, version))
    for key, (value, since) in current.items():
        begun, by = start(since)
        found[(*key, value, begun, None, by)] += 1
    return found


def told_history(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


# Other stores


def prices(path: str | Path, name: str) -> None:
    with statestore.connect(path).create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
        store.put("naan", 1.5, timestamp=1000)
        store.commit()


def one_state(path: Path, store: str, state: str, key: int = 1) -> None:
    opened = statestore.connect(path).create_store(store, kind="keyed", key={"k": "int"})
    with opened.backend() as backend:
        value = backend.value_state(state, "string")
        backend.set_current_key(key)
        value.update(f"{store}/{state}")
        opened.commit([backend.snapshot().result()])
