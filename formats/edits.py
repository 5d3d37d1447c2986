"""The seam between an engine and edits: what becomes of rows of its states, and the files that make it so.

An edit leaves its source as it is and writes a target that differs from it by the edit alone. Whoever states an edit
(`statestore.connector.edit`) says which rows go and which come, in the columns that every door shows. An engine turns
these into stored rows, in `Source.edit_plan`, and writes the files that hold them. What is the same for all engines,
the copy of unchanged files, the verification and the receipt, is in `statestore.catalog.edits`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from statestore.formats.bytes.row_bags import RowBag
    from statestore.formats.places.folder import Folder
    from statestore.formats.state_table import RowPair

UNFINISHED_FILE = "edit.unfinished"
"""A file in a folder of an object store: the edit that writes there has not ended, and what is there is not whole."""


@dataclass(frozen=True)
class StateEdit:
    """Rows of a state that go, and rows that come.

    ``removed`` are rows as the source has them, ``added`` those that take their place, both in the columns of the state
    without those of its placement (`StateInfo.placement`). A row with the same row key in both is changed. Both hold
    whole units: all rows that are equal in the columns ``unit``, in the order of the state. The unit is the state's row
    key, or its key where equal rows may repeat, as in lists.
    """

    state: str
    unit: tuple[str, ...]
    removed: pa.Table
    added: pa.Table


@dataclass(frozen=True)
class EditOptions:
    """How the target is to be made.

    ``as_batch``: the edit is a version of its own, where the engine can have one. ``allow_late``: rows may be added
    that the watermark removes at once. ``settings`` are those that the engine offers (`Engine.edit_settings`), by their
    names: numbers as digits, true or false, or texts.
    """

    as_batch: bool = False
    allow_late: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CopiedFile:
    """A file that the target has as the source has it: ``name`` in ``folder``, and its path below the target.

    ``bytes`` is its size where that is known. ``immutable``: no program ever changes such a file, it only writes new
    ones and removes old ones, as RocksDB does with table files. It may then be a hard link to that of the source, which
    an engine that goes on from the target would otherwise change, too: logs that are appended to, and files that are
    written anew under the same name, are never immutable.
    """

    folder: Folder
    name: str
    path: str
    bytes: int | None = None
    immutable: bool = False


class Target(Protocol):
    """The folder that is being made. Nothing is there before the edit, and nobody sees it before it is whole."""

    @property
    def path(self) -> str:
        """The path that the target will have, for files that hold it and for messages."""

    def create(self, path: str) -> IO[bytes]:
        """Open a new file below the target for writing, with its folders. It is durable once it is closed.

        Use it in a ``with`` statement: a file whose block is left by an error is removed.
        """


class EditedSource(Protocol):
    """A source or target that tells its changes, as each `statestore.formats.engine.Source` does."""

    def kept(self, state: str) -> Sequence[int]:
        """The versions that can be read, ascending."""

    def differing_rows(
        self, state: str, old: int, new: int, columns: Sequence[Collection[str]]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows of two versions, which hold all rows that differ, as `Source.differing_rows`."""


class StoredSide(ABC):
    """The source or the target of an edit as its rows are stored, in parts. Picklable, as an `EditPlan` is."""

    @abstractmethod
    def parts(self) -> Sequence[Any]:
        """Picklable pieces, which are independent of each other."""

    @abstractmethod
    def bags(self, part: Any) -> Mapping[str, RowBag]:
        """Return the bags of the rows in a part, by the names of the states, as the files have them.

        Content that no state shows has a name that messages can tell. Raises for rows that lie elsewhere than the
        engine looks for them.
        """


class MovedRows(ABC):
    """The writing of a plan in two steps: tasks read parts of the source, and others write pieces of the target.

    Between them rows go from any task to any other. Picklable, as an `EditPlan` is.
    """

    @abstractmethod
    def sources(self) -> Sequence[Any]:
        """Picklable parts to be read."""

    @abstractmethod
    def read(self, source: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows (destination: int32, key: binary, value: binary), each with the number of its target."""

    @abstractmethod
    def targets(self) -> Sequence[Any]:
        """Picklable pieces to be written; their places are their numbers."""

    @abstractmethod
    def write(self, piece: Any, rows: Iterator[pa.RecordBatch], target: Target) -> Mapping[str, int]:
        """Write a piece with its rows (key, value), which come in any order; return sizes as `EditPlan.write` does."""

    @abstractmethod
    def left(self) -> Sequence[Any]:
        """The parts of the plan that are to be written by `EditPlan.write` besides."""


class EditPlan(ABC):
    """The files that an engine writes for an edit. Small, picklable, without open files: tasks may write its parts."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the source that is edited."""

    @property
    @abstractmethod
    def target_version(self) -> int:
        """The version of the target that has the edit."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that the user has to know before the engine starts from the target.

        The receipt keeps them, so they name no value of a row that is removed.
        """
        return ()

    @property
    def followed(self) -> Sequence[StateEdit]:
        """Rows of states that change along with those that the edit names: counters, indexes, timers, times to live.

        Only states that are listed in `Source.states`; rows that no state shows are told of in ``notes``.
        """
        return ()

    @property
    def dropped(self) -> Collection[str]:
        """States of the source that the target lacks, because settings of the edit say so."""
        return ()

    @abstractmethod
    def copied(self) -> Iterator[CopiedFile]:
        """The files that the target has as they are."""

    @abstractmethod
    def parts(self) -> Sequence[Any]:
        """Picklable pieces of the writing, which are independent of each other."""

    @abstractmethod
    def written_bytes(self) -> int:
        """About how many bytes `write` and `finish` will write, for a preview."""

    @abstractmethod
    def write(self, part: Any, target: Target) -> Mapping[str, int]:
        """Write the files of a part; return their sizes by path below the target."""

    def moved(self) -> MovedRows | None:
        """Return this writing for tasks between which rows move, where that makes more tasks than `parts`.

        None, as by default: the parts are all that there is.
        """
        return None

    def noted(self, part: Any) -> str:
        """Return what `finish` needs of a part that `write` has written in this process, as a text such as JSON."""
        return ""

    def note(self, part: Any, noted: str) -> None:
        """Take what another process has `noted` of a part that it wrote."""
        return

    @abstractmethod
    def finish(self, target: Target) -> Mapping[str, int]:
        """Write what makes the target a state, after all parts and copies: logs, commits, ``_metadata``.

        Return sizes as `write` does.
        """

    @abstractmethod
    def opened(self, path: str) -> EditedSource:
        """Open the target, which is at ``path`` while it is verified, as a `Source`."""

    # Targets whose files appear one by one, as those in object stores do

    def stages(self) -> Sequence[Sequence[str]]:
        """Paths of files that make the target a state, copied ones among them, in the order in which they appear.

        Files of one stage may appear in any order, after all files of the stages before. All other files that `finish`
        writes come before them, in its order. Whatever is missing behind some point, no engine goes on from what is
        there. None, as by default: `finish` alone makes the target a state, with the last file that it writes.
        """
        return ()

    @property
    def opens_local_folders(self) -> bool:
        """Whether `opened` takes a local folder only, which then has the files that were written and no copies."""
        return False

    def deliver(self, path: str) -> Sequence[str]:
        """Hand what the target at ``path`` has to the engine, where it does not start from the target itself.

        Called once, when the target is there and verified. Return sentences about it for the receipt. Raises
        StateStoreError EDIT_NOT_DELIVERED, which says what to do; the target stays.
        """
        return ()

    # How the target is verified

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of rows of the source at `version` and of the target at `target_version`, with at least ``columns``.

        Taken as bags, the first rows of all pairs differ from the second ones as the two states differ. What the pairs
        leave out is known to be the same without a read: it comes from files that are `copied`, such as a snapshot
        before the files that were written (`rows_since`). None, as by default: both states are read in whole.
        ``target`` is what `opened` has returned.
        """
        return None

    def stored_sides(self, source: EditedSource, target: EditedSource) -> tuple[StoredSide, StoredSide] | None:
        """The source and the target as they are stored, where the plan moves rows whose bytes stay the same.

        A state whose bags are equal on both sides has the same rows in both, and none of them is decoded. States whose
        rows change, or are stored in another form, are in neither side. Where bags differ there is no target; a
        comparison of decoded rows then names one, if it shows in them. None, as by default: all rows are decoded.

        What a side tells of the source must come from a read of its files, and of the target from its own; nothing that
        the writer held counts.
        """
        return None

    def keeps_order(self, state: str) -> bool:
        """Return whether the added rows of a unit are read from the target in their order, as those of lists are."""
        return True


def rows_since(
    version: int,
    source: tuple[EditedSource, int],
    target: tuple[EditedSource, int],
    state: str,
    columns: Collection[str],
) -> Iterator[RowPair] | None:
    """Pairs as `EditPlan.differing_rows` returns them, from what source and target have each changed since a version.

    Both have that version in files with the same content. Each comes with its own version that is compared. None where
    one of them does not tell which rows a version changed.
    """
    changes = []
    for side, number in (source, target):
        if not {version, number} <= set(side.kept(state)):
            return None
        found = side.differing_rows(state, version, number, (columns, columns))
        if found is None:
            return None
        changes.append(found)
    return _crossed(*changes)


def _crossed(ours: Iterator[RowPair], theirs: Iterator[RowPair]) -> Iterator[RowPair]:
    """Yield pairs whose bags differ as the states differ to which two changes of one state led."""
    for before, after in ours:
        yield after, before
    yield from theirs
