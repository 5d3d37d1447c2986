"""Descriptions of topologies, as ``Topology.describe()`` of Kafka Streams prints them.

    Sub-topology: 3
     Source: KSTREAM-SOURCE-0000000006 (topics: [orders])
       --> KSTREAM-REDUCE-0000000013
     Processor: KSTREAM-REDUCE-0000000013 (stores: [per-minute])

Lines that are not of these forms are left out, so a description may stand within a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

MOST_BYTES = 16 << 20
_SUBTOPOLOGY = re.compile(r"\s*Sub-topology: (\d+)( for global store.*)?")
_SOURCE = re.compile(r"\s*Source: (\S+) \((?:topics: \[(.*)\]|topic pattern: (.*))\)")
_PROCESSOR = re.compile(r"\s*Processor: (\S+) \(stores: \[(.*)\]\)")


@dataclass(frozen=True)
class StoreUse:
    """A store in a topology: its sub-topology, the processors that use it, and the topics which that reads."""

    subtopology: int
    is_global: bool
    processors: tuple[str, ...]
    topics: tuple[str, ...]

    def shown(self) -> str:
        """A text for users."""
        place = "a global store" if self.is_global else f"sub-topology {self.subtopology}"
        processors = f"processor{'s' if len(self.processors) > 1 else ''} {', '.join(self.processors)}"
        return f"{place}, {processors}, reads {', '.join(self.topics) or 'no topic'}"


def read_topology(path: str) -> Mapping[str, StoreUse]:
    """Return the stores in the description that a file holds. Raises InvalidInputError STORES_FILE without any."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(ErrorCode.STORES_FILE, f"{path}: {error}; name a file with a topology") from error
    found = parse_topology(text)
    if not found:
        raise InvalidInputError(
            ErrorCode.STORES_FILE,
            f"{path}: found no store, expected lines such as 'Processor: NAME (stores: [counts])', which "
            "Topology.describe() prints",
        )
    return found


def parse_topology(text: str) -> dict[str, StoreUse]:
    """Return the stores of a description by name."""
    number, is_global = 0, False
    topics: dict[int, list[str]] = {}
    processors: dict[str, tuple[int, bool, list[str]]] = {}
    for line in text.splitlines():
        if begin := _SUBTOPOLOGY.match(line):
            number, is_global = int(begin[1]), begin[2] is not None
        elif source := _SOURCE.match(line):
            topics.setdefault(number, []).extend(_names(source[2]) if source[2] is not None else [source[3]])
        elif processor := _PROCESSOR.match(line):
            for store in _names(processor[2]):
                processors.setdefault(store, (number, is_global, []))[2].append(processor[1])
    return {
        store: StoreUse(where, shared, tuple(users), tuple(topics.get(where, ())))
        for store, (where, shared, users) in processors.items()
    }


def _names(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]
