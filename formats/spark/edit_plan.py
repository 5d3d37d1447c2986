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
from statestore.formats.spark.amended_rows import amended_rows
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import LOGS, DataFile, read_metadata
from statestore.formats.spark.checkpoint.state_errors import refused
from statestore.formats.spark.checkpoint_copy import CheckpointCopy, begun_batches, check_newest, notes_of_successor
from statestore.formats.spark.edit_settings import edit_settings, invalid_setting
from statestore.formats.spark.edited_states import edits_of_states, unordered_states
from statestore.formats.spark.edits.amended_files import amended_files, place_of, write_amended
from statestore.formats.spark.edits.appended_files import (
    Uids,
    all_partitions,
    appended_logs,
    new_uids,
    write_appended,
)
from statestore.formats.spark.edits.copied_files import copied_files, metadata_paths, moved_metadata
from statestore.formats.spark.edits.packed_streams import codec_of
from statestore.formats.spark.edits.stored_edits import PartitionEdit, by_partition
from statestore.formats.spark.query_sinks import notes_of_sink
from statestore.formats.spark.rescale_plan import rescaling_plan
from statestore.formats.spark.state_at import CheckpointAt, Shown
from statestore.formats.state_table import RowPair

_COMMITS = "commits"


@dataclass(frozen=True)
class SparkEditPlan(CheckpointCopy):
    """The plan of a copy whose newest batch has the edits."""

    edits: tuple[PartitionEdit, ...]

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

    def last_files(self, target: Target) -> Mapping[str, bytes]:
        root = self.checkpoint.root
        contents = {path: moved_metadata(root, path, target.path) for path in metadata_paths(root)}
        contents[self._commit] = read_metadata(root.at(_COMMITS), self.version)
        return contents

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows that the files differ in, which were written anew (`amended_rows`), or that either has
        changed since the batch before, of which both have the same files.

        None where a partition has a snapshot of the batch beside its changes: the one is what states are read from, the
        others tell which rows changed.
        """
        forms: dict[str, set[str]] = {}
        for path, file in self._files.items():
            forms.setdefault(posixpath.dirname(path), set()).add(file.kind)
        if any(len(kinds) > 1 for kinds in forms.values()):
            return None
        before, after = (_at(each, state, self.version) for each in (source, target))
        if before is not None and after is not None:
            store = before.state_view.store
            place = store.operator_id, store.name
            touched = {
                edit.partition: edit.put.num_rows + len(edit.erased)
                for edit in self.edits
                if (edit.operator_id, edit.store) == place
            }
            found = amended_rows(before, after, touched, columns)
            if found is not None:
                return found
        return rows_since(self.version - 1, (source, self.version), (target, self.target_version), state, columns)


def _at(source: EditedSource, state: str, version: int) -> CheckpointAt | None:
    """The state as of the version, where it is one of a checkpoint."""
    found = source.at(state, version) if isinstance(source, Source) else None
    return found if isinstance(found, CheckpointAt) else None


@dataclass(frozen=True)
class AppendingPlan(CheckpointCopy):
    """The plan of a copy with a further batch; ``edits`` are those of all partitions, and ``uids`` the ids of its
    files in checkpoint format 2."""

    edits: tuple[PartitionEdit, ...]
    uids: Uids

    @property
    def target_version(self) -> int:
        return self.version + 1

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

    def last_files(self, target: Target) -> Mapping[str, bytes]:
        root = self.checkpoint.root
        contents = {path: moved_metadata(root, path, target.path) for path in metadata_paths(root)}
        contents.update(appended_logs(self.checkpoint, self.uids))
        return contents

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows that the batch of the edit changed: the one before is the same in both."""
        return rows_since(self.version, (source, self.version), (target, self.target_version), state, columns)


def edit_plan_of(
    checkpoint: Checkpoint,
    states: Mapping[str, Shown],
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    reopen: Callable[[str], Source],
) -> EditPlan:
    """The plan of a copy of the checkpoint whose newest batch, or a further one, has the edits, or of one with the
    newest batch alone (`rescaling_plan`).

    ``states`` are those of the source by name. Raises as `Source.edit_plan`, and the errors of reads.
    """
    asked = edit_settings(options.settings)
    if asked.sink is not None and not options.as_batch:
        raise invalid_setting("sink", "is of use with as_batch alone, as no other edit adds a batch; leave it out")
    if asked.layout:
        return rescaling_plan(checkpoint, states, version, edits, options, asked, reopen)
    check_newest(checkpoint, version)
    of_sink: Sequence[str] = ()
    if options.as_batch:
        _check_batch(checkpoint)
        of_sink = tuple(notes_of_sink(checkpoint, asked.sink))
    stored, notes = edits_of_states(checkpoint, states, edits, options)
    parts = by_partition(stored)
    said = (*notes, *notes_of_successor(checkpoint), *_notes(checkpoint, parts))
    bags = unordered_states(checkpoint, states, edits)
    if not options.as_batch:
        return SparkEditPlan(checkpoint, said, reopen, bags, tuple(parts)).check()
    placed = {(part.operator_id, part.store, part.partition): part for part in parts}
    every = tuple(all_partitions(checkpoint, placed))
    return AppendingPlan(checkpoint, (*said, *of_sink), reopen, bags, every, new_uids(checkpoint.batch.uids))


def _check_batch(checkpoint: Checkpoint) -> None:
    """Raise for a checkpoint that cannot have a further batch."""
    where = checkpoint.root.path
    begun = begun_batches(checkpoint)
    if begun:
        raise refused(
            f"{where}: batch {begun[0]} was begun and not committed, and an edit as a batch of its own would take its "
            "number; leave out as_batch, and the batch runs again on the edited state"
        )
    for operator in checkpoint.operators:
        for store in operator.stores:
            store.check_partitions(where)


def _notes(checkpoint: Checkpoint, edits: Sequence[PartitionEdit]) -> Iterator[str]:
    batch, has_tables = checkpoint.batch.batch_id, checkpoint.provider == "rocksdb"
    if any(len(edit.erased) for edit in edits) and (batch or has_tables):
        tables = ", and table files of RocksDB," if has_tables else ""
        yield (
            f"Files of batches before {batch}{tables} are copied as they are, and have rows that were deleted until "
            "the query has removed them; with the setting compact (--compact) the target has none. So has the source."
        )
