"""What all copies of a checkpoint with an edit have in common: the batch from which the query goes on, and its id."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from statestore.formats.edits import EditPlan, Target
from statestore.formats.engine import Source
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_errors import refused
from statestore.formats.spark.edits.amended_files import write_pieces
from statestore.formats.spark.edits.copied_files import stages


@dataclass(frozen=True)
class CheckpointCopy(EditPlan):
    """The plan of a copy of a checkpoint, which was opened as of the batch that is edited.

    ``said`` is what the user has to know, ``reopen`` opens the checkpoint at a path as a source, and ``bags`` are
    edited states whose rows of a key have no order.
    """

    checkpoint: Checkpoint
    said: tuple[str, ...]
    reopen: Callable[[str], Source]
    bags: frozenset[str]

    @property
    def version(self) -> int:
        return self.checkpoint.batch.batch_id

    @property
    def target_version(self) -> int:
        return self.version

    @property
    def notes(self) -> Sequence[str]:
        return self.said

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write what names the folder, and the newest commit last of all: without it, the batch is not committed."""
        return {path: write_pieces(target, path, [content]) for path, content in self.last_files(target).items()}

    @abstractmethod
    def last_files(self, target: Target) -> Mapping[str, bytes]:
        """The contents of the metadata and logs that change, by path, in the order in which they are written."""

    def stages(self) -> Sequence[Sequence[str]]:
        return stages(self.checkpoint.root, self.target_version)

    def opened(self, path: str) -> Source:
        return self.reopen(path)

    def keeps_order(self, state: str) -> bool:
        return state not in self.bags


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


def begun_batches(checkpoint: Checkpoint) -> list[int]:
    """The batches after that of the checkpoint that were begun."""
    return [number for number in checkpoint.root.at("offsets").numbered() if number > checkpoint.batch.batch_id]


def notes_of_successor(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield what the user has to know of a copy that goes on with the newest batch of its source."""
    begun = begun_batches(checkpoint)
    if begun:
        yield (
            f"Batch {begun[0]} was begun and not committed. It stays so: the query runs it again, on the edited state, "
            "with the same input."
        )
    yield (
        f"The target is the same query, {checkpoint.query_id}: once it has run from the target, do not start it from "
        f"{checkpoint.root.path} again, as sinks would take its batches for those that they have."
    )
