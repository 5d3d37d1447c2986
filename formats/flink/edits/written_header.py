"""The header of keyed state that is written anew: without states that are left out, or one for several subtasks.

A subtask registers states one by one, so its header lists them in its own order and may lack some. The bytes of a state
in a header are copied as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.serializers.backend_header import BackendHeader, KeyedStateHeader
from statestore.formats.flink.streams.logged_states import LoggedStates

_FRONT = 5  # version and the byte that says whether blocks are compressed
_COUNT = 2


@dataclass(frozen=True)
class WrittenHeader:
    """A header to be written; ``numbers`` are those of its states by name."""

    data: bytes
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class SubtaskHeader:
    """The header of a subtask, as bytes and parsed."""

    data: bytes
    parsed: BackendHeader

    @property
    def key(self) -> bytes:
        """The bytes of the snapshot of the key serializer."""
        first = self.parsed.starts[0] if self.parsed.starts else self.parsed.end
        return self.data[_FRONT : first - _COUNT]

    @property
    def as_it_is(self) -> WrittenHeader:
        """The header to be written as it was read."""
        return WrittenHeader(self.data, {each.name: number for number, each in enumerate(self.parsed.states)})

    def states(self) -> Iterator[tuple[KeyedStateHeader, bytes]]:
        """Yield the states with their bytes."""
        ends = (*self.parsed.starts[1:], self.parsed.end)
        for state, start, stop in zip(self.parsed.states, self.parsed.starts, ends, strict=True):
            yield state, self.data[start:stop]


def changelog_header(
    front: SubtaskHeader, bases: Sequence[SubtaskHeader], logged: LoggedStates, states: Sequence[KeyedStateHeader]
) -> SubtaskHeader:
    """The header of a subtask of the changelog backend: that of what was materialized, with the states that its log
    describes as they were last described.

    ``front`` is a header of the operator with its serializer of keys, which no log has. ``states`` are those of both.
    """
    described = {state.name: octets for state, octets in zip(logged.states, logged.stored, strict=True)}
    found = {state.name: octets for each in bases for state, octets in each.states()} | described
    parts = [found[state.name] for state in states]
    data = front.data[:_FRONT] + front.key + len(states).to_bytes(_COUNT, "big")
    starts = list(itertools.accumulate(map(len, parts), initial=len(data)))
    parsed = replace(front.parsed, states=tuple(states), starts=tuple(starts[:-1]), end=starts[-1])
    return SubtaskHeader(data + b"".join(parts), parsed)


def written_header(
    headers: Sequence[SubtaskHeader],
    known: Sequence[Sequence[KeyedStateHeader]],
    without: Collection[str],
    origin: str,
) -> WrittenHeader:
    """The header of all subtasks' states but those ``without``.

    ``known`` are the states of the operator as `StoredStates.keyed_states` has them. Raises UnsupportedError
    EDIT_UNSUPPORTED where subtasks wrote a state in several types, so that one stream cannot have the values of all.
    """
    first = headers[0]
    if any(each.key != first.key for each in headers):
        raise unsupported(origin, f"its subtasks have other serializers of keys, expected one; {_remedy('a state')}")
    found: dict[str, dict[bytes, KeyedStateHeader]] = {}
    for each in headers:
        for state, octets in each.states():
            if state.name not in without:
                found.setdefault(state.name, {})[octets] = state
    common = {each[0].name: each[0] for each in known if len(each) == 1}
    chosen = {name: _chosen(ways, common.get(name), f"{origin}, state {name!r}") for name, ways in found.items()}
    data = b"".join([first.data[:_FRONT], first.key, len(chosen).to_bytes(_COUNT, "big"), *chosen.values()])
    return WrittenHeader(data, {name: number for number, name in enumerate(chosen)})


def _chosen(ways: Mapping[bytes, KeyedStateHeader], common: KeyedStateHeader | None, origin: str) -> bytes:
    """The bytes of a state that say how all values are read: one subtask may know more subclasses than another one."""
    if len(ways) == 1:
        return next(iter(ways))
    for octets, state in ways.items():
        if state == common:
            return octets
    raise unsupported(origin, f"its subtasks wrote values of several types; {_remedy('the state')}")


def _remedy(what: str) -> str:
    return f"use {what} in every subtask of the job, which migrates it, and edit the next savepoint"
