"""The part of the seam that a source of keyed state adds: its operators, and which of its states are theirs.

From it `statestore.connector.imports` makes keyed stores of ours. The rows are those of `StateAt.rows`, in columns
whose names are fixed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

KeyedKind = Literal["value", "list", "map", "reducing", "aggregating", "event timers", "processing timers"]

KEY, NAMESPACE, VALUE = "key", "namespace", "value"
POSITION = "position"
MAP_KEY, MAP_VALUE = "map_key", "map_value"
TIMESTAMP_MS = "timestamp_ms"
LAST_ACCESS = "last_access"


@dataclass(frozen=True)
class OperatorState:
    """A keyed state of an operator: ``name`` is its name in the operator, ``state`` its name in the source.

    `StateAt.schema` of ``state`` has the columns ``key`` (a struct for a key of several fields) and, where the state
    has namespaces, ``namespace`` (a struct of ``start`` and ``end`` for a time window). Then follows, by kind:

    - of value, reducing and aggregating: ``value``, of the last the accumulator;
    - of list: ``position`` (int32, from 0 in each list) and ``value``, in a row for each element;
    - of map: ``map_key`` and ``map_value``, in a row for each entry;
    - of timers: ``timestamp_ms`` (int64, epoch milliseconds).

    Values that say nothing (Flink's ``Void``) have no column ``value`` or ``map_value``; true is imported for them.
    A state with a time to live has ``last_access`` (timestamp) besides. Other columns are those of
    `StateInfo.placement` or derived from these, and are not imported.

    ``undivided``: keys cannot be told from the namespace or map key behind them, so ``key`` has the bytes of all, and
    the state cannot be imported.
    """

    name: str
    state: str
    kind: KeyedKind
    undivided: bool = False


@dataclass(frozen=True)
class KeyedOperator:
    """An operator with keyed state.

    ``name`` is what a user calls it, ``ids`` are other names that mean it too (a uid, the hash of one).
    ``key_groups`` is the number of key groups (Flink's max parallelism), ``parallelism`` the number of its tasks.
    """

    name: str
    key_groups: int
    parallelism: int
    states: tuple[OperatorState, ...]
    ids: tuple[str, ...] = ()


@runtime_checkable
class HoldsKeyedStates(Protocol):
    """A source that has operators with keyed state."""

    def keyed_operators(self, version: int | None = None) -> Sequence[KeyedOperator]:
        """The operators with keyed state of a version, by default of the newest one that can be read.

        Raises NotFoundError VERSION_NOT_FOUND.
        """
