"""An edit as part of the last committed batch, or as a batch of its own.

As part of it: the batch's files of the partitions that the edit touches are written anew. No batch, offset or commit is
added, so a batch that was begun and not committed runs again, with the same number, on the edited state.

As a batch of its own: a batch is added that reads nothing, with files of all partitions, so that the history shows
state before and after the edit. It would take the number of a batch that was begun.

The query that goes on from the target has the id of the source's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from statestore.formats.edits import CopiedFile, EditedSource, EditOptions, EditPlan, StateEdit, Target, rows_since
from statestore.formats.engine import Source
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import LOGS, DataFile, read_metadata
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.editable_states import check_editable
from statestore.formats.spark.edits.amended_files import amended_files, place_of, write_amended, write_pieces
from statestore.formats.spark.edits.appended_files import (
    Uids,
    all_partitions,
    appended_logs,
    new_uids,
    write_appended,
)
from statestore.formats.spark.edits.copied_files import copied_files, metadata_paths, moved_metadata
from statestore.formats.spark.edits.packed_streams import codec_of
from statestore.formats.spark.edits.stored_edits import PartitionEdit, StoredEdit, by_partition
from statestore.formats.spark.join_edits import join_edits
from statestore.formats.spark.state_at import Shown, view_of
from statestore.formats.spark.state_edits import stored_edits
from statestore.formats.spark.timed_join_edits import timed_join_edits
from statestore.formats.spark.variable_edits import variable_edits
from statestore.formats.state_table import RowPair

_COMMITS = "commits"


@dataclass(frozen=True)
class SparkEditPlan(EditPlan):
    """The plan of a copy of a checkpoint, which was opened as of the batch that is edited.

    ``reopen`` opens the checkpoint at a path as a source. ``bags`` are states whose rows of a key have no order.
    """

    checkpoint: Checkpoint
    edits: tuple[PartitionEdit, ...]
    said: tuple[str, ...]
    reopen: Callable[[str], Source]
    bags: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return self.checkpoint.batch.batch_id

    @property
    def target_version(self) -> int:
        return self.version

    @property
    def notes(self) -> Sequence[str]:
        return self.said

    @property
    def _commit(self) -> str:
        return f"{_COMMITS}/{self.version}"

    @cached_property
    def _files(self) -> Mapping[str, DataFile]:
        """The files that are written anew, by path below the root."""
        return {
            f"{place_of(self.checkpoint, edit)}/{file.name}": file
            for edit in self.edits
            for file in amended_files(self.checkpoint, edit)
        }

    def check(self) -> SparkEditPlan:
        """Return the plan. Raises the errors that writing it would meet at once: NotFoundError SPARK_STATE_NOT_FOUND
        for a partition that lacks the files of the batch, UnsupportedError EDIT_UNSUPPORTED for an unknown codec."""
        if any(file.kind != "zip" for file in self._files.values()):
            codec_of(self.checkpoint.batch)
        return self

    def copied(self) -> Iterator[CopiedFile]:
        written = {*self._files, *metadata_paths(self.checkpoint.root), self._commit}
        return copied_files(self.checkpoint.root, self.checkpoint.batch.version, written)

    def parts(self) -> Sequence[PartitionEdit]:
        return self.edits

    def written_bytes(self) -> int:
        root = self.checkpoint.root
        small = root.at(_COMMITS).files().get(str(self.version), 0)
        return sum(file.size for file in self._files.values()) + sum(edit.bytes for edit in self.edits) + small

    def write(self, part: PartitionEdit, target: Target) -> Mapping[str, int]:
        return write_amended(self.checkpoint, part, target)

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write what names the folder, and the newest commit last of all: without it, the batch is not committed."""
        root = self.checkpoint.root
        contents = {path: moved_metadata(root, path, target.path) for path in metadata_paths(root)}
        contents[self._commit] = read_metadata(root.at(_COMMITS), self.version)
        return {path: write_pieces(target, path, [content]) for path, content in contents.items()}

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows that either has changed since the batch before, of which both have the same files.

        None where a partition has a snapshot of the batch beside its changes: the one is what states are read from, the
        others tell which rows changed.
        """
        forms: dict[str, set[str]] = {}
        for path, file in self._files.items():
            forms.setdefault(posixpath.dirname(path), set()).add(file.kind)
        if any(len(kinds) > 1 for kinds in forms.values()):
            return None
        return rows_since(self.version - 1, (source, self.version), (target, self.target_version), state, columns)

    def keeps_order(self, state: str) -> bool:
        return state not in self.bags

    def opened(self, path: str) -> Source:
        return self.reopen(path)


@dataclass(frozen=True)
class AppendingPlan(EditPlan):
    """The plan of a copy with a further batch; ``edits`` are those of all partitions, ``uids`` the ids of its files in
    checkpoint format 2, and ``bags`` states whose rows of a key have no order."""

    checkpoint: Checkpoint
    edits: tuple[PartitionEdit, ...]
    said: tuple[str, ...]
    reopen: Callable[[str], Source]
    uids: Uids
    bags: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return self.checkpoint.batch.batch_id

    @property
    def target_version(self) -> int:
        return self.version + 1

    @property
    def notes(self) -> Sequence[str]:
        return self.said

    def copied(self) -> Iterator[CopiedFile]:
        root = self.checkpoint.root
        return copied_files(root, self.checkpoint.batch.version, metadata_paths(root))

    def parts(self) -> Sequence[PartitionEdit]:
        return self.edits

    def written_bytes(self) -> int:
        logs = sum(self.checkpoint.root.at(log).files().get(str(self.version), 0) for log in LOGS)
        return sum(edit.bytes for edit in self.edits) + logs

    def write(self, part: PartitionEdit, target: Target) -> Mapping[str, int]:
        return write_appended(self.checkpoint, part, self.uids, target)

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write what names the folder, then the logs of the batch: its commit last of all."""
        root = self.checkpoint.root
        contents = {path: moved_metadata(root, path, target.path) for path in metadata_paths(root)}
        contents.update(appended_logs(self.checkpoint, self.uids))
        return {path: write_pieces(target, path, [content]) for path, content in contents.items()}

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows that the batch of the edit changed: the one before is the same in both."""
        return rows_since(self.version, (source, self.version), (target, self.target_version), state, columns)

    def keeps_order(self, state: str) -> bool:
        return state not in self.bags

    def opened(self, path: str) -> Source:
        return self.reopen(path)


def edit_plan_of(
    checkpoint: Checkpoint,
    states: Mapping[str, Shown],
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    reopen: Callable[[str], Source],
) -> EditPlan:
    """The plan of a copy of the checkpoint whose newest batch, or a further one, has the edits.

    ``states`` are those of the source by name. Raises as `Source.edit_plan`, and the errors of reads.
    """
    check_newest(checkpoint, version)
    if options.as_batch:
        _check_batch(checkpoint)
    stored: list[StoredEdit] = []
    notes: list[str] = []
    for edit in edits:
        found, late = _of_state(checkpoint, edit.state, states, edit, options)
        stored += found
        notes += late
    parts = by_partition(stored)
    said = (*notes, *notes_of_successor(checkpoint), *_notes(checkpoint, parts))
    # A row of a join that is changed keeps its number, whatever rows of its key come before it in the edit.
    bags = frozenset(edit.state for edit in edits if view_of(checkpoint, states[edit.state]).shape == "join-side")
    if not options.as_batch:
        return SparkEditPlan(checkpoint, tuple(parts), said, reopen, bags).check()
    placed = {(part.operator_id, part.store, part.partition): part for part in parts}
    every = tuple(all_partitions(checkpoint, placed))
    return AppendingPlan(checkpoint, every, (*said, _of_sinks(version)), reopen, new_uids(checkpoint.batch.uids), bags)


def _of_state(
    checkpoint: Checkpoint, name: str, states: Mapping[str, Shown], edit: StateEdit, options: EditOptions
) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    view = view_of(checkpoint, states[name])
    if states[name].snapshot is not None:
        raise not_editable(
            f"state {name} of {checkpoint.root.path} cannot be edited: it is built on a snapshot that an option names; "
            "leave out snapshotStartBatchId",
        )
    check_editable(checkpoint, name, view)
    if view.shape == "join-side":
        return (timed_join_edits if view.listed else join_edits)(checkpoint, view, edit)
    if checkpoint.operator(view.operator_id).variables:
        return variable_edits(checkpoint, view, edit, options)
    return stored_edits(checkpoint, view, edit, options)


def check_newest(checkpoint: Checkpoint, version: int) -> None:
    """Raise InvalidInputError EDIT_REFUSED for a batch from whose state the query does not go on."""
    where, newest = checkpoint.root.path, checkpoint.batches[-1]
    if version in checkpoint.begun:
        raise refused(f"{where}: batch {version} was not committed; edit without the option uncommitted")
    if version != newest or checkpoint.batch.batch_id != newest:
        raise refused(
            f"{where}: batch {version} cannot be edited, as the query goes on from batch {newest}, the newest that is "
            f"committed; edit batch {newest}",
        )
    if not checkpoint.batch.logged or checkpoint.batch.version != version + 1:
        raise refused(
            f"{where}: batch {version} was skipped by a repartition, or offsets/{version} is missing, so the query "
            "does not go on from its state; let the query run a batch, and edit that",
        )


def _check_batch(checkpoint: Checkpoint) -> None:
    """Raise for a checkpoint that cannot have a further batch."""
    where, batch = checkpoint.root.path, checkpoint.batch.batch_id
    begun = [number for number in checkpoint.root.at("offsets").numbered() if number > batch]
    if begun:
        raise refused(
            f"{where}: batch {begun[0]} was begun and not committed, and an edit as a batch of its own would take its "
            "number; leave out as_batch, and the batch runs again on the edited state"
        )
    for operator in checkpoint.operators:
        for store in operator.stores:
            store.check_partitions(where)


def _of_sinks(batch: int) -> str:
    return (
        f"Batch {batch + 1} is the edit's. If the query writes files, the log _spark_metadata of its output lacks an "
        f"entry for it, without which the query fails later: write a file _spark_metadata/{batch + 1} with the line v1."
    )


def notes_of_successor(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield what the user has to know of a copy that goes on with the newest batch of its source."""
    where, batch = checkpoint.root.path, checkpoint.batch.batch_id
    begun = [number for number in checkpoint.root.at("offsets").numbered() if number > batch]
    if begun:
        yield (
            f"Batch {begun[0]} was begun and not committed. It stays so: the query runs it again, on the edited state, "
            "with the same input."
        )
    yield (
        f"The target is the same query, {checkpoint.query_id}: once it has run from the target, do not start it from "
        f"{where} again, as sinks would take its batches for those that they have."
    )


def _notes(checkpoint: Checkpoint, edits: Sequence[PartitionEdit]) -> Iterator[str]:
    batch = checkpoint.batch.batch_id
    if any(len(edit.erased) for edit in edits) and batch:
        tables = ", and table files of RocksDB," if checkpoint.provider == "rocksdb" else ""
        yield (
            f"Files of batches before {batch}{tables} are copied as they are, and have rows that were deleted until "
            "the query has removed them; so has the source."
        )
