"""The part of the seam that describes the job of a source: its parts, its keyed state, and what a restore makes of it.

No engine records which operator feeds which. What is recorded differs: what the whole job reads, or what each part of
it has read. Only that is said here. Which changes a restore takes, and how an operator is found again, is the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KeyedKind = Literal["value", "list", "map", "reducing", "aggregating", "event timers", "processing timers"]

KEY, NAMESPACE, VALUE = "key", "namespace", "value"
POSITION = "position"
MAP_KEY, MAP_VALUE = "map_key", "map_value"
TIMESTAMP_MS = "timestamp_ms"
LAST_ACCESS = "last_access"

Verdict = Literal["as is", "after migration", "new", "unused", "unknown", "incompatible", "lost"]
PREVENTING: tuple[Verdict, ...] = ("incompatible", "lost")


@dataclass(frozen=True)
class JobInput:
    """Something that a job reads. ``name`` is shown to users ("source 0", "topic orders"), and ``detail`` is what else
    is recorded of it.

    ``parts`` are those that have read it, in the words of `StateInfo.operator`; () stands for the job as a whole.
    """

    name: str
    detail: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The job of a source.

    ``words`` name a part of it, singular and plural: `StateInfo.operator` says which part keeps a state. ``inputs`` are
    those that are recorded; None: none can be. ``stateless`` are parts that are recorded and keep no state of the
    source. ``unrecorded`` is a sentence on the edges between parts.
    """

    name: str
    unrecorded: str
    words: tuple[str, str] = ("operator", "operators")
    inputs: tuple[JobInput, ...] | None = None
    stateless: tuple[str, ...] = ()


# Operators with keyed state, of which `statestore.connector.imports` makes keyed stores


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


# Restores: whether a job may be started from a snapshot of another one


@dataclass(frozen=True)
class RestoreFinding:
    """The outcome for one state of an operator, or of the operator itself where ``state`` is None.

    - "as is", "after migration": it is restored, in the second case by rewriting values.
    - "new": the job has it and the snapshot does not; it begins empty.
    - "unused": the snapshot has it and the operator of the job does not; it is kept, and nothing reads it.
    - "unknown": files do not say; ``reason`` names what decides.
    - "incompatible": the engine refuses the restore.
    - "lost": the job has no such operator; the engine refuses unless the user agrees to lose its state.
    """

    operator: str
    state: str | None
    verdict: Verdict
    reason: str = ""

    @property
    def prevents(self) -> bool:
        """Return whether the engine refuses the restore."""
        return self.verdict in PREVENTING
