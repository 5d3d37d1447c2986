"""Records of heap snapshots: values without frames, by key group and state.

    block of a key group   key group:int32 | state:i16 | count:int32 | records | state:i16 | ...
    record                 namespace | key | value, or a timer

With compression each state and its records are a snappy stream; the streams follow one another. States come in any
order, each once. Source: ``HeapSnapshotStrategy`` and ``StateTableByKeyGroupReaders`` of Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.columns.decoding import Records, decode_records
from statestore.formats.flink.columns.faults import reworded
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.streams.block_bytes import BlockWindow, damaged


@dataclass(frozen=True)
class HeapState:
    """A state of a header: its name in messages, and the types of its records."""

    origin: str
    kinds: Sequence[FlinkType]


def heap_records(
    window: BlockWindow,
    states: Sequence[HeapState],
    state: int,
    wanted: Sequence[bool],
    *,
    positions: bool = False,
    to_the_end: bool = False,
) -> Iterator[Records]:
    """Yield the records of one state in a key group's block, behind the number of the key group, in batches.

    Records of states before it are stepped over. With ``to_the_end``, so are those behind it, as far as they can be
    decoded: where a user gave types, only the end of the block says that the values have them.

    Raises CorruptError FLINK_FILE and FLINK_ROW, UnsupportedError FLINK_OPAQUE for values that cannot be decoded:
    nothing says where they end, so what follows them is lost, too.
    """
    seen: set[int] = set()
    while not (window.partial and len(seen) == len(states)) and not window.is_empty():
        number = int.from_bytes(window.take(2), "big", signed=True)
        if not 0 <= number < len(states):
            raise _damaged(window, f"found state {number} in a key group, expected one of {len(states)}", to_the_end)
        if number in seen:
            raise _damaged(window, f"found state {number} twice in a key group, expected it once", to_the_end)
        seen.add(number)
        count = int.from_bytes(window.take(4), "big", signed=True)
        if count < 0:
            raise _damaged(window, f"found {count} records of a state, expected no negative number", to_the_end)
        found = states[number]
        if number == state:
            yield from records(window, found.kinds, count, wanted, found.origin, positions=positions)
            if not to_the_end:
                return
            continue
        try:
            for _ in records(window, found.kinds, count, [False] * len(found.kinds), found.origin):
                pass
        except UnsupportedError as error:
            if state in seen:
                return
            raise reworded(
                error,
                f"{states[state].origin}: its records lie behind others in a key group, where nothing says how long a "
                f"value is ({error.message}); give the types of all states of the operator whose serializers are the "
                "job's own, or take a canonical savepoint, or a checkpoint with RocksDB",
            ) from error


def _damaged(window: BlockWindow, found: str, is_given: bool) -> CorruptError:
    if not is_given:
        return damaged(window.path, found)
    return CorruptError(
        ErrorCode.FLINK_FILE,
        f"{window.path}: {found}; correct the types given for the operator's states, or restore the file from a copy",
    )


def records(
    window: BlockWindow,
    kinds: Sequence[FlinkType],
    count: int,
    wanted: Sequence[bool],
    origin: str,
    *,
    positions: bool = False,
) -> Iterator[Records]:
    """Yield ``count`` records that follow one another, in batches; with ``positions``, where each begins.

    Errors as `heap_records`.
    """
    while count:
        found = decode_records(
            kinds, window.data, window.at, window.stop, count, wanted, origin, window.last, positions=positions
        )
        if not found.rows:
            if window.last:
                raise damaged(window.path, "a block ends within a record")
            window.more_or_last()
            continue
        window.at = found.at
        count -= found.rows
        yield found
