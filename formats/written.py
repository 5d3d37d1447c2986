"""What one version of a state wrote, by its own files: a delta, a changelog, or the new table files of a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statestore.formats.engine import Part, Reader

WRITE = "_write"
PUT, REMOVE, APPEND = 0, 1, 2


class Written(Reader, ABC):
    """The writes of a version, net: what a group of rows went through within the version is not told.

    After the version a group holds exactly its PUT rows, none after REMOVE, and behind the rows that it had its APPEND
    rows. A group without writes is as it was. A PUT may repeat the row that was there. No group is in two parts.
    """

    @property
    @abstractmethod
    def group(self) -> tuple[str, ...]:
        """The columns by which the writes are told from each other."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Parts that together hold all writes."""

    @abstractmethod
    def rows(self, part: Any) -> Iterator[pa.RecordBatch]:
        """Batches with WRITE (int8) before all columns of the state without those of its placement.

        A REMOVE has the columns of its group; others are null.
        """
