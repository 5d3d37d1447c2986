"""A target has the rows of its source with the edit, and nothing else is there when an edit is refused."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.engines.toy_edits import BEFORE, NOW, Model, edits_between, opened, read, same, tree, write_source
from support.properties import few_or_many

from statestore.catalog.edits import apply, target_folder
from statestore.catalog.edits.apply import EditProgress, apply_edit
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError

AFTER = Model({("a", "x"): 1, ("a", "y"): 20, ("d", "x"): 5}, {"a": [1.0, 2.0], "c": [7.5], "d": [None, -0.0]})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def edit(source: Path, target: Path, after: Model = AFTER, **options: Any) -> Any:
    return apply_edit(opened(source), 2, edits_between(NOW, after), str(target), EditOptions(), **options)


def nothing_beside(folder: Path, *names: str) -> bool:
    return sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("as_batch", [False, True])
def test_the_target_has_the_rows_of_the_edit(source: Path, tmp_path: Path, as_batch: bool) -> None:
    before = tree(source)
    options = EditOptions(as_batch=as_batch)
    receipt = apply_edit(opened(source), 2, edits_between(NOW, AFTER), str(tmp_path / "target"), options)
    assert receipt.target_version == (3 if as_batch else 2)
    found = opened(tmp_path / "target")
    assert same(read(found, receipt.target_version), AFTER)
    assert same(read(found, 1), BEFORE)
    assert not as_batch or same(read(found, 2), NOW)
    assert tree(source) == before
    assert nothing_beside(tmp_path, "source", "target")


def test_an_older_version_is_edited(source: Path, tmp_path: Path) -> None:
    after = Model({("z", "x"): 10}, {"z": []})
    apply_edit(opened(source), 1, edits_between(BEFORE, after), str(tmp_path / "target"), EditOptions())
    found = opened(tmp_path / "target")
    assert sorted(found.times) == [1] and same(read(found, 1), after)


def test_an_edit_of_nothing_is_a_copy(source: Path, tmp_path: Path) -> None:
    apply_edit(opened(source), 2, [], str(tmp_path / "target"), EditOptions())
    assert same(read(opened(tmp_path / "target"), 2), NOW)


def test_a_target_is_edited_again(source: Path, tmp_path: Path) -> None:
    """The receipt of the first edit is not copied."""
    edit(source, tmp_path / "one")
    again = edits_between(AFTER, NOW)
    receipt = apply_edit(opened(tmp_path / "one"), 2, again, str(tmp_path / "two"), EditOptions())
    assert same(read(opened(tmp_path / "two"), 2), NOW)
    assert receipt.source == str(tmp_path / "one")


def test_copies_keep_times_and_rights(source: Path, tmp_path: Path) -> None:
    os.utime(source / "1.json", ns=(0, 1_600_000_000_123_456_789))
    (source / "1.json").chmod(0o600)
    source.chmod(0o700)
    edit(source, tmp_path / "target")
    copied = (tmp_path / "target" / "1.json").stat()
    assert (copied.st_mtime_ns, copied.st_mode & 0o777) == (1_600_000_000_123_456_789, 0o600)
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o700


def test_a_read_only_source_gives_a_target_that_a_job_can_write_to(source: Path, tmp_path: Path) -> None:
    source.chmod(0o555)
    (source / "1.json").chmod(0o444)
    try:
        edit(source, tmp_path / "target")
    finally:
        source.chmod(0o755)
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "target" / "1.json").stat().st_mode & 0o777 == 0o444


def test_a_receipt_that_nobody_could_read_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "MAX_SMALL_BYTES", 1000)
    with pytest.raises(InvalidInputError, match=r"the receipt has \d+ bytes.*leave out keep_rows"):
        edit(source, tmp_path / "target", keep_rows=True)
    assert nothing_beside(tmp_path, "source")


def test_progress_is_told(source: Path, tmp_path: Path) -> None:
    heard: list[EditProgress] = []
    edit(source, tmp_path / "target", progress=heard.append)
    assert list(dict.fromkeys(event.step for event in heard)) == ["copying", "writing", "verifying"]
    rows = len(NOW.toys) + len(AFTER.toys) + len(NOW.totals()) + len(AFTER.totals())
    rows += sum(len(items) for model in (NOW, AFTER) for items in model.queues.values())
    assert heard[-1].done == rows
    copied = [event for event in heard if event.step == "copying"]
    assert copied[-1].done == copied[-1].total


@pytest.mark.parametrize("place", ["file", "folder", "empty folder", "link to nothing"])
def test_what_is_there_is_never_replaced(source: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "target"
    if place == "file":
        target.write_text("mine")
    elif place == "link to nothing":
        target.symlink_to(tmp_path / "nothing")
    else:
        target.mkdir()
        if place == "folder":
            (target / "mine").touch()
    with pytest.raises(InvalidInputError, match=f"{target} exists.*name another") as raised:
        edit(source, target)
    assert raised.value.code == ErrorCode.TARGET_EXISTS
    assert nothing_beside(tmp_path, "source", "target")


@pytest.mark.parametrize("below", ["target", "queues/target", "../link/target"])
def test_a_target_in_the_source_is_refused(source: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to(source)
    before = tree(source)
    with pytest.raises(InvalidInputError, match="lies in the folder") as raised:
        edit(source, source / below)
    assert raised.value.code == ErrorCode.TARGET_EXISTS
    assert tree(source) == before


def test_a_folder_of_the_source_is_known_by_another_path(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below a mount, or in other letters where a file system does not tell them apart: no link is followed."""
    (tmp_path / "other").symlink_to(source)
    monkeypatch.setattr(os.path, "realpath", os.path.abspath)
    with pytest.raises(InvalidInputError, match="lies in the folder"):
        target_folder.refuse_inside(str(tmp_path / "other" / "target"), str(source))
    target_folder.refuse_inside(str(tmp_path / "target"), str(source))


def test_a_target_that_appears_meanwhile_is_kept(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"

    def appear(event: EditProgress) -> None:
        if event.step == "verifying" and not target.exists():
            target.mkdir()
            (target / "mine").touch()

    with pytest.raises(InvalidInputError, match="TARGET_EXISTS"):
        edit(source, target, progress=appear)
    assert [path.name for path in target.iterdir()] == ["mine"]
    assert nothing_beside(tmp_path, "source", "target")


def test_a_target_of_a_storage_that_has_no_conditional_puts_is_refused(source: Path) -> None:
    with pytest.raises(UnsupportedError, match="target of an edit is in an object store or a local directory"):
        apply_edit(opened(source), 2, [], "hdfs://namenode/target", EditOptions())


def test_an_edit_that_the_engine_refuses_leaves_nothing(source: Path, tmp_path: Path) -> None:
    (wrong,) = edits_between(Model({("a", "x"): 8}), Model({}))
    with pytest.raises(StateStoreError, match="EDIT_REFUSED"):
        apply_edit(opened(source), 2, [wrong], str(tmp_path / "target"), EditOptions())
    assert nothing_beside(tmp_path, "source")


def test_rows_in_other_columns_are_refused(source: Path, tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "field": ["x"], "n": pa.array([1], pa.int32())})
    with pytest.raises(InvalidInputError, match=r"WRONG_INPUT.*removed in state toys.*int32.*expected.*int64"):
        apply_edit(opened(source), 2, [StateEdit("toys", ("k", "field"), rows, rows)], str(tmp_path / "t"))


def test_the_listener_may_end_an_edit(source: Path, tmp_path: Path) -> None:
    def stop(event: EditProgress) -> None:
        if event.step == "verifying":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edit(source, tmp_path / "target", progress=stop)
    assert nothing_beside(tmp_path, "source")


# A model

KEYS = st.sampled_from(["", "a", "b", "c", "ä", "zz"])
FLOATS = st.one_of(st.none(), st.floats(width=64, allow_nan=True), st.just(-0.0), st.just(0.0))
MODELS = st.builds(
    Model,
    st.dictionaries(st.tuples(KEYS, st.sampled_from("xyz")), st.integers(-(2**63), 2**63 - 1), max_size=12),
    st.dictionaries(KEYS, st.lists(FLOATS, min_size=1, max_size=4), max_size=5),
)


@few_or_many(15, 400, MODELS, MODELS, st.booleans())
def test_any_rows_become_any_others(
    tmp_path_factory: pytest.TempPathFactory, before: Model, after: Model, as_batch: bool
) -> None:
    folder = tmp_path_factory.mktemp("edit")
    source = write_source(folder / "source", {7: before})
    options = EditOptions(as_batch=as_batch)
    receipt = apply_edit(opened(source), 7, edits_between(before, after), str(folder / "target"), options)
    assert same(read(opened(folder / "target"), receipt.target_version), after)
    gone = {unit for unit in before.toys if unit not in after.toys}
    changed = {u for u in before.toys if u in after.toys and before.toys[u] != after.toys[u]}
    counted = {state.name: state for state in receipt.states}
    if "toys" in counted:
        assert (counted["toys"].removed, counted["toys"].changed) == (len(gone), len(changed))
    assert dataclasses.replace(receipt, key=None).states == receipt.states


def test_of_two_edits_to_one_target_one_wins(source: Path, tmp_path: Path) -> None:
    """The other one does not touch what is there, and neither removes the files of the other while it works."""
    target, other = tmp_path / "target", Model({("q", "x"): 1}, {})
    inner: list[Any] = []

    def meanwhile(event: EditProgress) -> None:
        if event.step == "writing" and not inner:
            inner.append(edit(source, target, other))

    with pytest.raises(InvalidInputError, match="TARGET_EXISTS"):
        edit(source, target, progress=meanwhile)
    assert same(read(opened(target), 2), other)
    assert nothing_beside(tmp_path, "source", "target")
