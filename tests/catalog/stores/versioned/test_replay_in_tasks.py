"""Rebuilding in tasks: the new store has the history that a rebuild in one process gives it, in one commit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.parameters import mostly_slow
from support.places import vacuumed
from support.stores.attempted_tasks import AttemptedTasks
from support.stores.live_places import PLACES, warehouse_in
from support.stores.versioned_checks import INTERVAL, as_table, rows_of
from support.stores.versioned_model import Model

from statestore.catalog.catalog import Catalog
from statestore.catalog.commits.parts import publish_parts
from statestore.catalog.stores.versioned import task_writes
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> AttemptedTasks:
    """Each task runs twice, and what counts is the second attempt: the files of the first one are nobody's."""
    made = AttemptedTasks(parallelism=3, attempts=2, counts=1)
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=4))
    return made


@pytest.fixture(params=PLACES)
def where(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def catalog(tmp_path: Path, where: str) -> Catalog:
    return warehouse_in(tmp_path / "w", where)


def written(catalog: Catalog, late: bool = False, **options: Any) -> Model:
    """A store with deletes and records of one time, and its model; times ascend unless records are ``late``."""
    chosen, model = random.Random(3), Model(options.get("history_retention"))
    with catalog.create_store("s", **COLUMNS, **options) as store:
        for number in range(8):
            times = sorted(chosen.randrange(24) if late else 3 * number + chosen.randrange(3) for _ in range(25))
            rows = [
                (f"k{chosen.randrange(20)}", None if chosen.random() < 0.2 else chosen.randrange(9), time)
                for time in times
            ]
            for row in rows:
                model.put(*row)
            model.commit()
            store.write(as_table(rows))
    return model


def in_tasks_and_in_one_process(
    tmp_path: Path, where: str, tasks: AttemptedTasks, before: dict[str, Any], after: dict[str, Any]
) -> list[Any]:
    """Content after two rebuilds of one history: all rows, the newest version and its counts."""
    found = []
    for folder, session in (("tasks", tasks), ("one", None)):
        catalog = warehouse_in(tmp_path / folder, where)
        if before.get("kind") == "key_value":
            with catalog.create_store("s", **COLUMNS, **before) as store:
                for number in range(40):
                    store.put(f"k{number % 13}", None if number % 7 == 0 else number)
                    if number % 9 == 0:
                        store.commit()
                store.commit()
        else:
            written(catalog, late=True, **before)
        with catalog.rebuild("s", spark=session, **after) as store:
            times = () if "key_value" in (before.get("kind"), after.get("kind")) else INTERVAL[1:]
            rows = sorted(map(repr, rows_of(store.history(), "k", *times, "_commit_version")))
            found.append((rows, sorted(rows_of(store.scan(), "k", "v")), store.version, store.dropped_records))
    return found


@pytest.mark.quick("directory")
def test_the_values_of_every_moment(catalog: Catalog, tmp_path: Path, where: str, tasks: AttemptedTasks) -> None:
    model = written(catalog)
    with catalog.rebuild("s", key_groups=7, spark=tasks) as store:
        assert tasks.jobs == [3]
        assert store.spec.key_groups == 7 and store.version == 1
        assert set(rows_of(store.history(), *INTERVAL)) == {row[:4] for row in model.history(8)}
        for time in range(-1, 25):
            assert set(rows_of(store.scan(as_of=time), *INTERVAL)) == model.state_at(8, time), f"as of {time}"
        assert vacuumed(store) == []
    verified = catalog.verify("s")
    assert verified.ok and verified.unreferenced == ()
    if where == "directory":
        assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["s"]
        assert not (tmp_path / "w" / "s" / "staging").exists()


@pytest.mark.quick("directory-before2-after0", "objects-before0-after2")
@pytest.mark.parametrize("after", mostly_slow([{}, {"history_retention": 5}, {"history_retention": 30}], 2))
@pytest.mark.parametrize("before", [{}, {"history_retention": 8}, {"serde": "kafka", "history_retention": 8}])
def test_timelines_are_replayed_as_in_one_process(
    tmp_path: Path, where: str, tasks: AttemptedTasks, before: dict[str, Any], after: dict[str, Any]
) -> None:
    after = {"serde": "natural", **after}
    one, other = in_tasks_and_in_one_process(tmp_path, where, tasks, before, after)
    assert one == other and one[0] != [] and tasks.jobs == [3]
    if "history_retention" not in before and after.get("history_retention") == 5:
        assert one[3] > 0  # writes that the new store refuses


@pytest.mark.quick("directory")
def test_a_store_without_versions_becomes_versioned(tmp_path: Path, where: str, tasks: AttemptedTasks) -> None:
    one, other = in_tasks_and_in_one_process(tmp_path, where, tasks, {"kind": "key_value"}, {"kind": "versioned"})
    assert one == other and one[0] != [] and tasks.jobs == [3]


@pytest.mark.quick("directory*")
@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"kind": "key_value"}), ({"kind": "key_value"}, {"kind": "versioned", "history_retention": "1 day"})],
)
def test_stores_of_which_the_order_counts_are_replayed_in_this_process(
    tmp_path: Path, where: str, tasks: AttemptedTasks, before: dict[str, Any], after: dict[str, Any]
) -> None:
    one, other = in_tasks_and_in_one_process(tmp_path, where, tasks, before, after)
    assert one[1] == other[1] != [] and tasks.jobs == []


@pytest.mark.quick("directory")
def test_a_history_that_has_expired(catalog: Catalog, tasks: AttemptedTasks) -> None:
    model = written(catalog)
    with catalog.open_store("s") as store:
        store.expire(before=11)
    with catalog.rebuild("s", spark=tasks) as store:
        for time in range(11, 25):
            found, expected = set(rows_of(store.scan(as_of=time), "k", "v")), model.state_at(8, time)
            assert found == {row[:2] for row in expected}, f"as of {time}"
        with pytest.raises(LookupError, match="keeps state from"):
            store.scan(as_of=10)
    assert tasks.jobs == [3]


def test_a_store_without_rows(catalog: Catalog, tasks: AttemptedTasks) -> None:
    catalog.create_store("s", **COLUMNS).close()
    with catalog.rebuild("s", key_groups=7, spark=tasks) as store:
        assert (store.version, store.scan().read_all().num_rows) == (0, 0)


@pytest.mark.quick("directory")
def test_the_segments_of_tasks_are_those_of_the_commit(
    catalog: Catalog, tasks: AttemptedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are so many ranges that each is one part, which shares no key with another: nothing is written again."""
    monkeypatch.setattr(task_writes, "PART_ROWS", 1_000)
    monkeypatch.setattr(publish_parts, "_written_anew", lambda *_: pytest.fail("a segment is written again"))
    with catalog.create_store("s", **COLUMNS) as store:
        for first in range(4):
            store.write(as_table([(f"k{first}-{number}", first, first) for number in range(1_000)]))
    with catalog.rebuild("s", spark=tasks) as store:
        assert tasks.jobs == [5]
        metas = store._log_state.segments
        assert len(metas) == 5 and max(meta.rows for meta in metas) <= 1_000
        assert store.history().read_all().num_rows == 4_000


@pytest.mark.quick("directory")
def test_the_compaction_that_is_due_runs_in_tasks(
    tmp_path: Path, where: str, tasks: AttemptedTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=1_000))
    found = []
    for folder, session in (("tasks", tasks), ("one", None)):
        catalog = warehouse_in(tmp_path / folder, where)
        with catalog.create_store("s", **COLUMNS) as store:
            for first in range(0, 12, 3):
                times = range(first, first + 3)
                store.write(as_table([(f"k{number}", time, time) for time in times for number in range(400)]))
        catalog.rebuild("s", key_groups=7, spark=session).close()
        with catalog.open_store("s", read_only=True) as store:
            found.append(sorted(map(repr, rows_of(store.history(), *INTERVAL, "_commit_version"))))
            if session is not None:
                assert tasks.jobs == [3, 3]
                assert store.version == 2  # the write, and the compaction by the tasks
                assert {meta.role for meta in store._log_state.segments} == {"open", "closed"}
                assert len(store._log_state.segments) == 6
    assert found[0] == found[1] and len(found[0]) == 4_800


def test_no_task_hears_of_a_disk(tmp_path: Path, tasks: AttemptedTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = warehouse_in(tmp_path, "objects")
    sent: list[bytes] = []
    written(catalog)
    monkeypatch.setattr(AttemptedTasks, "_answer", _then_keep(sent))
    catalog.rebuild("s", spark=tasks).close()
    assert len(sent) == 6 and not any(str(tmp_path).encode() in work for work in sent)
    assert any(b"ReplayPlan" in work for work in sent)


def _then_keep(sent: list[bytes]) -> Any:
    answer = AttemptedTasks._answer

    def keeping(self: AttemptedTasks, work: bytes, number: int) -> str:
        sent.append(work)
        return answer(self, work, number)

    return keeping


@pytest.mark.quick("objects")
def test_a_failing_task_leaves_the_store_as_it_was(catalog: Catalog, tmp_path: Path, where: str) -> None:
    model = written(catalog)

    class Failing(AttemptedTasks):
        def run(self, work: task_runs.Work, count: int) -> list[str]:
            super().run(work, count)
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="gone"):
        catalog.rebuild("s", spark=Failing(parallelism=3))
    if where == "directory":
        assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["s"]
    with catalog.open_store("s") as store:
        assert set(rows_of(store.history(), *INTERVAL)) == {row[:4] for row in model.history(8)}
        assert vacuumed(store) == []
