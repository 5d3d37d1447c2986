"""Finding the state of an engine at a location: in a folder, on a server, below a path, or as options select it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.engine_offer import Engine
from statestore.formats.engines import (
    EngineOpening,
    describe_only,
    engine_of_scheme,
    engine_options,
    expected,
    recognised,
    unreadable,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.notices import STRICT
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import Location

if TYPE_CHECKING:
    from statestore.catalog.engines.engine_states import EngineStates


def states_at(
    location: Location,
    options: Mapping[str, str] | None = None,
    *,
    optional: bool = False,
    folder: Folder | None = None,
) -> EngineStates | None:
    """Return the state of an engine at a location, whose ``folder`` may be listed already; None if there is none.

    Raises InvalidInputError STATE_SELECTION for options of an engine whose state is not at the location; with
    ``optional``, it may be elsewhere.
    """
    folder = folder or folder_at(location).remembering()
    if optional and recognised(folder) is None:
        return None
    return states_in(folder, location, options)


def states_in(folder: Folder, location: Location, options: Mapping[str, str] | None = None) -> EngineStates | None:
    """Return the state of an engine in a folder at a location; None if there is none. Errors as `states_at`."""
    engine = recognised(folder)
    chosen = {name.lower(): value for name, value in (options or {}).items()}
    _check_owners(location, engine, chosen, folder)
    if engine is None:
        return None
    if not folder.is_local and UNFINISHED_FILE in folder.files():
        raise NotFoundError(
            ErrorCode.NOTHING_HERE,
            f"{location} is the target of an edit that has not ended ({UNFINISHED_FILE} is there), and may not be "
            "whole; wait for that edit, or if it was killed, remove all objects below and edit again",
        )
    from statestore.catalog.engines.engine_states import EngineStates

    opening = EngineOpening(engine.name, location, chosen)
    return EngineStates(location, opening, opening.open())


def served_states(location: Location, options: Mapping[str, str]) -> EngineStates | None:
    """Return the states of a server, or the one that the path of its location names; None for a folder."""
    engine = engine_of_scheme(location.scheme)
    if engine is None:
        return None
    from statestore.catalog.engines.engine_states import EngineStates

    chosen = {name.lower(): value for name, value in options.items()}
    _check_owners(location, engine, chosen)
    server, state = replace(location, path=""), location.path.partition("$")[0]
    opening = EngineOpening(engine.name, server, chosen)
    source = opening.open()
    if state and state not in source.states():
        source.info(state)  # raises an error for a state that is not there
    return EngineStates(server, opening, source, given=options, one=state or None)


def nothing_here(folder: Folder, root: Path) -> NotFoundError:
    """Return the error for a local directory with no store and no state of an engine: what is in it instead."""
    from statestore.catalog.engines.places_below import hint_of, places_below

    found = unreadable(folder) or f"holds no store; expected a warehouse made with statestore.connect, or {expected()}"
    return NotFoundError(ErrorCode.NOTHING_HERE, f"{root} {found}{hint_of(places_below(root), root)}")


def one_state(location: Location, options: Mapping[str, str]) -> EngineStates | None:
    """Return the one state of an engine that the last name of a path means, where the path itself holds nothing."""
    if not describe_only(options) or not location.is_local or Path(location.path).exists():
        return None
    states = states_at(location.parent, options, optional=True)
    return replace(states, one=location.name) if states is not None and states.knows(location.name) else None


def options_at(location: Location, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a read without ``strict`` where no engine has state: it is no option of an engine that is
    not there, and tables of stores take it otherwise."""
    if STRICT not in map(str.lower, options) or engine_of_scheme(location.scheme) is not None:
        return options
    places = (location, location.parent) if location.path.strip("/") else (location,)
    if any(recognised(folder_at(place).remembering()) is not None for place in places):
        return options
    return {name: value for name, value in options.items() if name.lower() != STRICT}


def _check_owners(
    location: Location, engine: Engine | None, options: Iterable[str], folder: Folder | None = None
) -> None:
    """Raise InvalidInputError STATE_SELECTION for options of an engine whose state is not at the location."""
    for name in options:
        owners = [owner for owner, _ in engine_options(name)]
        if owners and engine not in owners:
            begun = unreadable(folder) if engine is None and folder is not None else ""
            found = begun or f"is no {owners[0].expects}"
            raise InvalidInputError(
                ErrorCode.STATE_SELECTION, f"{location} {found}; option {name} selects state in one"
            )


def selected_states(location: Location, options: Mapping[str, str]) -> EngineStates:
    """Return the state of an engine that options select; an option for a version alone selects no state.

    Raises InvalidInputError STATE_SELECTION for options of an engine whose state is not at the location.
    """
    aliases = {name for name in options for _, option in engine_options(name) if option.alias == "versionAsOf"}
    folder = folder_at(location).remembering()
    _check_owners(location, recognised(folder), options, folder)
    found = states_in(folder, location, None if aliases == set(options) else options)
    assert found is not None  # of the engine that has the options
    bounds = [int(options[name]) for name in aliases]
    return replace(found, given=options, bound=bounds[0] if bounds else None)
