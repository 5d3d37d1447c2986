"""An edit of an engine's state: from the rows that go and come to a target that is verified, with a receipt.

The source is never opened for writing. The target is written, read again and compared before it appears: on a disk as
a private folder, which is then renamed, in an object store without the files that make it a state, which are then put.
Whenever an edit ends, the target is there and whole, or absent.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version as version_of
from typing import Any

from statestore.catalog.edits.copied_files import copy_files
from statestore.catalog.edits.engine_confirmation import EngineReader, confirm_target, refuse_remote
from statestore.catalog.edits.left_keys import left_keys
from statestore.catalog.edits.receipt import (
    RECEIPT_FILE,
    CopiedFiles,
    Receipt,
    WrittenFile,
    files_digest,
    receipt_bytes,
)
from statestore.catalog.edits.receipt_states import edited_states, kept_statements
from statestore.catalog.edits.source_files import SourceFiles, files_of, local_root, with_copied
from statestore.catalog.edits.target_errors import wrong_plan
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.catalog.edits.targets import MadeTarget, new_target, refuse_around, target_location
from statestore.catalog.edits.task_writing import write_in_tasks
from statestore.catalog.edits.verification import columns_of, verify_target
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns
from statestore.formats.edits import UNFINISHED_FILE, CopiedFile, EditOptions, EditPlan, StateEdit
from statestore.formats.engine import Source, StateInfo
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import MAX_SMALL_BYTES
from statestore.formats.places.held_tables import LARGE
from statestore.formats.places.locations import Location
from statestore.formats.places.reading_threads import in_order, processors


@dataclass(frozen=True)
class EditProgress:
    """Progress of an edit: ``step`` is copying (in bytes), writing (in parts) or verifying (in rows).

    ``total`` is None where it is not known.
    """

    step: str
    done: int
    total: int | None = None


NO_OPTIONS = EditOptions()
Listener = Callable[[EditProgress], None]


@dataclass(frozen=True)
class _Edit:
    """An edit as it was asked for."""

    source: Source
    version: int
    edits: Sequence[StateEdit]
    options: EditOptions
    statements: Sequence[str]
    keep_rows: bool
    keep_statements: bool


def _unheard(event: EditProgress) -> None:
    """Hear nothing."""


def _unused(receipt: Receipt) -> None:
    """Make nothing of a receipt."""


def apply_edit(
    source: Source,
    version: int,
    edits: Sequence[StateEdit],
    target: str | os.PathLike[str],
    options: EditOptions = NO_OPTIONS,
    *,
    statements: Sequence[str] = (),
    keep_rows: bool = False,
    keep_statements: bool = False,
    progress: Listener = _unheard,
    reader: EngineReader | None = None,
    runs: TaskRuns | None = None,
    published: Callable[[Receipt], None] = _unused,
) -> Receipt:
    """Make ``target``, a new folder that has a version of the source with the edits, and return its receipt.

    ``statements`` are those from which the edits were computed. The receipt has them as texts if ``keep_statements`` or
    if rows are only added, and else as digests; with ``keep_rows`` it has all rows of the edit. A ``reader``, that of
    the engine, confirms the target, as notes of the receipt say. With ``runs`` files are written and copied in tasks,
    and states are read there to be compared; the target appears here, once. One in an object store is written here.
    ``published`` is called with the receipt once the target is there, before it is handed on.

    Raises InvalidInputError TARGET_EXISTS, WRONG_INPUT for rows in other columns than the state's, and what
    `Source.edit_plan` raises; UnsupportedError UNSUPPORTED_PATH for a target that no edit can write to; ConflictError
    SOURCE_CHANGED; StateStoreError EDIT_DIFFERS where what was written is not what was to be; StorageError DISK_FAILED.
    There is no target then. There is one after EDIT_NOT_DELIVERED: it is verified, and was not handed on
    (`EditPlan.deliver`).
    """
    edits = [_in_columns(source, version, edit) for edit in edits]
    edit = _Edit(source, version, edits, options, statements, keep_rows, keep_statements)
    location = target_location(target)
    if reader is not None:
        refuse_remote(location)
    if source.place is not None:
        refuse_around(location, source.place)
    listed = files_of(source)
    plan = source.edit_plan(version, edits, options)
    followed = [_in_columns(source, version, each) for each in plan.followed]
    # A receipt of an earlier edit is one of the source alone.
    copied = [file for file in plan.copied() if file.path not in (RECEIPT_FILE, UNFINISHED_FILE)]
    for folder in {file.folder.path for file in copied if file.folder.is_local}:
        refuse_around(location, Location(folder))
    before = with_copied(listed, copied)
    with new_target(location) as made, disk_errors("write", made.path):
        runs = runs if isinstance(made, TargetFolder) else None  # tasks do not see what is held back
        done = _write(plan, copied, made, progress, runs)
        with made.shown(locally=plan.opens_local_folders) as shown:
            untold = verify_target(plan, source, shown, [*edits, *followed], made.path, _heard_rows(progress), runs)
            untold += [] if reader is None else confirm_target(plan, source, shown, made.path, reader)
        untold = [*left_keys(source, plan, [*edits, *followed]), *untold]
        before.check(with_copied(files_of(source), copied))
        receipt = _receipt(edit, plan, followed, before, made, done)
        receipt = replace(receipt, notes=(*receipt.notes, *untold))
        content = receipt_bytes(receipt)
        if len(content) > MAX_SMALL_BYTES:
            raise InvalidInputError(
                ErrorCode.EDIT_REFUSED,
                f"{made.path}: the receipt has {len(content)} bytes, expected at most {MAX_SMALL_BYTES}, which can be "
                "read again; leave out keep_rows and keep_statements, or make several edits",
            )
        root = local_root(source)
        mode = None if root is None or not root.is_dir() else root.stat().st_mode
        made.publish(content, plan.stages(), mode)
    published(receipt)
    return _delivered(plan, made, receipt)


def _delivered(plan: EditPlan, made: MadeTarget, receipt: Receipt) -> Receipt:
    """Hand the target on where its engine does not start from it; return the receipt that tells of it."""
    try:
        told = plan.deliver(made.path)
    except StateStoreError as error:
        receipt = replace(receipt, notes=(*receipt.notes, f"Not handed on: {error.message}"))
        with suppress(StateStoreError):  # of the two errors, this one says less
            made.replace_receipt(receipt_bytes(receipt))
        raise
    if not told:
        return receipt
    receipt = replace(receipt, notes=(*receipt.notes, *told))
    made.replace_receipt(receipt_bytes(receipt))
    return receipt


def _heard_rows(progress: Listener) -> Callable[[int], None]:
    return lambda rows: progress(EditProgress("verifying", rows))


def _in_columns(source: Source, version: int, edit: StateEdit) -> StateEdit:
    """Return an edit with its rows in the columns of the state, few of them in one chunk."""
    schema = columns_of(source, edit.state, version)
    sides = []
    for what, table in (("removed", edit.removed), ("added", edit.added)):
        kinds = {field.name: field.type for field in table.schema}
        if any(kinds.get(field.name) != field.type for field in schema):
            raise InvalidInputError(
                ErrorCode.WRONG_INPUT,
                f"rows to be {what} in state {edit.state} of {source.path} have the columns {kinds}; expected "
                f"{dict(zip(schema.names, schema.types, strict=True))}",
            )
        rows = table.select(schema.names)
        sides.append(rows.combine_chunks() if rows.nbytes < LARGE else rows)
    return replace(edit, removed=sides[0], added=sides[1])


@dataclass(frozen=True)
class _Done:
    """The files of a target."""

    copied: CopiedFiles
    written: tuple[WrittenFile, ...]


def _write(
    plan: EditPlan, files: Sequence[CopiedFile], folder: MadeTarget, progress: Listener, runs: TaskRuns | None
) -> _Done:
    total = sum(file.bytes for file in files if file.bytes is not None)

    def heard_bytes(done: int) -> None:
        progress(EditProgress("copying", done, max(done, total)))

    sizes: dict[str, int] = {}
    if runs is None or not isinstance(folder, TargetFolder):
        copied = copy_files(files, folder, plan.stages(), heard_bytes)
        _write_here(plan, folder, sizes, progress)
    else:
        copied = write_in_tasks(plan, files, folder, runs, sizes)
        heard_bytes(copied.bytes)
        progress(EditProgress("writing", len(plan.parts()), len(plan.parts())))
    sizes.update(plan.finish(folder.last_files))
    return _Done(copied, _written_files(folder, files, sizes))


def _write_here(plan: EditPlan, folder: MadeTarget, sizes: dict[str, int], progress: Listener) -> None:
    """Write all parts in threads, and add the sizes of their files."""
    parts = plan.parts()

    def write(part: Any) -> Mapping[str, int]:
        return plan.write(part, folder)

    for number, written in enumerate(in_order(write, parts, processors()), 1):
        sizes.update(written)
        progress(EditProgress("writing", number, len(parts)))


def _written_files(
    folder: MadeTarget, copied: Sequence[CopiedFile], sizes: Mapping[str, int]
) -> tuple[WrittenFile, ...]:
    """Return the files that a plan wrote. Raises EDIT_DIFFERS unless they are there as it says, and no others."""
    there = folder.files()
    for path, size in sizes.items():
        if there.get(path) != size:
            raise wrong_plan(folder.path, f"{path} was written with {size} bytes, and has {there.get(path, 'none')}")
    for file in copied:
        if file.path not in there or file.bytes not in (None, there[file.path]):
            found = there.get(file.path, "none")
            raise wrong_plan(folder.path, f"{file.path} was copied with {file.bytes} bytes, and has {found}")
    unknown = there.keys() - sizes.keys() - {file.path for file in copied}
    if unknown:
        raise wrong_plan(folder.path, f"{min(unknown)} is there and no file of the edit's plan")
    known = folder.written
    return tuple(
        known.get(path) or WrittenFile(path, size, folder.digest(path)) for path, size in sorted(sizes.items())
    )


def _receipt(
    edit: _Edit, plan: EditPlan, followed: Sequence[StateEdit], before: SourceFiles, folder: MadeTarget, done: _Done
) -> Receipt:
    source, key = edit.source, secrets.token_hex(32)
    every = [*((each, False) for each in edit.edits), *((each, True) for each in followed)]
    row_keys = {each.state: _row_key(source.info(each.state)) for each, _ in every}
    removing = [each for each, _ in every]
    return Receipt(
        source=source.path,
        source_identity=source.identity,
        version=plan.version,
        source_files=files_digest(before.sizes),
        target=folder.path,
        target_version=plan.target_version,
        target_files=files_digest(folder.files(), {each.path: each.sha256 for each in done.written}),
        statements=kept_statements(edit.statements, removing, key, as_texts=edit.keep_statements),
        options={**asdict(edit.options), "settings": dict(edit.options.settings)},
        states=edited_states(every, row_keys, key, keep_rows=edit.keep_rows),
        written=done.written,
        copied=done.copied,
        notes=tuple(plan.notes),
        user=_user(),
        host=socket.gethostname(),
        time=time.time_ns() // 1000,
        product=version_of("statestore"),
        key=key,
    )


def _row_key(info: StateInfo) -> tuple[str, ...]:
    """The columns that identify a row wherever the engine keeps it."""
    return tuple(name for name in info.row_key if name not in info.placement)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return str(os.getuid())
