"""Rebuilt stores against the model: every kept moment, and every later put, as in the original store.

Programs come from seeds: late records, deletes, records of one time, compactions and expiries. ``STATESTORE_EXAMPLES``
sets the number of programs.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow
from support.stores.attempted_tasks import AttemptedTasks
from support.stores.live_kinds import COLUMNS, create, live_rows, rows
from support.stores.live_places import PLACES, warehouse_in
from support.stores.versioned_checks import HORIZON, INTERVAL, as_row, as_table, rows_of
from support.stores.versioned_model import Key, Model, Row, Times, end_of
from support.stores.versioned_pair import small_thresholds

import statestore
from statestore.catalog.stores.versioned import replay_in_tasks
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import compaction_rules, rebuild
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError

__all__ = ["small_thresholds"]  # a fixture: these histories need small thresholds, too

EXAMPLES = int(os.environ.get("STATESTORE_EXAMPLES", "40"))
KEYS = "abc"
NEVER = -(10**6)

OTHER_KINDS: dict[str, dict[str, Any]] = {
    "key_value": {},
    "window": {"retention": 12, "window_size": 2},
    "session": {"retention": 12},
}

Put = tuple[str, int | None, int]


class History:
    """A store with a random history, closed, and what the model knows of it: the horizon is (``time``, ``version``)."""

    def __init__(self, folder: Path, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.catalog = statestore.connect(folder)
        self.model = Model(options.get("history_retention"))
        self.time, self.version = NEVER, 0
        with self.catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}, **options):
            pass
        with self.catalog.open_store("s", auto_compact=False) as store:
            for _ in range(self.random.randrange(1, 9)):
                self._commit(store)
                if self.random.random() < 0.3:
                    store.compact(full=self.random.random() < 0.5)
                if self.random.random() < 0.15:
                    self._expire(store, self.random.randrange(HORIZON))
                self._follow(store)

    def puts(self, count: int) -> list[Put]:
        chosen = self.random
        return [
            (chosen.choice(KEYS), None if chosen.random() < 0.35 else chosen.randrange(9), chosen.randrange(HORIZON))
            for _ in range(count)
        ]

    def _commit(self, store: VersionedStore) -> None:
        rows = [row for row in self.puts(self.random.randrange(1, 9)) if row[2] >= self.time]
        accepted = sum(self.model.put(*row)[0] for row in rows)
        assert store.put_all(as_table(rows)).accepted == accepted
        if rows:
            store.commit()
            self.model.commit()

    def _expire(self, store: VersionedStore, before: int) -> None:
        self._follow(store)
        if before > self.time:
            seen = self.model.stream_times
            self.time, self.version = before, max(v for v, time in enumerate(seen) if time <= before)
            store.expire(before=before)

    def _follow(self, store: VersionedStore) -> None:
        while len(self.model.states) <= store.version:
            self.model.same_again()
        assert len(self.model.states) == store.version + 1

    def replayed(self, retention: int | None) -> Model:
        """The commits in a model of another retention: each is one turn. What begins by the horizon is not judged."""
        model = Model(retention, self.model.stream_time)
        for version in range(1, len(self.model.states)):
            limit = NEVER if retention is None else self.model.stream_times[version - 1] - retention
            for key, time in self.model.touched[version]:
                if time <= self.time or time >= limit:
                    _set(model.current, key, time, self.model.states[version])
        model.pending = {(key, time) for key, times in model.current.items() for time in times}
        model.commit()
        return model

    def last_writes(self) -> dict[Key, Any]:
        """The value of each key by its last write, as far as an expiry has left it."""
        states = self.model.states
        found = {row[0]: row[1] for row in states[self.version] and self.model.state_at(self.version)}
        for version in range(self.version + 1, len(states)):
            before, after = states[version - 1], states[version]
            for key, time in sorted(self.model.touched[version], key=lambda touched: touched[1]):
                state = after if time in after.get(key, {}) else before
                if time in state.get(key, {}) and _reaches(end_of(state[key], time), self.time):
                    found[key] = after[key].get(time) if key in after else None
        return {key: value for key, value in found.items() if value is not None}


def _set(current: dict[Key, Times], key: Key, time: int, state: dict[Key, Times]) -> None:
    if time in state.get(key, {}):
        current.setdefault(key, {})[time] = state[key][time]
    else:
        current.get(key, {}).pop(time, None)


def _reaches(end: int | None, horizon: int) -> bool:
    return end is None or end > horizon


def check(store: VersionedStore, model: Model, horizon: int) -> None:
    """Check the newest belief about every moment from the horizon on."""
    newest = len(model.states) - 1
    known: set[Row] = {row[:4] for row in model.history(newest) if _reaches(row[3], horizon)}
    assert set(rows_of(store.history(), *INTERVAL)) == known
    for time in range(max(horizon, -1), HORIZON + 1):
        assert set(rows_of(store.scan(as_of=time), *INTERVAL)) == model.state_at(newest, time), f"as of {time}"
    assert set(rows_of(store.scan(), *INTERVAL)) == model.state_at(newest)
    assert store.observed_stream_time == model.stream_time
    if horizon > NEVER:
        with pytest.raises(statestore.NotFoundError, match="keeps state from"):
            store.scan(as_of=horizon - 1)


def check_with_later_puts(store: VersionedStore, history: History, model: Model) -> None:
    """Check a rebuilt store now, and after each of some more puts, most of which are late."""
    check(store, model, history.time)
    for put in history.puts(6):
        if put[2] < history.time:
            assert not store.put(put[0], put[1], timestamp=put[2]).accepted
            continue
        assert tuple(store.put(put[0], put[1], timestamp=put[2])) == model.put(*put)
        for time in (None, *range(max(history.time, -1), HORIZON)):
            assert as_row(store.get(put[0], as_of=time)) == model.get(put[0], time), f"{put}, as of {time}"
        store.commit()
        model.commit()
    check(store, model, history.time)


@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), 20))
def test_a_rebuilt_store_answers_and_goes_on_as_the_original(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    with history.catalog.rebuild("s", key_groups=7) as store:
        check_with_later_puts(store, history, history.replayed(None))
    assert history.catalog.verify("s").ok


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> AttemptedTasks:
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=2))
    monkeypatch.setattr(rebuild, "SPLIT_EVENTS", 2)
    return AttemptedTasks(parallelism=3, attempts=2, counts=1)


@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), 40))
def test_a_rebuild_in_tasks_has_the_same_answers(tmp_path: Path, tasks: AttemptedTasks, seed: int) -> None:
    history = History(tmp_path, seed)
    with history.catalog.rebuild("s", spark=tasks) as store:
        assert len(tasks.jobs) == 1
        check_with_later_puts(store, history, history.replayed(None))
    assert history.catalog.verify("s").ok


@pytest.mark.quick("0-kafka", "0-natural, in tasks")
@pytest.mark.parametrize("to", ["natural", "kafka", "natural, in tasks"])
@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), 40))
def test_a_new_retention_refuses_what_was_too_old_at_its_turn(
    tmp_path: Path, tasks: AttemptedTasks, seed: int, to: str
) -> None:
    serde, _, in_tasks = to.partition(", ")
    chosen = random.Random(seed)
    old, new = (chosen.choice((3, 8, 30)) for _ in range(2))
    history = History(tmp_path, seed, serde=serde, history_retention=old)
    model = history.replayed(new)
    with history.catalog.rebuild("s", history_retention=new, spark=tasks if in_tasks else None) as store:
        assert len(tasks.jobs) == bool(in_tasks)
        check(store, model, history.time)
        for key, value, time in history.puts(6):
            accepted = store.put(key, value, timestamp=time).accepted
            assert accepted == (time >= history.time and model.put(key, value, time)[0])
        store.commit()
        model.commit()
        check(store, model, history.time)


def test_refused_writes_are_counted_and_times_that_no_row_shows_are_kept(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for rows in ([("a", 1, 20)], [("a", 2, 5), ("b", 2, 12), ("b", 3, 15)], [("c", 1, 90), ("c", None, 90)]):
            store.write(as_table(rows))
    with catalog.rebuild("s", history_retention=10) as store:
        assert (store.dropped_records, store.observed_stream_time) == (1, 90)
        assert not store.put("a", 1, timestamp=79).accepted
        assert {row[:2] for row in rows_of(store.history(), *INTERVAL)} == {("a", 1), ("b", 2), ("b", 3)}


@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), 40))
def test_a_store_without_versions_has_the_last_write_of_each_key(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    with history.catalog.rebuild("s", "key_value") as store:
        assert dict(rows_of(store.scan(), "k", "v")) == history.last_writes()


@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize("seed", mostly_slow(range(EXAMPLES), 40))
def test_a_store_of_another_kind_has_the_rows_of_the_original(tmp_path: Path, kind: str, seed: int) -> None:
    options = OTHER_KINDS[kind]
    chosen, catalog = random.Random(seed), statestore.connect(tmp_path)
    columns = ["k", "v"] if kind == "key_value" else None
    with catalog.create_store("s", kind, key={"k": "string"}, value={"v": "bigint"}, **options) as store:
        for number in range(6):
            for _ in range(4):
                key, time = chosen.choice("ab"), chosen.randrange(4 * number, 4 * number + 8)
                value = None if chosen.random() < 0.2 else chosen.randrange(100)
                put = {"key_value": (value,), "window": (value, time), "session": (time, time + 1, value)}[kind]
                store.put(key, *put)
            store.commit()
            if kind != "key_value" and chosen.random() < 0.2:
                store.expire(before=chosen.randrange(4 * number + 6))
            if chosen.random() < 0.2:
                store.compact(full=True)
        original, seen = _rows(store.scan(columns=columns)), store.observed_stream_time
        past = [] if columns else _rows(store.history(columns=[*store.spec.key.names, *INTERVAL[1:]]))
    with catalog.rebuild("s", **options) as store:
        assert _rows(store.scan(columns=columns)) == original
        if kind != "key_value":
            assert _rows(store.history(columns=[*store.spec.key.names, *INTERVAL[1:]])) == past
            assert store.observed_stream_time == seen


def _rows(reader: pa.RecordBatchReader) -> list[str]:
    return sorted(map(str, reader.read_all().to_pylist()))


# Rebuilds of live stores, and of versioned ones: another kind or retention, what is refused, what a death leaves.


@pytest.fixture(params=PLACES)
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> statestore.Catalog:
    return warehouse_in(tmp_path / "warehouse", request.param)


@pytest.fixture
def local_catalog(tmp_path: Path) -> statestore.Catalog:
    return statestore.connect(tmp_path / "warehouse")


@pytest.mark.quick("directory")
def test_unversioned_becomes_versioned_and_back(catalog: statestore.Catalog) -> None:
    with create(catalog, "key_value") as store:
        for round_ in range(3):
            store.put("a", round_)
            store.put("b", 10 + round_)
            store.commit()
        store.delete("b")
        store.commit()
        times = [row["valid_from"] for row in store.history(key="a").read_all().sort_by("valid_from").to_pylist()]
        store.put("c", 7)
    with catalog.rebuild("s", kind="versioned", history_retention="1 day") as versioned:
        assert [versioned.get("a", as_of=time).value for time in times] == [0, 1, 2]
        assert (versioned.get("b"), versioned.get("b", as_of=times[2]).value) == (None, 12)
        assert versioned.get("c").value == 7
        assert versioned.spec.history_retention == 86_400_000
    with catalog.rebuild("s", kind="key_value") as again:
        assert live_rows(again) == rows(again) == [("a", 2), ("c", 7)]
    if catalog.location.is_local:
        assert [path.name for path in catalog.root.iterdir()] == ["s"]


@pytest.mark.quick("objects")
def test_another_retention_forgets_what_is_too_old(catalog: statestore.Catalog) -> None:
    with create(catalog, "window") as store:
        for number in range(50):
            store.put("a", number, number * 60_000)
        store.commit()
    with catalog.rebuild("s", retention="10 minutes", window_size="1 minute", segment_interval="1 minute") as store:
        assert [row.value for row in store.all()] == list(range(40, 50))
        assert rows(store) == [("a", number) for number in range(40, 50)]


@pytest.mark.quick("directory")
def test_rebuild_after_expiry(catalog: statestore.Catalog) -> None:
    """The rows of the oldest kept version are the base."""
    with catalog.create_store("s", **COLUMNS, history_retention=100) as store:
        for time in range(0, 500, 50):
            store.put("a", time, timestamp=time)
            store.put("b", time, timestamp=7)
            store.commit()
        store.delete("b", timestamp=470)
        store.commit()
        store.expire()
    with catalog.rebuild("s", history_retention=1_000) as store:
        assert store.get("a").value == 450
        assert (store.get("b"), store.get("b", as_of=460).value) == (
            None,
            100,
        )  # at 7 it was put again until that was too late


@pytest.mark.parametrize("new", ["versioned", "session"])
def test_kinds_that_have_other_keys_are_refused(catalog: statestore.Catalog, new: str) -> None:
    create(catalog, "window").close()
    with pytest.raises(UnsupportedError, match="REBUILD_KIND"):
        catalog.rebuild("s", kind=new, retention=5)
    with pytest.raises(InvalidInputError, match="MISSING_OPTION"):
        catalog.rebuild("s", retention=5)
    assert catalog.stores() == ["s"]


def test_a_store_that_is_open_is_not_rebuilt(catalog: statestore.Catalog) -> None:
    with create(catalog, "key_value") as store:
        store.put("a", 1)
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            catalog.rebuild("s", kind="versioned")
        assert store.get("a") == 1


def test_a_rebuild_that_dies_leaves_the_old_store(
    local_catalog: statestore.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies in the replay, and between the two renames."""
    with create(local_catalog, "key_value") as store:
        store.put("a", 1)
        store.commit()
    monkeypatch.setattr(replay_in_tasks, "replay", lambda table, target: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        local_catalog.rebuild("s", kind="versioned")
    monkeypatch.undo()
    renames = iter((False, True))
    real = Path.rename

    def dying(self: Path, target: Path) -> Path:
        if next(renames):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        local_catalog.rebuild("s", kind="versioned")
    monkeypatch.undo()
    with local_catalog.open_store("s") as store:
        assert store.get("a") == 1
    with pytest.raises(NotFoundError):
        local_catalog.open_store("t")
