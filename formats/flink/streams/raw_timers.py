"""Timers in raw keyed state: those of heap timer services beside a RocksDB backend.

    block of a key group   F1CD859F | version:int32 = 2 | services:int32 | service, repeated
    service                name:utf | snapshot of the key | snapshot of the namespace | event timers | processing timers
    timers                 count:int32 | key | namespace | timestamp:int64, epoch milliseconds, repeated

Source: ``InternalTimersSnapshotReaderWriters`` and ``InternalTimerServiceSerializationProxy`` of Flink.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.columns.decoding import decode_records
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, KryoOf, replaced
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.flink.streams.block_bytes import damaged
from statestore.formats.flink.streams.state_form import KEY, NAMESPACE, TIMESTAMP_MS
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.places.folder import MAX_SMALL_BYTES

EVENT, PROCESSING = "_timer_state/event_", "_timer_state/processing_"
"""Prefixes of the names that timers have in the other backends."""
_MAGIC = bytes.fromhex("F1CD859F")
_VERSION = 2
Change = Callable[[FlinkType], FlinkType]
RAW = (KEY, NAMESPACE, TIMESTAMP_MS)
"""The columns of a timer, in the order of its bytes."""


@dataclass(frozen=True)
class TimerService:
    """A service of timers and the types of its timers' keys and namespaces."""

    name: str
    key: FlinkType
    namespace: FlinkType


@dataclass(frozen=True)
class TimersOfGroup:
    """Timers of one state in a key group, by the name that it has in other backends; columns as `timer_rows` takes
    them. In the block of the key group their number is at byte ``start``; ``places`` are where each timer begins, if it
    has columns, and where the last one ends.
    """

    state: str
    service: TimerService
    columns: dict[str, pa.Array]
    rows: int
    start: int
    places: Ints


def block_bounds(handle: KeyGroupHandle, size: int, path: str) -> dict[int, tuple[int, int]]:
    """The first byte and the byte behind each key group's block; key groups without one are left out.

    Of key groups that begin at one byte, the last one has the bytes, and the others have none.

    Raises CorruptError FLINK_FILE for offsets beyond the file.
    """
    present = {
        handle.first_group + number: offset
        for number, offset in enumerate(handle.offsets)
        if offset > 0 or (offset == 0 and handle.form == "heap")
    }
    beyond = [offset for offset in present.values() if offset > size]
    if beyond:
        raise damaged(path, f"found key groups from byte {beyond[0]} on, expected at most {size}")
    ends = sorted({*present.values(), size})
    following = dict(itertools.pairwise(ends))
    holders = {offset: group for group, offset in present.items()}
    return {
        group: (offset, following.get(offset, size) if holders[offset] == group else offset)
        for group, offset in present.items()
    }


def timer_services(part: Part, handle: KeyGroupHandle, origin: str, change: Change) -> list[TimerService]:
    """The services in the first block: every block has those of its subtask. ``change`` is made to their types.

    Raises UnsupportedError FLINK_UNSUPPORTED for raw state that is no timers, CorruptError FLINK_METADATA, FLINK_FILE
    and FLINK_ROW.
    """
    for start, end in block_bounds(handle, part.size, part.path).values():
        if end > start:
            found = timers_in(block_of(part, start, end), part.path, origin, change)
            return [each.service for each in found if each.state.startswith(EVENT)]
    return []


def group_timers(
    part: Part, start: int, end: int, state: str, columns: Collection[str], origin: str, change: Change
) -> Iterator[TimersOfGroup]:
    """Yield the timers of a state, by the name that it has in other backends, in a key group's block.

    ``change`` is made to the types of the services.

    Errors as `timer_services`.
    """
    found = timers_in(block_of(part, start, end), part.path, origin, change, [state], columns)
    return (each for each in found if each.state == state)


def known_classes(types: object) -> Change:
    """A change of types that knows the classes that these types of timers do: each block has the types again."""
    known: dict[str, FlinkType] = {}

    def note(kind: FlinkType) -> FlinkType:
        if isinstance(kind, KryoOf):
            known[kind.class_name] = kind
        return kind

    replaced(types, note)
    return lambda kind: known.get(kind.class_name, kind) if isinstance(kind, KryoOf) else kind


def block_of(part: Part, start: int, end: int) -> bytes:
    """The bytes of a key group's block. Raises UnsupportedError FLINK_UNSUPPORTED for a very large one."""
    if end - start > MAX_SMALL_BYTES:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{part.path}: found {end - start} bytes of timers in a key group, expected up to {MAX_SMALL_BYTES}, which "
            "are read at once; take a canonical savepoint",
        )
    return part.read_at(start, end - start)


def timers_in(
    block: bytes,
    path: str,
    origin: str,
    change: Change,
    states: Collection[str] = (),
    columns: Collection[str] = RAW,
) -> Iterator[TimersOfGroup]:
    """Yield the timers of all states in a block in the order of their bytes, those of some states with columns.

    Errors as `timer_services`.
    """
    source = DataInput(block, path)
    if block[:4] != _MAGIC:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{origin}: found raw keyed state that begins with {block[:4].hex()}, expected timers ({_MAGIC.hex()}); "
            "only the job's classes read state of its own form",
        )
    source.skip(4)
    version = source.i32("the version of timers")
    if version != _VERSION:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED, f"{origin}: found version {version} of timers, expected {_VERSION}"
        )
    data: Bytes = np.frombuffer(block, np.uint8)
    for _ in range(source.count(source.i32("timer services"), 2, "timer services")):
        service = TimerService(source.utf("the name of a timer service"), read_snapshot(source), read_snapshot(source))
        service = replaced(service, change)
        for prefix in (EVENT, PROCESSING):
            start, state = source.at, prefix + service.name
            count = source.count(source.i32("timers"), 8, "timers")
            wanted = columns if state in states else ()
            timers, places = _timers(data, source.at, count, service, wanted, origin)
            source.at = int(places[-1])
            yield TimersOfGroup(state, service, timers, count, start, places)
    source.end()


def _timers(
    data: Bytes, at: int, count: int, service: TimerService, columns: Collection[str], origin: str
) -> tuple[dict[str, pa.Array], Ints]:
    """The columns of timers, and where each begins and the last one ends; of no columns, only that end."""
    kinds: list[FlinkType] = [service.key, service.namespace, Basic("long")]
    wanted = [name in columns for name in RAW]
    if columns:
        wanted[2] = True
    batches: list[list[pa.Array | None]] = []
    starts: list[Ints] = []
    left = count
    while left:
        found = decode_records(kinds, data, at, len(data), left, wanted, origin, True, bool(columns))
        batches.append(found.columns)
        starts += [] if found.starts is None else [found.starts]
        at, left = found.at, left - found.rows
    if not batches:
        batches.append(decode_records(kinds, data, at, at, 0, wanted, origin, True).columns)
    columns_of = zip(RAW, zip(*batches, strict=True), strict=True)
    found_columns = {name: pa.concat_arrays(parts) for name, parts in columns_of if parts[0] is not None}
    return found_columns, np.concatenate([*starts, np.array([at])])
