"""Writing the stream of a subtask's operator state.

The stream is the header of the operator backend, as it was read but for the byte that says whether state is compressed,
and the elements of all states; where each begins is in ``_metadata``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.flink.edits.keyed_stream import Put
from statestore.formats.flink.serializers.backend_header import OperatorHeader
from statestore.formats.flink.snapshot.handles import OperatorStateOffsets

_COMPRESSED, _FIRST_WITH_FLAG = 4, 6  # the byte behind the version, and the version from which on it is there
_COUNT = 2  # bytes of the number of lists, and of that of broadcast maps


@dataclass(frozen=True)
class WrittenElements:
    """The states of a stream, with the places of their elements, and the bytes of the stream."""

    states: tuple[OperatorStateOffsets, ...]
    bytes: int

    def as_text(self) -> str:
        """Return the value as a text, which `of_text` reads."""
        states = [[each.name, each.mode, each.offsets] for each in self.states]
        return json.dumps({"states": states, "bytes": self.bytes})

    @staticmethod
    def of_text(text: str) -> WrittenElements:
        found = json.loads(text)
        states = (OperatorStateOffsets(name, mode, tuple(offsets)) for name, mode, offsets in found["states"])
        return WrittenElements(tuple(states), found["bytes"])


def write_elements(
    put: Put,
    data: bytes,
    header: OperatorHeader,
    found: Iterable[tuple[OperatorStateOffsets, pa.BinaryArray]],
    without: Collection[str] = (),
) -> WrittenElements:
    """Write a stream by ``put``, whose header are the first bytes of ``data``; ``found`` are its states in order, each
    as its handle had it, with its elements. The header lacks the states ``without``.
    """
    start = _header(data, header, without)
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


def _header(data: bytes, header: OperatorHeader, without: Collection[str]) -> bytes:
    """The bytes of a header that says that state is not compressed."""
    start = data[: header.end]
    if header.version >= _FIRST_WITH_FLAG and start:
        start = start[:_COMPRESSED] + b"\0" + start[_COMPRESSED + 1 :]
    names = [*(each.name for each in header.states), *(each.name for each in header.broadcasts)]
    if not start or not any(name in without for name in names):
        return start
    parts = [start[: _COMPRESSED + (header.version >= _FIRST_WITH_FLAG)]]
    kept = [b"" if name in without else start[slice(*span)] for name, span in zip(names, header.spans, strict=True)]
    for found in (kept[: len(header.states)], kept[len(header.states) :]):
        parts += [sum(map(bool, found)).to_bytes(_COUNT, "big"), *found]
    return b"".join(parts)
