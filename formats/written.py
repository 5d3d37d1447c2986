"""Rows that one version of a state wrote, from the files of that version alone.

An engine that keeps a delta or a changelog of each version tells with them what a version changed, at the cost of the
change: no earlier file is read. The rows come in groups. A group is what the engine writes at once: the one row of a
key, or all elements of a list, or one numbered row of a bag.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statestore.formats.reader import Part, Reader

WRITE = "_write"
"""The first column of `Written.rows`: what becomes of the group."""

WRITTEN_AT = "_written_at"
"""The second column of `Written.rows`, of writes that have times of their own."""

PUT, REMOVE, APPEND = range(3)


class Written(Reader, ABC):
    """The rows that a version of a state wrote.

    After the version a group holds exactly its PUT rows, none where it has a REMOVE, and the rows that it held before
    where it has neither; its APPEND rows follow these, in their order. A group has PUT rows or one REMOVE, never both.
    What a group went through within the version is not told. A PUT may repeat the row that was there.
    """

    @property
    @abstractmethod
    def group(self) -> tuple[str, ...]:
        """The columns by which groups are told from each other.

        They are the row key; for a list its key; for a bag with `StateInfo.number` the key and the number.
        """

    @property
    def timed(self) -> bool:
        """Return whether each write has a time of its own, as those of a state that keeps the past have.

        A group may then have several writes, each a PUT of one row or a REMOVE, which count from their times on; of
        those at one time the last one counts. ``rows`` has the times in WRITTEN_AT, timestamps in microseconds, UTC.
        """
        return False

    def remaining(self) -> Iterator[pa.RecordBatch] | None:
        """The columns of ``group`` of all groups that may be there, where removals of others may be lost; groups may
        repeat. None, as by default: no removal is lost.
        """
        return None

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Parts that together hold all rows. No group is in two of them."""

    @abstractmethod
    def rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Batches with the column WRITE (int8: PUT, REMOVE or APPEND) before those of the state.

        Columns of `StateInfo.placement` that are none of the row key are left out; that of `StateInfo.number` comes
        last. A REMOVE has the columns of ``group``, others are null. The number of an APPEND row counts from the first
        one that is appended to its group, because the version's own files do not say how many rows the group had.
        """
