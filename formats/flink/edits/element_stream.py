"""Writing the stream of a subtask's operator state.

The stream is the header of the operator backend, as it was read but for the byte that says whether state is compressed,
and the elements of all states; where each begins is in ``_metadata``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.flink.edits.keyed_stream import Put
from statestore.formats.flink.serializers.backend_header import OperatorHeader
from statestore.formats.flink.snapshot.handles import OperatorStateOffsets

_COMPRESSED, _FIRST_WITH_FLAG = 4, 6  # the byte behind the version, and the version from which on it is there


@dataclass(frozen=True)
class WrittenElements:
    """The states of a stream, with the places of their elements, and the bytes of the stream."""

    states: tuple[OperatorStateOffsets, ...]
    bytes: int

    def as_text(self) -> str:
        """Return the value as a text, which `of_text` reads."""
        return json.dumps(
            {"states": [[each.name, each.mode, each.offsets] for each in self.states], "bytes": self.bytes}
        )

    @staticmethod
    def of_text(text: str) -> WrittenElements:
        found = json.loads(text)
        states = (OperatorStateOffsets(name, mode, tuple(offsets)) for name, mode, offsets in found["states"])
        return WrittenElements(tuple(states), found["bytes"])


def write_elements(
    put: Put, data: bytes, header: OperatorHeader, found: Iterable[tuple[OperatorStateOffsets, pa.BinaryArray]]
) -> WrittenElements:
    """Write a stream by ``put``, whose header are the first bytes of ``data``; ``found`` are its states in order, each
    as its handle had it, with its elements.
    """
    start = data[: header.end]
    if header.version >= _FIRST_WITH_FLAG and start:
        start = start[:_COMPRESSED] + b"\0" + start[_COMPRESSED + 1 :]
    put(start)
    at, states = len(start), []
    for state, elements in found:
        _, ends, content = elements.buffers()
        offsets = np.frombuffer(ends, np.int32)[elements.offset : elements.offset + len(elements) + 1].astype(np.int64)
        first = int(offsets[0])
        if len(elements) and content is not None:
            put(memoryview(content)[first : int(offsets[-1])])
        places = offsets - first + at
        states.append(OperatorStateOffsets(state.name, state.mode, tuple(places[:-1].tolist())))
        at = int(places[-1])
    return WrittenElements(tuple(states), at)
