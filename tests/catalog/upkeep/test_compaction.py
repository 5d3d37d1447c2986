"""Compaction in steps: few segments whatever is late, bounded steps, and work that survives a death."""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.stores.killing_storage import Killed, KillingStorage, Plan
from support.stores.layout_invariants import layout_violations
from support.stores.versioned_checks import Put, as_table, create, rows_of

import statestore
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import with_closures
from statestore.catalog.stores.versioned.natural_versioned import NaturalVersionedStore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import background_compaction, compaction, compaction_rules, publish_compaction, vacuum
from statestore.catalog.upkeep.background_compaction import Background, background_of, compaction_lock
from statestore.catalog.upkeep.compaction_plan import ended_rows, next_step
from statestore.catalog.upkeep.compaction_rules import ROW_BYTES, Rules
from statestore.formats.segments import segment_write
from statestore.formats.segments.segment_meta import SegmentMeta

SCALED = Rules(small_store=100, small_fan_in=8, fan_in=4, tier_rows=64, mixed_rows=16, block_rows=16)
KEYS = 40
ROWS = 40


class History:
    """Commits of a stream in order of time, some records late, and the true state of every moment."""

    def __init__(self, late: float, seed: int = 1, late_by: int | None = None) -> None:
        self.late, self.late_by = late, late_by
        self.random = random.Random(seed)
        self.clock = 0
        self.versions: dict[str, dict[int, int | None]] = {}

    def commit(self) -> list[Put]:
        rows: list[Put] = []
        for _ in range(ROWS):
            self.clock += 1
            is_late = self.random.random() < self.late
            first = 0 if self.late_by is None else max(self.clock - self.late_by, 0)
            time = self.random.randint(first, self.clock) if is_late else self.clock
            key = f"k{min(self.random.randrange(KEYS), self.random.randrange(KEYS))}"
            value = None if self.random.random() < 0.03 else self.clock
            rows.append((key, value, time))
            self.versions.setdefault(key, {})[time] = value
        return rows

    def state_at(self, time: int) -> set[tuple[str, int]]:
        state = set()
        for key, versions in self.versions.items():
            begun = [moment for moment in versions if moment <= time]
            value = versions[max(begun)] if begun else None
            if value is not None:
                state.add((key, value))
        return state


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", SCALED)


def check(store: VersionedStore, history: History) -> None:
    for time in (0, history.clock // 7, history.clock // 2, history.clock - 50, history.clock):
        assert set(rows_of(store.scan(as_of=time), "k", "v")) == history.state_at(time), f"as of {time}"
    assert layout_violations(store._files, store._log_state) == []


@pytest.mark.slow
@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("late", [0.01, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.0, 0.001, 0.1))])
def test_the_number_of_segments_grows_with_the_logarithm_of_the_history(tmp_path: Path, late: float) -> None:
    create(statestore.connect(tmp_path)).close()
    history, counts = History(late), []
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        for number in range(120):
            store.write(as_table(history.commit()))
            store.compact()
            if number in (7, 29, 119):
                counts.append(len([m for m in store._log_state.segments if m.role != "delta"]))
        check(store, history)
        tiers = SCALED.tier(120 * ROWS) + 1
        assert max(counts) <= 3 * 2 * (SCALED.fan_in * tiers), counts  # open, closed, belief; values and tombstones
        assert counts[2] <= 2 * counts[1], counts  # four times the history
        store.compact(full=True)
        check(store, history)
        assert {m.role for m in store._log_state.segments} <= {"open", "closed", "belief"}
        assert len(store._log_state.segments) <= 6


@pytest.mark.usefixtures("scaled")
def test_compaction_keeps_open_rows_dense(tmp_path: Path) -> None:
    create(statestore.connect(tmp_path)).close()
    history = History(0.01)
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        for _ in range(30):
            store.write(as_table(history.commit()))
            store.compact()
            recent = [v for v in _segments(store) if v.meta.role in ("open", "delta") and not v.meta.tombstone]
            assert sum(map(ended_rows, recent)) <= SCALED.small_store + 8 * ROWS


def test_a_due_rewrite_takes_the_segments_with_half_of_the_ended_rows(tmp_path: Path) -> None:
    """Where few rows have ended, more will soon; a pause and a handle that closes make everything dense."""
    create(statestore.connect(tmp_path)).close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        for time, keys in ((1, 200), (2, 100), (3, 100)):
            store.write(as_table([(f"k{number}", time, time) for number in range(keys)]))
        rules = replace(SCALED, small_store=10, small_idle=10)
        taken = {mode: next_step(store._log_state, rules, mode) for mode in ("due", "idle", "closing")}
        first, second, _ = (segment.meta.name for segment in _segments(store))
        chosen = {
            mode: [segment.meta.name for segment in step.rewritings[0].segments] if step else []
            for mode, step in taken.items()
        }
        assert chosen == {"due": [second], "idle": [second, first], "closing": [second, first]}


def _segments(store: VersionedStore) -> list[Any]:
    return with_closures(store._log_state.segments, store._log_state.closures)


def prepared(folder: Path, commits: int = 14, late: float = 0.05) -> History:
    create(statestore.connect(folder)).close()
    history = History(late)
    with statestore.connect(folder).open_store("s", auto_compact=False) as store:
        for _ in range(commits):
            store.write(as_table(history.commit()))
    return history


def compactions(store: VersionedStore) -> int:
    operations: list[str] = store.versions()["operation"].to_pylist()
    return operations.count("compact")


def test_a_step_reads_no_more_than_its_memory_permits(tmp_path: Path) -> None:
    prepared(tmp_path)
    rules = Rules(memory=200 * ROW_BYTES, tier_rows=16, block_rows=16)
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        log_state: LogState = store._log_state
        steps = 0
        while (step := next_step(log_state, rules, "full", log_state.version)) is not None and steps < 200:
            largest = max(v.meta.rows for rewriting in step.rewritings for v in rewriting.segments)
            assert step.rows <= max(rules.step_rows, 2 * largest)
            log_state = publish_compaction.run_one_step(store._files, log_state, rules, "full")
            steps += 1
        assert steps > 3


@pytest.mark.quick("30")
@pytest.mark.parametrize("at", [30, pytest.param(60, marks=pytest.mark.slow), 120])
def test_a_compaction_that_dies_goes_on_where_it_was(tmp_path: Path, at: int) -> None:
    history = prepared(tmp_path)
    rules = Rules(memory=150 * ROW_BYTES, tier_rows=16, block_rows=16)
    plan = Plan()
    _, spec = statestore.connect(tmp_path).locate("s")
    dying = NaturalVersionedStore(KillingStorage(tmp_path / "s", plan), spec, auto_compact=False)
    plan.at = plan.done + at
    with pytest.raises(Killed):
        publish_compaction.run_compaction(dying._files, dying._log_state, True, rules)
    plan.at = 0
    dying.close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        survived = compactions(store)
        check(store, history)
        publish_compaction.run_compaction(store._files, store._log_state, True, rules)
        store.refresh()
        assert compactions(store) > survived
        if at >= 120:
            assert survived > 0, "steps that were published before the death are not repeated"
        check(store, history)
        store.vacuum(older_than=0)
        check(store, history)
    assert statestore.connect(tmp_path).verify("s").ok


@pytest.mark.parametrize(("late", "steps"), [(0.0, 3), pytest.param(0.05, 1, marks=pytest.mark.slow)])
def test_a_full_compaction_is_cut_where_rows_end_in_the_order_of_commits(
    tmp_path: Path, late: float, steps: int
) -> None:
    """Each step leaves closed segments that no later one rewrites, so a kill costs one step and nothing is done twice.
    Late records, which lie anywhere here, end among the rows of every segment, so that no cut is worth while."""
    history = prepared(tmp_path, 30, late)
    rules = Rules(memory=1_600 * ROW_BYTES, tier_rows=16, block_rows=16)
    published: list[set[str]] = []
    while len(published) < 10:
        # Each step is run by a handle of its own, as after a kill.
        with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
            before = store.version
            log_state = publish_compaction.run_one_step(store._files, store._log_state, rules, "full")
            store.refresh()
            check(store, history)
        if log_state.version == before:
            break
        published.append({m.name for m in log_state.segments if m.role == "closed" and not m.tombstone})
    assert len(published) == steps
    assert all(earlier < later for earlier, later in itertools.pairwise(published)), published
    assert {m.role for m in log_state.segments} <= {"open", "closed", "belief"}
    assert len(log_state.segments) <= 6 + steps
    assert statestore.connect(tmp_path).verify("s").ok


@pytest.mark.parametrize("late_by", [60, pytest.param(None, marks=pytest.mark.slow)])
def test_a_full_compaction_reads_what_due_ones_closed_about_once(tmp_path: Path, late_by: int | None) -> None:
    """Late rows end among those of the neighbours. Only where they end among those of any segment, all are read
    several times."""
    rules = Rules(small_store=60, tier_rows=16, block_rows=16, mixed_rows=16, fan_in=64, small_fan_in=64)
    create(statestore.connect(tmp_path)).close()
    history = History(0.1, late_by=late_by)
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        for _ in range(60):
            store.write(as_table(history.commit()))
            publish_compaction.run_compaction(store._files, store._log_state, False, rules)
            store.refresh()
        closed = [m for m in store._log_state.segments if m.role == "closed" and not m.tombstone]
        small = Rules(memory=600 * ROW_BYTES, tier_rows=16, block_rows=16)
        rows = sum(meta.rows for meta in closed)
        assert len(closed) > 8 and rows > 3 * small.step_rows
        log_state: LogState = store._log_state
        read = steps = 0
        while (step := next_step(log_state, small, "full", log_state.version)) is not None and steps < 100:
            values = [r for r in step.rewritings if r.segments[0].meta.role == "closed"]
            read += sum(r.rows for r in values if not r.segments[0].meta.tombstone)
            log_state = publish_compaction.run_one_step(store._files, log_state, small, "full")
            steps += 1
        store.refresh()
        assert steps < 100
        assert late_by is None or read < 1.2 * rows, (read, rows, steps)
        check(store, history)
        if late_by is not None:
            read_ones = [m for m in log_state.segments if m.role == "closed" and not m.tombstone]
            spans = sorted((m.min_valid_to, m.max_valid_to) for m in read_ones)
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), spans
    assert statestore.connect(tmp_path).verify("s").ok


def test_a_full_compaction_compresses_what_a_due_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A due compaction of a store that nothing has compacted makes its rows dense, uncompressed, and leaves no more
    to fold.
    """
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 32)
    history = prepared(tmp_path, 30, 0.0)
    rules = Rules(small_store=100, tier_rows=16, block_rows=16, mixed_rows=16)
    monkeypatch.setattr(compaction_rules, "DEFAULT", rules)
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:

        def closed() -> list[SegmentMeta]:
            return [m for m in store._log_state.segments if m.role == "closed" and m.rows >= 32]

        store.compact()
        assert not any(map(segment_write.may_be_compressed, closed()))
        before = sum(meta.file.bytes for meta in closed())
        store.compact(full=True)
        assert all(map(segment_write.may_be_compressed, closed()))
        assert sum(meta.file.bytes for meta in closed()) < before
        check(store, history)
        version = store.version
        store.compact(full=True)
        assert store.version == version
    assert statestore.connect(tmp_path).verify("s").ok


@pytest.fixture
def few_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(small_fan_in=3))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the threads that ran steps."""
    names: list[str] = []
    run_step = compaction.run_step

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return run_step(*arguments)

    monkeypatch.setattr(publish_compaction, "run_step", noted)
    yield names


@pytest.mark.usefixtures("few_deltas")
def test_commits_are_compacted_by_another_thread(tmp_path: Path, threads: list[str]) -> None:
    with create(statestore.connect(tmp_path)) as store:
        for number in range(3):
            store.put("a", number, timestamp=number)
            assert store.commit() == number + 1
    assert set(threads) == {"statestore-compaction"}
    with statestore.connect(tmp_path).open_store("s", read_only=True) as reader:
        assert compactions(reader) == 1, "close waits for the compaction that is due"
        assert rows_of(reader.scan(), "k", "v") == [("a", 2)]


@pytest.mark.usefixtures("few_deltas")
def test_auto_compact_can_be_switched_off(tmp_path: Path, threads: list[str]) -> None:
    create(statestore.connect(tmp_path)).close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        for number in range(4):
            store.put("a", number, timestamp=number)
            store.commit()
    assert threads == []


@pytest.mark.usefixtures("few_deltas")
@pytest.mark.parametrize("leased", [False, True])
def test_the_background_removes_what_it_replaced_and_no_reader_has_leased(tmp_path: Path, leased: bool) -> None:
    with create(statestore.connect(tmp_path)) as store:
        store.put("a", 0, timestamp=0)
        store.commit()
        reader = store.scan() if leased else None
        for number in range(1, 3):
            store.put("a", number, timestamp=number)
            store.commit()
    if reader is not None:
        assert rows_of(reader, "k", "v") == [("a", 0)]
    with statestore.connect(tmp_path).open_store("s", read_only=True) as reader:
        assert rows_of(reader.scan(), "k", "v") == [("a", 2)]
        needed = {meta.name for meta in reader._log_state.segments}
        found = {f"segments/{path.name}" for path in (tmp_path / "s" / "segments").iterdir()}
        assert (found == needed) == (not leased)


@pytest.mark.usefixtures("few_deltas")
def test_removals_pause_and_steps_that_are_due_are_run_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of files take seconds. Without steps in between, commits would wait for compaction."""
    monkeypatch.setattr(vacuum, "PORTION", 1)
    create(statestore.connect(tmp_path)).close()
    with statestore.connect(tmp_path).open_store("s", auto_compact=False) as store:
        background = Background(store._files)
        for number in range(6):
            store.put("a", number, timestamp=number)
            store.commit()
            if number == 2:
                store._log_state = publish_compaction.run_compaction(store._files, store._log_state, full=False)
        background._due = background._has_replaced = True
        background._next_vacuum = float("inf")
        replaced = len(list((tmp_path / "s" / "segments").iterdir()))
        background._vacuum(store._files, store._log_state)
        store.refresh()
        assert compactions(store) == 2 and not background._due
        assert background._has_replaced, "the files that this step replaced are still there"
        assert len(list((tmp_path / "s" / "segments").iterdir())) < replaced
        background._vacuum(store._files, store._log_state, at_once=True)
        needed = {meta.name for meta in store._log_state.segments}
        assert {f"segments/{path.name}" for path in (tmp_path / "s" / "segments").iterdir()} == needed


@pytest.mark.usefixtures("few_deltas")
def test_a_compaction_of_another_process_is_left_alone(tmp_path: Path, threads: list[str]) -> None:
    with create(statestore.connect(tmp_path)) as store:
        store.put("a", 0, timestamp=0)
        store.commit()
        with compaction_lock(store._files) as is_ours:
            assert is_ours
            for number in range(1, 4):
                store.put("a", number, timestamp=number)
                store.commit()
            background_of(store._files).finish()
            assert threads == []
        store.put("a", 9, timestamp=9)
        store.commit()
        background_of(store._files).finish()
        assert threads


@pytest.mark.usefixtures("few_deltas")
def test_a_process_that_ends_gives_a_step_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The step's files are removed, and its version does not come to be."""
    with create(statestore.connect(tmp_path)) as store:
        entered, go_on = threading.Event(), threading.Event()
        run_step = compaction.run_step

        def waiting(*arguments: Any) -> Any:
            entered.set()
            assert go_on.wait(60)
            return run_step(*arguments)

        monkeypatch.setattr(publish_compaction, "run_step", waiting)
        for number in range(3):
            store.put("a", number, timestamp=number)
            store.commit()
        assert entered.wait(60)
        before = {path.name for path in (tmp_path / "s" / "segments").iterdir()}
        ending = threading.Thread(target=background_compaction._at_exit)
        with caplog.at_level(logging.WARNING, "statestore"):
            background = background_of(store._files)
            background._giving_up = True
            go_on.set()
            ending.start()
            ending.join()
        background._giving_up = False
        assert {path.name for path in (tmp_path / "s" / "segments").iterdir()} == before
        assert store.refresh() == 3 and not caplog.records


@pytest.mark.slow
def test_closures_in_many_lists_are_folded_long_before_they_are_many_rows(tmp_path: Path) -> None:
    """Small commits end a row or two of a large segment each, thousands of times; log and plans name each list."""
    rules = Rules()
    store = create(statestore.connect(tmp_path))
    store.auto_compact = False
    keys = 3 * rules.tier_rows
    store.put_all(as_table([(f"k{number}", number, 1) for number in range(keys)]))
    store.commit()
    expected = {f"k{number}": number for number in range(keys)}
    most = 0
    for number in range(2 * rules.fold_lists + 2 * keys // rules.list_rows):
        store.put(f"k{number}", -number, 2 + number)
        expected[f"k{number}"] = -number
        store.commit()
        while next_step(store._log_state, rules, "due") is not None:
            store.compact()
        most = max(most, *map(len, store._log_state.closures.values()), 0)
    assert most < rules.fold_lists + keys // rules.list_rows
    assert dict(rows_of(store.scan(), "k", "v")) == expected
    assert dict(rows_of(store.scan(as_of=1), "k", "v")) == {f"k{number}": number for number in range(keys)}
    assert layout_violations(store._files, store._log_state) == []
    store.close()
