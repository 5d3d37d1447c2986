"""Names of imported states: those of the operator, changed only where a keyed store cannot have them."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.catalog.keyed.rows.state_spec import DEFAULT, FORBIDDEN_IN_NAMES, MAX_NAME_BYTES

_NUMBER_BYTES = 20


def state_names(names: Sequence[str]) -> list[str]:
    """Return a name for each state, no two of which differ by case only.

    Characters that a state's name cannot have become ``_``, and a name that is taken gets a number behind it.
    """
    taken: set[str] = set()
    found = []
    for name in names:
        free = base = _allowed(name)
        number = 1
        while free.lower() in taken:
            number += 1
            free = f"{base}_{number}"
        taken.add(free.lower())
        found.append(free)
    return found


def _allowed(name: str) -> str:
    allowed = FORBIDDEN_IN_NAMES.sub("_", name).encode()[: MAX_NAME_BYTES - _NUMBER_BYTES].decode(errors="ignore")
    return f"{allowed}_" if allowed == DEFAULT else allowed if allowed.strip() else "state"
