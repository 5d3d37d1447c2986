"""Edits of shown rows: what a copy shows then, and which edits are refused."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import ARCHIVE, MORE, checkpoint_path, multiset, place_without_hash
from support.edited_copies import write_copy
from support.object_store import object_store
from support.parameters import mostly_slow

import statestore
from statestore.formats.edits import EditOptions, EditPlan, StateEdit
from statestore.formats.engine import StateAt
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.source import CheckpointSource, open_source

LATE = EditOptions(allow_late=True)
Change = Callable[[Any], Any]


def edit(source: CheckpointSource, state: str, removed: pa.Table, added: pa.Table | None = None) -> StateEdit:
    come = removed.schema.empty_table() if added is None else added
    return StateEdit(state, source.info(state).row_key, removed, come)


def plan_of(source: CheckpointSource, *edits: StateEdit, options: EditOptions = LATE) -> EditPlan:
    return source.edit_plan(source.checkpoint.batches[-1], edits, options)


def changed(rows: pa.Table, number: int, change: Change) -> pa.Table:
    """Rows with the cells of a column changed."""
    column = pa.array([change(cell) for cell in rows.column(number).to_pylist()], rows.schema.field(number).type)
    return rows.set_column(number, rows.schema.field(number), column)


def with_key(rows: pa.Table, text: str) -> pa.Table:
    """Rows with a text in their key."""

    def change(key: Any) -> Any:
        return {name: text if isinstance(cell, str) else cell for name, cell in key.items()}

    return changed(rows, 0, change)


STATES = [
    ("spark4.3.0-agg__hdfs", ARCHIVE, "state"),
    ("spark4.3.0-agg__rkck", ARCHIVE, "state"),
    ("spark4.0.1-agg__rk2", ARCHIVE, "state"),
    ("spark4.3.0-agg__rkzs", ARCHIVE, "state"),
    ("spark4.3.0-dedup__hdfs", ARCHIVE, "state"),
    ("spark4.3.0-dedupw__rkv2", ARCHIVE, "state"),
    ("spark4.3.0-fmgws__rkcl", ARCHIVE, "state"),
    ("spark4.3.0-win__hdfsck", ARCHIVE, "state"),
    ("spark4.3.0-win__rkcl", ARCHIVE, "state"),
    ("spark4.3.0-sess__rkck", ARCHIVE, "state"),
    ("spark4.3.0-chain__rkcl", ARCHIVE, "state_1"),
    ("spark4.3.0-twsttl__rkck", ARCHIVE, "val"),
    ("spark4.3.0-twsttl__rk", ARCHIVE, "mp"),
    ("spark4.3.0-twsttl__rkav", ARCHIVE, "val"),
    ("spark4.1.4-scalagroups__hdfs", MORE, "state"),
    ("spark4.1.4-values__hdfs", MORE, "state"),
    ("spark3.5.9-window1__hdfs", MORE, "state"),
    ("spark3.5.9-session__hdfs", MORE, "state"),
    ("spark3.5.9-session__rkcl", MORE, "state"),
]
QUICK_STATES = {STATES[number] for number in (0, 2, 8, 9, 11, 12, -1)}


@pytest.mark.parametrize(("name", "archive", "state"), mostly_slow(STATES, QUICK_STATES))
def test_a_copy_shows_the_edit_and_nothing_else(name: str, archive: Path, state: str, tmp_path: Path) -> None:
    """Of the rows one in three is erased, the values of another are those of its neighbour; erased keys come back."""
    source = opened(checkpoint_path(name, archive))
    rows = rows_of(source, state)
    assert rows.num_rows >= 3
    count = rows.num_rows // 3
    erased, updated, lent = (rows.slice(number * count, count) for number in range(3))
    value = rows.schema.names[-1]
    added = updated.set_column(updated.num_columns - 1, rows.schema.field(value), lent.column(value))
    plan = plan_of(source, edit(source, state, pa.concat_tables([erased, updated]), added))
    write_copy(plan, tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    expected = pa.concat_tables([rows.slice(2 * count), added])
    assert multiset(rows_of(copy, state)) == multiset(expected)
    for other in set(source.states()) - {state}:
        assert multiset(rows_of(copy, other)) == multiset(rows_of(source, other))
    write_copy(plan_of(copy, edit(copy, state, added, pa.concat_tables([erased, updated]))), tmp_path / "back")
    assert multiset(rows_of(opened(tmp_path / "back"), state)) == multiset(rows)


def test_new_keys_lie_where_lookups_search_them(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__rkcl"))
    rows = rows_of(source, "state")
    added = pa.concat_tables([with_key(rows.slice(0, 1), f"new-{number}") for number in range(20)])
    assert not multiset(added) & multiset(rows)
    write_copy(plan_of(source, edit(source, "state", rows.slice(0, 0), added)), tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert multiset(rows_of(copy, "state")) == multiset(pa.concat_tables([rows, added]))
    at: StateAt = copy.at("state", copy.newest("state"))
    for part in at.parts(()):
        check = at.placement(part)
        assert check is not None
        for batch in at.rows(part, at.schema.names, ()):
            check.add(batch)
        assert not check.findings()


def test_a_copy_without_edits_has_all_files_as_they_are(tmp_path: Path) -> None:
    path = checkpoint_path("spark4.3.0-join__rkj4")
    write_copy(plan_of(opened(path)), tmp_path / "copy")
    found, expected = files_in(tmp_path / "copy"), files_in(path)
    assert found.keys() == expected.keys()
    # This one names the folder.
    assert [name for name in found if found[name] != expected[name]] == ["state/0/_metadata/v2/0"]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.0.1-agg__rk2", "spark4.3.0-agg__rkck"])
def test_a_checkpoint_in_an_object_store_is_edited_into_a_folder(name: str, tmp_path: Path) -> None:
    with object_store() as store:
        source = open_source(parse_location(store.upload(checkpoint_path(name), name)))
        rows = rows_of(source)
        added = pa.concat_tables([rows.slice(1, 1).set_column(1, rows.schema.field(1), rows.slice(0, 1)["value"])])
        new = with_key(rows.slice(0, 1), "new")
        plan = plan_of(source, edit(source, "state", rows.slice(0, 2), pa.concat_tables([added, new])))
        before = store.contents(name)
        write_copy(plan, tmp_path / "copy")
        assert store.contents(name) == before
    found = rows_of(opened(tmp_path / "copy"))
    assert multiset(found) == multiset(pa.concat_tables([rows.slice(2), added, new]))
    names = {str(each.relative_to(tmp_path / "copy")) for each in (tmp_path / "copy").rglob("*") if each.is_file()}
    shown = {each.partition(f"/{name}/")[2] for each in before if "/." not in each}
    assert shown <= names


def test_only_table_files_may_be_links_to_those_of_the_source() -> None:
    """Spark gives each a name of its own, and writes all other files anew under the names that they had."""
    for name in ("spark4.3.0-agg__rk", "spark4.3.0-join__rkv2"):
        copied = list(plan_of(opened(checkpoint_path(name))).copied())
        assert (
            {each.path for each in copied if each.immutable}
            == {each.path for each in copied if each.path.endswith(".sst") and "/SSTs/" in each.path}
            != set()
        )


def test_rows_that_stay_as_they_are_touch_no_file(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    rows = rows_of(source, "state")
    plan = plan_of(source, edit(source, "state", rows, rows))
    assert not plan.parts()
    assert list(write_copy(plan, tmp_path / "copy")) == [f"commits/{source.newest('state')}"]


def test_the_newest_commit_is_written_last(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkcl"))
    rows = rows_of(source, "val")
    plan = plan_of(source, edit(source, "val", rows.slice(0, 1)))
    newest = f"commits/{plan.version}"
    assert newest not in {each.path for each in plan.copied()}
    written = list(write_copy(plan, tmp_path / "copy"))
    assert written[-1] == newest
    assert plan.target_version == plan.version == source.newest("val")
    assert plan.written_bytes() > 0


# What is refused


def refusal(error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("spark4.3.0-limit__rkcl", "state", "its operator is globalLimit"),
    ],
)
def test_states_whose_rows_belong_together_are_refused_by_name(name: str, state: str, words: str) -> None:
    source = opened(checkpoint_path(name))
    rows = rows_of(source, state)
    found = refusal(UnsupportedError, lambda: plan_of(source, edit(source, state, rows.slice(0, 1))))
    assert found.startswith(f"[EDIT_UNSUPPORTED] state {state} of {checkpoint_path(name)} cannot be edited: ")
    assert words in found


def test_only_the_newest_batch_is_edited() -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    newest = source.newest("state")
    found = refusal(InvalidInputError, lambda: source.edit_plan(newest - 1, (), EditOptions()))
    assert "EDIT_REFUSED" in found and f"edit batch {newest}" in found
    found = refusal(InvalidInputError, lambda: source.edit_plan(newest, (), EditOptions(settings={"partitions": "0"})))
    assert "INVALID_OPTION" in found


@pytest.mark.parametrize("name", ["spark4.3.0-agg__hdfs", "spark4.3.0-agg__rkck"])
def test_an_edit_of_other_state_is_refused(name: str) -> None:
    source = opened(checkpoint_path(name))
    rows = rows_of(source, "state")
    other = changed(rows.slice(0, 1), 1, dict.fromkeys)
    found = refusal(InvalidInputError, lambda: plan_of(source, edit(source, "state", other)))
    assert "EDIT_REFUSED" in found and "1 rows in partition" in found and "not stored as the edit says" in found
    unknown = with_key(rows.slice(0, 1), "unknown")
    found = refusal(InvalidInputError, lambda: plan_of(source, edit(source, "state", unknown)))
    assert "1 rows that the edit removes or changes are not stored" in found
    found = refusal(
        InvalidInputError, lambda: plan_of(source, edit(source, "state", rows.slice(0, 0), rows.slice(0, 2)))
    )
    assert "keys that are stored; update these rows" in found
    twice = pa.concat_tables([rows.slice(0, 1)] * 2)
    for gone, come in ((twice, None), (rows.slice(0, 1), twice)):
        found = refusal(InvalidInputError, partial(plan_of, source, edit(source, "state", gone, come)))
        assert "EDIT_REFUSED" in found


def test_other_columns_are_refused() -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    rows = rows_of(source, "state")
    found = refusal(InvalidInputError, lambda: plan_of(source, edit(source, "state", rows.select(["value", "key"]))))
    assert "expected ['key', 'value']" in found
    text = rows.slice(0, 1).set_column(1, "value", pa.array(["1"]))
    found = refusal(InvalidInputError, lambda: plan_of(source, edit(source, "state", rows.slice(0, 1), text)))
    assert "column value: found string" in found


def test_rows_that_the_watermark_removes_at_once_are_refused(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-win__rkcl"))
    rows = rows_of(source, "state")
    late = changed(rows.slice(0, 2), 0, earlier)
    inserted = edit(source, "state", rows.slice(0, 0), late)
    found = refusal(InvalidInputError, lambda: plan_of(source, inserted, options=EditOptions()))
    assert "2 added rows are older than the watermark, 1704070492000 ms" in found and "--allow-late" in found
    plan = plan_of(source, inserted)
    assert any("2 added rows are older than the watermark" in note for note in plan.notes)
    write_copy(plan, tmp_path / "copy")
    assert multiset(rows_of(opened(tmp_path / "copy"), "state")) == multiset(pa.concat_tables([rows, late]))
    # Rows of the same time as before may be repaired.
    repaired = changed(rows, 1, lambda value: value | {"count": 7})
    assert plan_of(source, edit(source, "state", rows, repaired), options=EditOptions()).parts()


def earlier(key: Any) -> Any:
    window = {name: moment.replace(year=1999) for name, moment in key["window"].items()}
    return key | {"window": window}


def test_moments_of_values_are_compared_with_the_watermark_too() -> None:
    sessions = opened(checkpoint_path("spark4.3.0-sess__rkcl"))
    rows = rows_of(sessions, "state").slice(0, 1)

    def ended(value: Any) -> Any:
        times = {name: moment.replace(year=1999) for name, moment in value["session_window"].items()}
        return value | {"session_window": times}

    late = edit(sessions, "state", rows, changed(rows, 1, ended))
    assert "1 added rows" in refusal(InvalidInputError, lambda: plan_of(sessions, late, options=EditOptions()))
    expiring = opened(checkpoint_path("spark4.3.0-dedupw__rkv2"))
    rows = rows_of(expiring, "state").slice(0, 1)
    for moment, is_late in ((1704069892000_000, True), (1704069892000_001, False)):
        value = pa.array([{"expiresAtMicros": moment}], rows.schema.field("value").type)
        expires = edit(expiring, "state", rows, rows.set_column(1, rows.schema.field("value"), value))
        plan = partial(plan_of, expiring, expires, options=EditOptions())
        if is_late:
            assert "1 added rows" in refusal(InvalidInputError, plan)
        else:
            assert plan().parts()


def test_buffers_that_only_spark_computes_are_kept_or_removed() -> None:
    source = opened(checkpoint_path("spark4.3.0-aggmulti__hdfs"))
    rows = rows_of(source, "state").slice(0, 2)
    buffers = [field.name for field in rows.schema.field("value").type if pa.types.is_binary(field.type)]
    assert buffers
    other = changed(rows, 1, lambda value: value | {buffers[0]: b"other"})
    found = refusal(InvalidInputError, lambda: plan_of(source, edit(source, "state", rows, other)))
    assert f"value.{buffers[0]} is the buffer of an aggregate" in found and "in 2 rows" in found
    assert plan_of(source, edit(source, "state", rows)).parts()


def test_rows_whose_places_no_rule_says_are_found_and_none_is_added(tmp_path: Path) -> None:
    """Queries that began before Spark 3.3 need not place rows by their hash."""
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "source"))
    place_without_hash(checkpoint)
    source = opened(checkpoint)
    rows = rows_of(source, "state")
    write_copy(plan_of(source, edit(source, "state", rows.slice(0, 3))), tmp_path / "copy")
    assert multiset(rows_of(opened(tmp_path / "copy"), "state")) == multiset(rows.slice(3))
    new = with_key(rows.slice(0, 1), "new")
    for gone in (rows.slice(0, 0), rows.slice(0, 1)):
        found = refusal(UnsupportedError, partial(plan_of, source, edit(source, "state", gone, new)))
        assert "EDIT_UNSUPPORTED" in found and "as before Spark 3.3" in found
    found = refusal(InvalidInputError, partial(plan_of, source, edit(source, "state", new)))
    assert "1 rows that the edit removes or changes are stored in no partition" in found


def test_keys_with_lists_are_added_and_changed(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-aggmulti__hdfs"))
    rows = rows_of(source, "state")
    assert any(pa.types.is_list(field.type) for field in rows.schema.field("key").type)
    new = with_key(rows.slice(0, 1), "new")
    write_copy(plan_of(source, edit(source, "state", rows.slice(0, 1), new)), tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert multiset(rows_of(copy, "state")) == multiset(pa.concat_tables([rows.slice(1), new]))
    (verified,) = statestore.verify(tmp_path / "copy", deep=True)
    assert not verified.problems  # each key is where its hash says


def test_states_read_by_guess_are_refused(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-dedup__hdfs"), tmp_path / "source"))
    for schema in checkpoint.rglob("schema"):
        schema.unlink()
    source = opened(checkpoint)
    rows = pa.Table.from_batches([], rows_of(source, "state").schema)
    found = refusal(UnsupportedError, lambda: plan_of(source, edit(source, "state", rows)))
    assert "no schema file says its types" in found


# What users have to know


def notes_of(source: CheckpointSource, *edits: StateEdit) -> Sequence[str]:
    return plan_of(source, *edits).notes


def test_notes_name_the_query_and_an_unfinished_batch(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "source"))
    source = opened(checkpoint)
    assert any(source.identity in note and str(checkpoint) in note for note in notes_of(source))
    assert not any("not committed" in note for note in notes_of(source))
    newest = source.newest("state")
    (checkpoint / "commits" / str(newest)).unlink()
    unfinished = opened(checkpoint)
    assert any(f"Batch {newest} was begun and not committed" in note for note in notes_of(unfinished))
    found = refusal(InvalidInputError, lambda: plan_of(unfinished, options=EditOptions(as_batch=True)))
    assert "EDIT_REFUSED" in found and f"batch {newest} was begun" in found and "leave out as_batch" in found
    erased = edit(unfinished, "state", rows_of(unfinished, "state").slice(0, 1))
    assert any("rows that were deleted" in note for note in notes_of(unfinished, erased))
    assert not any("rows that were deleted" in note for note in notes_of(unfinished))


@pytest.mark.parametrize("as_batch", [False, True])
def test_plans_travel(as_batch: bool) -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__rkcl"))
    removed = edit(source, "state", rows_of(source, "state").slice(0, 3))
    plan = plan_of(source, removed, options=EditOptions(as_batch=as_batch))
    assert plan.target_version == plan.version + as_batch
    assert any("_spark_metadata" in note for note in plan.notes) is as_batch
    again = pickle.loads(pickle.dumps(plan))
    assert [each.path for each in again.copied()] == [each.path for each in plan.copied()]
    assert [part.erased for part in again.parts()] == [part.erased for part in plan.parts()]
    assert again.version == plan.version


def test_new_keys_are_refused_where_stored_ones_lie_in_other_partitions(tmp_path: Path) -> None:
    """As where a user's own partitioning placed them: Spark would not find a new key."""
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "source"))
    state = checkpoint / "state/0"
    shutil.copytree(state / "0/_metadata", tmp_path / "schema")
    for old, new in (("0", "x"), ("1", "0"), ("x", "1")):
        (state / old).rename(state / new)
    shutil.rmtree(state / "1/_metadata", ignore_errors=True)
    shutil.copytree(tmp_path / "schema", state / "0/_metadata", dirs_exist_ok=True)
    source = opened(checkpoint)
    rows = rows_of(source)
    new = with_key(rows.slice(0, 1), "new")
    found = refusal(InvalidInputError, partial(plan_of, source, edit(source, "state", rows.slice(0, 0), new)))
    assert "EDIT_REFUSED" in found and "belong to another one by their hash" in found
