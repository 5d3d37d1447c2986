"""Blocks of key groups of a run's keyed operators, for tests of what they hold."""

from __future__ import annotations

from collections.abc import Iterator

from statestore.formats.flink.serializers.backend_header import BackendHeader, read_backend_header
from statestore.formats.flink.serializers.flink_types import FlinkType, TimerOf
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window
from statestore.formats.flink.streams.heap_records import HeapState
from statestore.formats.flink.streams.raw_timers import block_bounds
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import files_at


def blocks(run: str, kind: str) -> Iterator[tuple[BackendHeader, Part, int, int]]:
    """Yield the header and the bounds of each key group's block of the run's keyed operators."""
    path = next(each["path"] for each in manifest(run)["snapshots"] if each["kind"] == kind)
    files = files_at(fixture(run) / path)
    for operator in files.metadata().operators:
        for handle in (subtask.managed_keyed for subtask in operator.subtasks):
            if isinstance(handle, KeyGroupHandle):
                with files.open_at(handle.stream) as part:
                    header = read_backend_header(part.read_at(0, part.size), part.path, None)
                    for start, end in block_bounds(handle, part.size, part.path).values():
                        yield header, part, start, end


def kinds_of(header: BackendHeader) -> list[list[FlinkType]]:
    return [
        [state.value] if isinstance(state.value, TimerOf) else [state.namespace, header.key, state.value]
        for state in header.states
    ]


def window_of(header: BackendHeader, part: Part, start: int, end: int, skipped: int) -> BlockWindow:
    found = block_window(part, start, end, compressed=header.compressed)
    found.take(skipped)
    return found


def heap_states(header: BackendHeader) -> list[HeapState]:
    """The states of a heap checkpoint, as their records lie."""
    return [HeapState(each.name, kinds) for each, kinds in zip(header.states, kinds_of(header), strict=True)]
