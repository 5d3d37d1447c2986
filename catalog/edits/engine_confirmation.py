"""Confirmation of a target by the engine's own reader, after this project's own and before the target appears.

The reader gets a copy of the target that shares its files: readers of engines leave folders in what they read, and some
files name the place in which the target is to lie. Of each state its rows must be those that are read here, as bags.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from statestore.catalog.edits.row_sums import differing_row, sums_of
from statestore.catalog.edits.shown_rows import shown_row
from statestore.catalog.edits.target_errors import wrong_plan
from statestore.formats.edits import EditPlan
from statestore.formats.engine import Source, StateAt
from statestore.formats.engine_reads import EngineRead
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.locations import Location

_COPY = "read-by-the-engine"


class EngineReader(Protocol):
    """A reader that an engine has. ``name`` is how receipts call it, with its release: "Spark 4.3.0's reader"."""

    name: str

    def rows(self, place: str, read: EngineRead, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a state of the files at ``place``, in these columns.

        Raises UnsupportedError for types that the reader does not return as they are, any other error where it fails.
        """


def reader_missing(source: Source) -> UnsupportedError:
    """The error for a source whose engine has no reader that Python reaches."""
    return UnsupportedError(
        ErrorCode.EDIT_UNSUPPORTED,
        f"{source.path}: its engine has no reader that can be called from Python, so that it cannot confirm the "
        "target; leave out with_engine (--with-engine): the target is read again and compared all the same. Then let "
        "the engine itself confirm it: start the job from the target, and look at its first results",
    )


def refuse_remote(target: Location) -> None:
    """Raise UnsupportedError EDIT_UNSUPPORTED for a target in an object store, which engines cannot read before it is
    there."""
    if not target.is_local:
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED,
            f"{target}: the engine's own reader cannot confirm a target in an object store before it appears; leave "
            "out with_engine (--with-engine), or edit into a local folder and copy it",
        )


def confirm_target(plan: EditPlan, root: str, path: str, reader: EngineReader) -> list[str]:
    """Return, as sentences, which rows of the target in the folder ``root`` the engine's own reader has confirmed.

    ``path`` is that of the target in messages. Raises StateStoreError EDIT_DIFFERS where the reader fails, or finds
    other rows than this project does.
    """
    target = plan.opened(root)
    assert isinstance(target, Source)
    reads = target.engine_reads()
    if reads is None:
        raise reader_missing(target)
    confirmed, notes = dict[str, int](), []
    copy = Path(root).parent / _COPY
    # Readers misunderstand paths with spaces and percent signs, which those of users may have.
    link = Path(tempfile.mkdtemp(prefix="statestore-")) / _COPY
    place = str(link)
    try:
        with disk_errors("make a copy for the reader of the engine", copy):
            _share_files(Path(root), copy, reads.moved(place))
            link.symlink_to(copy)
        for state in target.states():
            if plan.target_version not in target.kept(state):
                continue
            read = reads.states[state]
            try:
                confirmed[state] = _confirm(target.at(state, plan.target_version), state, place, read, path, reader)
            except UnsupportedError as error:
                notes.append(f"The rows of {state} are not confirmed by {reader.name}: {error.message}")
            else:
                if read.left_out:
                    notes.append(f"Of {state} only {', '.join(read.columns)} is confirmed: {read.left_out}.")
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.rmtree(link.parent, ignore_errors=True)
    if confirmed:
        rows = sum(confirmed.values())
        notes.insert(0, f"{', '.join(sorted(confirmed))}: confirmed by {reader.name}: {rows} rows.")
    return notes


def _confirm(at: StateAt, state: str, place: str, read: EngineRead, path: str, reader: EngineReader) -> int:
    schema = pa.schema([at.schema.field(name) for name in read.columns])
    names = schema.names

    def ours() -> Iterator[pa.RecordBatch]:
        for part in at.parts(()):
            for batch in at.rows(part, names, ()):
                yield batch.select(names)

    def theirs() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader.rows(place, read, schema)
        except StateStoreError:
            raise
        except Exception as error:  # of many classes, as the reader's own code raises them
            reason = str(error).partition("\n")[0]
            raise wrong_plan(path, f"{reader.name} cannot read its state {state} ({reason})") from error

    mine, its = sums_of(ours(), names), sums_of(theirs(), names)
    bucket = mine.differing_bucket(its)
    if bucket is None and mine.rows == its.rows:
        return mine.rows
    found = None if bucket is None else differing_row(ours(), theirs(), names, bucket)
    what = f"finds {its.rows} rows in state {state}, and here are {mine.rows}"
    if found is not None:
        row, more = found
        what = f"{what}; {'it lacks' if more > 0 else 'it alone has'} the row {shown_row(row)}"
    raise wrong_plan(path, f"{reader.name} {what}")


def _share_files(root: Path, place: Path, moved: Mapping[str, bytes]) -> None:
    """Make a folder with the files of another one, as hard links where that is possible, and some with others' content.

    Whoever reads it may add files: they are not in ``root``.
    """
    for folder, _, names in os.walk(root):
        here = place / Path(folder).relative_to(root)
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = (Path(folder) / name).relative_to(root).as_posix()
            if path in moved:
                (here / name).write_bytes(moved[path])
                continue
            with contextlib.suppress(OSError):
                os.link(Path(folder) / name, here / name)
                continue
            shutil.copyfile(Path(folder) / name, here / name)
