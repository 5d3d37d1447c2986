"""What a version wrote to a state, from the files of that version alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statestore.formats.engine import Part, Reader

WRITE = "_write"
PUT, REMOVE, APPEND = range(3)


class Written(Reader):
    group: tuple[str, ...]

    @abstractmethod
    def parts(self) -> Sequence[Part]: ...

    @abstractmethod
    def rows(self, part: Any) -> Iterator[pa.RecordBatch]: ...
