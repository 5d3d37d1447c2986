"""A target that tasks write is the one that threads write, however often a task runs, dies or comes too late."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.engines.toy_edits import NOW, Model, edits_between, opened, read, same, tree, write_source
from support.engines.toy_engine import ToyPlan, Toys, plan_of
from support.stores.attempted_tasks import AttemptedTasks, TaskDied

from statestore.catalog.edits import key_checks
from statestore.catalog.edits.apply import EditProgress, apply_edit
from statestore.catalog.edits.receipt import RECEIPT_FILE, Receipt
from statestore.catalog.edits.row_sums import RowSums, no_rows
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.catalog.upkeep.ranges.task_runs import Work
from statestore.formats.edits import EditOptions, EditPlan, Target
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError, StorageError, UnsupportedError

AFTER = Model({("a", "x"): 1, ("a", "y"): 20, ("d", "x"): 5}, {"a": [1.0, 2.0], "c": [7.5], "d": [None, -0.0]})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def edit(source: Path, target: str, runs: Any = None, toys: Toys | None = None, **options: Any) -> Receipt:
    edits = edits_between(NOW, AFTER)
    return apply_edit(toys or opened(source), 2, edits, str(source.with_name(target)), runs=runs, **options)


def contents(folder: Path) -> Mapping[str, str]:
    """Digests of the files, without the receipt."""
    return {path: digest for path, (_, digest) in tree(folder).items() if path != RECEIPT_FILE}


def names_beside(source: Path) -> list[str]:
    return sorted(path.name for path in source.parent.iterdir())


@pytest.mark.parametrize("parallelism", [0, 1, 50])
@pytest.mark.parametrize(("attempts", "counts"), [(1, 0), (2, 0), (2, 1)])
def test_tasks_write_what_threads_write(source: Path, attempts: int, counts: int, parallelism: int) -> None:
    """As speculation runs a task twice, where either attempt may be the one that counts."""
    before = tree(source)
    by_threads = edit(source, "threads")
    heard: list[EditProgress] = []
    by_tasks = edit(source, "tasks", AttemptedTasks(parallelism, attempts, counts), progress=heard.append)
    assert contents(source.with_name("tasks")) == contents(source.with_name("threads"))
    assert same(read(opened(source.with_name("tasks")), 2), AFTER)
    assert (by_tasks.written, by_tasks.copied, by_tasks.target_files) == (
        *(by_threads.written, by_threads.copied, by_threads.target_files),
    )
    assert names_beside(source) == ["source", "tasks", "threads"]
    assert tree(source) == before
    assert list(dict.fromkeys(event.step for event in heard)) == ["copying", "writing", "verifying"]


def test_an_edit_of_nothing_writes_no_part(source: Path) -> None:
    runs = AttemptedTasks()
    apply_edit(opened(source), 2, [], str(source.with_name("target")), runs=runs)
    assert same(read(opened(source.with_name("target")), 2), NOW)


# Attempts that end early or late


@dataclass(frozen=True)
class Attempted(ToyPlan):
    """A plan whose parts are written by ``writing``; ``marks`` is a folder that all attempts see."""

    marks: Path = Path()
    writing: Callable[[Attempted, Any, Target], Mapping[str, int]] = ToyPlan.write

    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        return self.writing(self, part, target)


@dataclass(frozen=True)
class AttemptedToys(Toys):
    marks: Path = Path()
    writing: Callable[[Attempted, Any, Target], Mapping[str, int]] = ToyPlan.write

    def edit_plan(self, version: int, edits: Any, options: EditOptions) -> EditPlan:
        plan = plan_of(self, version, edits, options)
        known = {each.name: getattr(plan, each.name) for each in dataclasses.fields(ToyPlan)}
        return Attempted(**known, marks=self.marks, writing=self.writing)


def toys_of(source: Path, writing: Callable[[Attempted, Any, Target], Mapping[str, int]]) -> AttemptedToys:
    found, marks = opened(source), source.with_name("marks")
    marks.mkdir()
    return AttemptedToys(found.folder, found.times, marks, writing)


def is_first(plan: Attempted, part: Any) -> bool:
    mark = plan.marks / str(part).replace("/", "-")
    if mark.exists():
        return False
    mark.touch()
    return True


def dying_before(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    if is_first(plan, part):
        raise TaskDied
    return ToyPlan.write(plan, part, target)


def dying_within(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    if is_first(plan, part):
        assert isinstance(target, TargetFolder)
        target.place(part).write_bytes(b"half")
        raise TaskDied
    return ToyPlan.write(plan, part, target)


def dying_behind(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    found = ToyPlan.write(plan, part, target)
    if is_first(plan, part):
        raise TaskDied
    return found


@pytest.mark.parametrize("writing", [dying_before, dying_within, dying_behind])
def test_an_attempt_that_dies_is_followed_by_another(source: Path, writing: Any) -> None:
    edit(source, "threads")
    edit(source, "tasks", AttemptedTasks(), toys_of(source, writing))
    assert contents(source.with_name("tasks")) == contents(source.with_name("threads"))
    assert names_beside(source) == ["marks", "source", "tasks", "threads"]


def failing(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    found = ToyPlan.write(plan, part, target)
    if not is_first(plan, "all"):
        raise InvalidInputError(ErrorCode.EDIT_REFUSED, "a row is not there")
    return found


def test_a_task_that_fails_leaves_nothing(source: Path) -> None:
    before = tree(source)
    with pytest.raises(InvalidInputError, match="a row is not there"):
        edit(source, "target", AttemptedTasks(), toys_of(source, failing))
    assert names_beside(source) == ["marks", "source"]
    assert tree(source) == before


@dataclass
class Caught(AttemptedTasks):
    """Tasks of which ``works`` are kept, so that an attempt comes when all is over."""

    works: list[bytes] = field(default_factory=list)

    def run(self, work: Work, count: int) -> list[str]:
        self.works.append(pickle.dumps(work))
        return super().run(work, count)


def test_an_attempt_that_comes_too_late_leaves_nothing(source: Path) -> None:
    runs = Caught()
    edit(source, "target", runs)
    found = tree(source.with_name("target"))
    with pytest.raises(UnsupportedError, match="cannot write there"):
        pickle.loads(runs.works[0])(0)
    assert names_beside(source) == ["source", "target"]
    assert tree(source.with_name("target")) == found


def test_an_attempt_whose_folder_is_gone_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "attempt").mkdir()
    folder = TargetFolder("target", str(tmp_path / "attempt"))
    with folder.create("one") as stream:
        stream.write(b"1")
        (tmp_path / "attempt").rename(tmp_path / "removed")
    for path in ("two", "a/b/three"):
        with pytest.raises(StorageError):
            folder.create(path)
    assert [path.name for path in tmp_path.iterdir()] == ["removed"]


def test_tasks_that_do_not_see_the_target(source: Path) -> None:
    class Elsewhere(AttemptedTasks):
        def run(self, work: Work, count: int) -> list[str]:
            (attempts,) = source.parent.glob(".target.edit/*/attempts")
            attempts.rmdir()
            return super().run(work, count)

    with pytest.raises(UnsupportedError, match=r"a task on .* name a target in a file system that") as raised:
        edit(source, "target", Elsewhere())
    assert raised.value.code == ErrorCode.UNSUPPORTED_PATH
    assert names_beside(source) == ["source"]


def test_a_source_that_changes_is_told_of_by_a_task(source: Path) -> None:
    class Changing(AttemptedTasks):
        def run(self, work: Work, count: int) -> list[str]:
            (source / "1.json").write_text((source / "1.json").read_text() + " ")
            return super().run(work, count)

    with pytest.raises(ConflictError, match=r"SOURCE_CHANGED.*1\.json"):
        edit(source, "target", Changing())
    assert names_beside(source) == ["source"]


def twice(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    if plan.marks.joinpath("once").exists():
        with target.create("one") as stream:
            stream.write(b"1")
    plan.marks.joinpath("once").touch()
    return ToyPlan.write(plan, part, target)


def test_a_path_of_two_tasks_is_refused(source: Path) -> None:
    with pytest.raises(StateStoreError, match=r"EDIT_DIFFERS.*one is written twice"):
        edit(source, "target", AttemptedTasks(50), toys_of(source, twice))
    assert names_beside(source) == ["marks", "source"]


# What tasks read again


def wrong(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    if part != "2.json":
        return ToyPlan.write(plan, part, target)
    content = {**plan.written[part], "rows": [{"k": "d", "field": "x", "n": 6}, *plan.written[part]["rows"]]}
    return ToyPlan.write(dataclasses.replace(plan, written={part: content}), part, target)


def misplaced(plan: Attempted, part: Any, target: Target) -> Mapping[str, int]:
    """Write the rows of each place of the lists in the next one."""
    if not str(part).startswith("queues/"):
        return ToyPlan.write(plan, part, target)
    others = [each for each in sorted(plan.written) if each.startswith("queues/")]
    content = plan.written[others[others.index(part) - 1]]
    return ToyPlan.write(dataclasses.replace(plan, written={part: content}), part, target)


@pytest.mark.parametrize("writing", [wrong, misplaced])
def test_a_wrong_target_is_told_of_as_by_threads(source: Path, writing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many keys some are looked up, and the places of all are read again."""
    monkeypatch.setattr(key_checks, "MOST_KEYS", 1 if writing is misplaced else key_checks.MOST_KEYS)
    messages = []
    toys = toys_of(source, writing)
    for runs in (None, AttemptedTasks()):
        with pytest.raises(StateStoreError, match="EDIT_DIFFERS") as raised:
            edit(source, "target", runs, toys)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert names_beside(source) == ["marks", "source"]


def test_sums_travel_as_texts() -> None:
    sums = no_rows().sums.copy()
    sums[3] = 2**64 - 1
    found = RowSums.of_text(RowSums(7, sums).as_text())
    assert found.rows == 7 and (found.sums == sums).all()
    assert (no_rows() - found + found).differing_bucket(no_rows()) is None
