"""Types of `statestore.track_state_by_key`: the state that a function gets, its specification, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statestore.connector.tracked.spec import State, StateSpec

if TYPE_CHECKING:
    from statestore.connector.tracked.kept_batches import StateSnapshot
    from statestore.connector.tracked.track import Tracked

__all__ = ["State", "StateSnapshot", "StateSpec", "Tracked"]


def __getattr__(name: str) -> Any:
    """Load what needs PySpark when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from statestore.connector.supported_spark import stand_in

    refusing = stand_in()
    if refusing is not None:
        return refusing
    if name == "Tracked":
        from statestore.connector.tracked.track import Tracked

        return Tracked
    from statestore.connector.tracked.kept_batches import StateSnapshot

    return StateSnapshot
