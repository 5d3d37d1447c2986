"""A plan that does not do what the edit says is caught each time, and makes no target."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest
from support.engines.toy_edits import NOW, Model, edits_between, opened, read, same, tree, write_source
from support.engines.toy_engine import ToyPlan, Toys, plan_of, queue_path

from statestore.catalog.edits import key_checks
from statestore.catalog.edits.apply import apply_edit
from statestore.catalog.edits.target_errors import of_target
from statestore.formats.edits import EditedSource, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import StateAt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.state_table import RowPair

AFTER = Model(
    {("a", "x"): 1, ("a", "y"): 20, ("b", "x"): 3, ("d", "x"): 5},
    {"a": [1.0, 2.0], "b": [float("nan"), -0.0], "d": [None, -0.0]},
)
Written = dict[str, Any]


@dataclass(frozen=True)
class Sabotaged(Toys):
    """Toys whose plans are changed before they are used."""

    change: Callable[[ToyPlan], EditPlan] = lambda plan: plan

    def edit_plan(self, version: int, edits: Any, options: EditOptions) -> EditPlan:
        return self.change(plan_of(self, version, edits, options))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def refused(source: Path, change: Callable[[ToyPlan], EditPlan], after: Model = AFTER) -> str:
    """The message with which an edit by a changed plan is refused."""
    toys, before, target = opened(source), tree(source), source.with_name("target")
    with pytest.raises(StateStoreError) as raised:
        apply_edit(Sabotaged(toys.folder, toys.times, change), 2, edits_between(NOW, after), str(target))
    assert raised.value.code == ErrorCode.EDIT_DIFFERS
    assert [path.name for path in source.parent.iterdir()] == ["source"]
    assert tree(source) == before
    return str(raised.value)


def with_rows(name: str, change: Callable[[list[dict[str, Any]]], object]) -> Callable[[ToyPlan], ToyPlan]:
    """A plan of which the rows of one file are changed before they are written."""

    def changed(plan: ToyPlan) -> ToyPlan:
        content = json.loads(json.dumps(plan.written[name]))
        rows = content["rows"] if isinstance(content, dict) else content
        change(rows)
        return dataclasses.replace(plan, written={**plan.written, name: content})

    return changed


def queues(place: int) -> str:
    return queue_path(2, place)


def set_cell(row: int, name: str, value: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda rows: rows[row].update({name: value})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows.pop(0), r'toys lacks a row .*"k": "a", "field": "x", "n": 1.*3 rows of 4'),
        (lambda rows: rows.pop(), r'toys lacks a row .*"k": "d".*3 rows of 4'),
        (set_cell(0, "n", 7), r"state toys (lacks|has) a row .*4 rows of 4"),
        (set_cell(-1, "n", 7), r"state toys (lacks|has) a row"),
        (set_cell(0, "field", "X"), r"state toys (lacks|has) a row"),
        (lambda rows: rows.append({"k": "e", "field": "x", "n": 1}), r'toys has a row that it must not have: .*"e"'),
        (lambda rows: rows.append(rows[0]), r"toys has a row that it must not have.*5 rows of 4"),
        (lambda rows: rows.append({"k": "c", "field": "x", "n": 4}), r'toys has a row that it must not have: .*"c"'),
    ],
)
def test_a_wrong_row_of_a_map_is_named(source: Path, change: Any, told: str) -> None:
    message = refused(source, with_rows("2.json", change))
    assert re.search(told, message), message


@pytest.mark.parametrize(
    ("place", "change", "told"),
    [
        # Of a touched place: b lies in 2 with the rows that stay, a in 1 with d.
        (1, lambda rows: rows.pop(0), "queues lacks a row"),
        (1, set_cell(0, "item", 5.0), "state queues"),
        (1, set_cell(-1, "item", 0.0), "state queues"),  # and not -0.0
        (1, lambda rows: rows.append({"k": "a", "item": 1.0}), "queues has a row that it must not have"),
        (1, lambda rows: rows.reverse(), "rows of a key in another order"),
    ],
)
def test_a_wrong_row_of_a_list_is_named(source: Path, place: int, change: Any, told: str) -> None:
    assert told in refused(source, with_rows(queues(place), change))


def test_an_order_that_the_engine_does_not_keep_is_not_asked_for(source: Path) -> None:
    @dataclass(frozen=True)
    class Unordered(ToyPlan):
        def keeps_order(self, state: str) -> bool:
            return False

    def unordered(plan: ToyPlan) -> ToyPlan:
        turned = with_rows(queues(1), lambda rows: rows.reverse())(plan)
        return Unordered(**{field.name: getattr(turned, field.name) for field in dataclasses.fields(turned)})

    toys, target = opened(source), source.with_name("target")
    apply_edit(Sabotaged(toys.folder, toys.times, unordered), 2, edits_between(NOW, AFTER), str(target))
    assert opened(target)


def test_a_row_in_a_wrong_place_is_found(source: Path) -> None:
    """A scan reads it; no look-up of its key does."""

    def moved(plan: ToyPlan) -> ToyPlan:
        lists = {place: json.loads(json.dumps(plan.written[queues(place)])) for place in (0, 1)}
        lists[0] += [row for row in lists[1] if row["k"] == "d"]
        lists[1] = [row for row in lists[1] if row["k"] != "d"]
        return dataclasses.replace(plan, written={**plan.written, queues(0): lists[0], queues(1): lists[1]})

    message = refused(source, moved)
    assert "queues has a row in place 0, where no look-up searches it" in message and '"d"' in message


def test_a_row_where_nothing_of_the_edit_lies_is_found(source: Path) -> None:
    """The look-up does not read the place at all."""
    after = dataclasses.replace(NOW, queues={**NOW.queues, "d": [4.0]})

    def moved(plan: ToyPlan) -> ToyPlan:
        here = [row for row in plan.written[queues(1)] if row["k"] != "d"]
        path, other = queues(2), json.loads((source / queues(2)).read_text())
        written = {**plan.written, queues(1): here, path: [*other, {"k": "d", "item": 4.0}]}
        return dataclasses.replace(plan, written=written, kept=tuple(k for k in plan.kept if k.path != path))

    assert "a look-up by key in its state queues finds 0 rows where 1 are expected" in refused(source, moved, after)


def test_rows_that_follow_are_verified(source: Path) -> None:
    def forgotten(plan: ToyPlan) -> ToyPlan:
        return dataclasses.replace(plan, follows=())

    assert "state totals" in refused(source, forgotten)


@pytest.mark.parametrize("path", [queue_path(2, 0), queue_path(2, 2)])
def test_a_file_that_is_forgotten_is_found(source: Path, path: str) -> None:
    after = dataclasses.replace(NOW, queues={**NOW.queues, "d": [4.0]})

    def forgotten(plan: ToyPlan) -> ToyPlan:
        return dataclasses.replace(plan, kept=tuple(k for k in plan.kept if k.path != path))

    assert "cannot be read again" in refused(source, forgotten, after)


@dataclass(frozen=True)
class Opaque(Sabotaged):
    """Toys whose lists cannot be decoded."""

    def at(self, state: str, version: int) -> StateAt:
        if state == "queues":
            raise UnsupportedError(ErrorCode.FLINK_OPAQUE, "only the job's classes decode the lists")
        return super().at(state, version)


def test_rows_that_cannot_be_decoded_are_told_of(source: Path, tmp_path: Path) -> None:
    toys = opened(source)
    after = dataclasses.replace(NOW, toys=AFTER.toys)
    opaque = Opaque(toys.folder, toys.times)
    receipt = apply_edit(opaque, 2, edits_between(NOW, after), str(tmp_path / "target"))
    assert receipt.notes == (
        "states that cannot be read were not searched for the keys that are removed here: queues (FLINK_OPAQUE)",
        "the rows of queues, which no edit touches, were not compared, for they cannot be decoded (FLINK_OPAQUE)",
    )
    with pytest.raises(UnsupportedError, match="FLINK_OPAQUE"):
        apply_edit(opaque, 2, edits_between(NOW, AFTER), str(tmp_path / "another"))
    assert not (tmp_path / "another").exists()


def test_a_version_that_is_forgotten_is_found(source: Path) -> None:
    def forgotten(plan: ToyPlan) -> ToyPlan:
        return dataclasses.replace(plan, written={k: v for k, v in plan.written.items() if k != "2.json"})

    assert "EDIT_DIFFERS" in refused(source, forgotten)


def test_a_state_that_is_lost_is_found(source: Path) -> None:
    def lost(plan: ToyPlan) -> ToyPlan:
        content = {k: v for k, v in plan.written["2.json"].items() if k != "totals"}
        return dataclasses.replace(plan, written={**plan.written, "2.json": content})

    assert "it has the states queues, toys, its source has queues, totals, toys" in refused(source, lost)


# What a plan may write


@dataclass(frozen=True)
class Writing(ToyPlan):
    """A plan that writes something else when it is finished."""

    last: Callable[[Target], Mapping[str, int]] = lambda target: {}

    def finish(self, target: Target) -> Mapping[str, int]:
        return {**super().finish(target), **self.last(target)}


def writing(last: Callable[[Target], Mapping[str, int]]) -> Callable[[ToyPlan], EditPlan]:
    def changed(plan: ToyPlan) -> EditPlan:
        return Writing(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}, last=last)

    return changed


def create(target: Target, path: str, content: bytes = b"x") -> dict[str, int]:
    with target.create(path) as stream:
        stream.write(content)
    return {path: len(content)}


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "", "a//b", "./a", "nul\0"])
def test_no_file_is_written_elsewhere(source: Path, path: str) -> None:
    assert "is no path below it" in refused(source, writing(lambda target: create(target, path)))


def test_no_file_is_written_twice(source: Path) -> None:
    assert "2.json is written twice" in refused(source, writing(lambda target: create(target, "2.json")))
    assert "1.json is written twice" in refused(source, writing(lambda target: create(target, "1.json")))


def test_the_receipt_is_not_the_plans(source: Path) -> None:
    assert "the name of the receipt" in refused(source, writing(lambda target: create(target, "edit.json")))


def test_files_are_as_the_plan_says(source: Path) -> None:
    def shorter(target: Target) -> dict[str, int]:
        create(target, "new", b"four")
        return {"new": 5}

    assert "new was written with 5 bytes, and has 4" in refused(source, writing(shorter))
    assert "new was written with 1 bytes, and has none" in refused(source, writing(lambda target: {"new": 1}))

    def untold(target: Target) -> dict[str, int]:
        create(target, "new")
        return {}

    assert "new is there and no file of the edit's plan" in refused(source, writing(untold))

    def linked(target: Target) -> dict[str, int]:
        create(target, "told")
        (next(source.parent.rglob("told")).parent / "link").symlink_to(source)
        return {"told": 1}

    assert "link is there and no file of the edit's plan" in refused(source, writing(linked))


def test_a_file_whose_block_raises_is_removed(source: Path, tmp_path: Path) -> None:
    def failing(target: Target) -> dict[str, int]:
        stream: IO[bytes]
        with pytest.raises(ZeroDivisionError), target.create("new") as stream:
            stream.write(b"half")
            raise ZeroDivisionError
        return create(target, "new", b"whole")

    toys = opened(source)
    sabotaged = Sabotaged(toys.folder, toys.times, writing(failing))
    receipt = apply_edit(sabotaged, 2, edits_between(NOW, AFTER), str(tmp_path / "target"))
    assert (tmp_path / "target" / "new").read_bytes() == b"whole"
    assert "new" in [file.path for file in receipt.written]


# Rows that the engine says may differ


@dataclass(frozen=True)
class Knowing(ToyPlan):
    """A plan that knows which rows may differ: those of places that were written."""

    read: list[str] = dataclasses.field(default_factory=list, compare=False)

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        if state != "queues":
            return None
        assert isinstance(target, Toys)
        return self._places(target)

    def _places(self, target: Toys) -> Iterator[RowPair]:
        source = opened(Path(self.folder.path))
        for part in source.at("queues", 2).parts(()):
            if queues(part.number) in self.written:  # type: ignore[attr-defined]  # a Place
                self.read.append("place")
                yield list(source.at("queues", 2).rows(part, (), ())), list(target.at("queues", 2).rows(part, (), ()))


def knowing(plan: ToyPlan) -> Knowing:
    return Knowing(**{f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)})


def test_only_rows_that_may_differ_are_read(source: Path, tmp_path: Path) -> None:
    toys, plans = opened(source), list[Knowing]()

    def known(plan: ToyPlan) -> Knowing:
        plans.append(knowing(plan))
        return plans[-1]

    after = dataclasses.replace(NOW, queues={**NOW.queues, "d": [4.0]})
    apply_edit(Sabotaged(toys.folder, toys.times, known), 2, edits_between(NOW, after), str(tmp_path / "target"))
    assert plans[0].read == ["place"]
    assert same(read(opened(tmp_path / "target"), 2), after)


def test_a_wrong_row_among_those_that_may_differ_is_named(source: Path) -> None:
    def wrong(plan: ToyPlan) -> EditPlan:
        return knowing(with_rows(queues(1), set_cell(0, "item", 5.0))(plan))

    assert "state queues" in refused(source, wrong)


# Edits of many keys


def many(count: int) -> Model:
    return Model({}, {f"k{number}": [float(number), None] for number in range(count)})


def test_of_many_keys_some_are_looked_up(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_checks, "MOST_KEYS", 50)
    monkeypatch.setattr(key_checks, "KEYS_AT_ONCE", 20)
    after = Model(NOW.toys, {**NOW.queues, **many(170).queues})
    apply_edit(opened(source), 2, edits_between(NOW, after), str(tmp_path / "target"))
    assert same(read(opened(tmp_path / "target"), 2), after)

    def turned(plan: ToyPlan) -> ToyPlan:
        return with_rows(queues(0), lambda rows: rows.reverse())(plan)

    assert "in another order" in refused_again(source, turned, after)


def refused_again(source: Path, change: Callable[[ToyPlan], EditPlan], after: Model) -> str:
    toys = opened(source)
    with pytest.raises(StateStoreError) as raised:
        sabotaged = Sabotaged(toys.folder, toys.times, change)
        apply_edit(sabotaged, 2, edits_between(NOW, after), str(source.with_name("another")))
    return str(raised.value)


def test_zeros_are_told_apart_and_nans_are_not(source: Path, tmp_path: Path) -> None:
    def of(items: list[float]) -> pa.Table:
        return pa.table({"k": ["c"] * len(items), "item": pa.array(items, pa.float64())})

    (other_nan,) = pa.array([0xFFF8000000000001], pa.uint64()).view(pa.float64()).to_pylist()
    edit = StateEdit("queues", ("k",), of([7.5]), of([-0.0, other_nan]))
    apply_edit(opened(source), 2, [edit], str(tmp_path / "target"))
    assert repr(read(opened(tmp_path / "target"), 2).queues["c"]) == "[-0.0, nan]"


def test_an_error_about_a_target_is_told_once() -> None:
    with pytest.raises(StateStoreError) as raised, of_target("t"), of_target("t"):
        raise ValueError("a length of -1")
    assert str(raised.value).count("was not made") == 1 and "a length of -1" in str(raised.value)
