"""An edit as part of the last committed batch: its files of the partitions that the edit touches are written anew.

No batch, offset or commit is added, so a batch that was begun and not committed runs again, with the same number, on
the edited state. The query that goes on from the target has the id of the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from statestore.formats.edits import CopiedFile, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, read_metadata
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.editable_states import check_editable
from statestore.formats.spark.edits.amended_files import amended_files, place_of, write_amended
from statestore.formats.spark.edits.copied_files import copied_files, metadata_paths, moved_metadata
from statestore.formats.spark.edits.packed_streams import codec_of
from statestore.formats.spark.edits.stored_edits import PartitionEdit, StoredEdit, by_partition
from statestore.formats.spark.state_at import Shown, view_of
from statestore.formats.spark.state_edits import stored_edits

_COMMITS = "commits"


@dataclass(frozen=True)
class SparkEditPlan(EditPlan):
    """The plan of a copy of a checkpoint, which was opened as of the batch that is edited.

    ``reopen`` opens the checkpoint at a path as a source.
    """

    checkpoint: Checkpoint
    edits: tuple[PartitionEdit, ...]
    said: tuple[str, ...]
    reopen: Callable[[str], Source]

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
        for path, content in contents.items():
            with target.create(path) as stream:
                stream.write(content)
        return {path: len(content) for path, content in contents.items()}

    def opened(self, path: str) -> Source:
        return self.reopen(path)


def amending_plan(
    checkpoint: Checkpoint,
    states: Mapping[str, Shown],
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    reopen: Callable[[str], Source],
) -> SparkEditPlan:
    """The plan of a copy of the checkpoint whose newest batch has the edits.

    ``states`` are those of the source by name. Raises as `Source.edit_plan`, and the errors of reads.
    """
    check_newest(checkpoint, version, options)
    stored: list[StoredEdit] = []
    notes: list[str] = []
    for edit in edits:
        found, late = _of_state(checkpoint, edit.state, states, edit, options)
        stored += found
        notes += late
    batches = by_partition(stored)
    said = (*notes, *notes_of_successor(checkpoint), *_notes(checkpoint, batches))
    return SparkEditPlan(checkpoint, tuple(batches), said, reopen).check()


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
    return stored_edits(checkpoint, view, edit, options)


def check_newest(checkpoint: Checkpoint, version: int, options: EditOptions) -> None:
    """Raise InvalidInputError EDIT_REFUSED or UnsupportedError EDIT_UNSUPPORTED for a batch or a way that is not
    supported."""
    where, newest = checkpoint.root.path, checkpoint.batches[-1]
    if options.as_batch:
        raise not_editable(
            f"{where}: an edit as a batch of its own (as_batch) cannot be written yet; leave it out, and the edit "
            f"becomes part of batch {newest}",
        )
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
        yield (
            f"Files of batches before {batch}, and table files of RocksDB, are copied as they are, and have rows that "
            "were deleted until the query has removed them; so has the source."
        )
