"""Whether types are, or contain, those of Flink's Scala API or of Kryo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.formats.flink.serializers.flink_types import (
    FlinkType,
    KryoOf,
    OptionOf,
    TraversableOf,
    TryOf,
    TupleOf,
    replaced,
)


def of_scala(found: Any) -> bool:
    """Return whether a type, or one in a dataclass that holds types, is of Flink's Scala API."""
    return _holds(found, _is_of_scala)


def of_kryo(found: Any) -> bool:
    """Return whether a type, or one in a dataclass that holds types, is of Kryo."""
    return _holds(found, lambda kind: isinstance(kind, KryoOf))


def _is_of_scala(kind: FlinkType) -> bool:
    return isinstance(kind, (OptionOf, TryOf, TraversableOf)) or (isinstance(kind, TupleOf) and kind.is_scala)


def _holds(found: Any, is_wanted: Callable[[FlinkType], bool]) -> bool:
    met = False

    def note(kind: FlinkType) -> FlinkType:
        nonlocal met
        met = met or is_wanted(kind)
        return kind

    replaced(found, note)
    return met
