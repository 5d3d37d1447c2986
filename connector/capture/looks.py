"""Looks at a source: each captures what is new there, version by version, into the stores of a warehouse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from statestore.catalog.capture.next_version import versions_behind
from statestore.catalog.capture.step import Step, capture_next, newest_captured, open_captured
from statestore.catalog.catalog import Catalog
from statestore.catalog.engines.engine_states import EngineStates
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.catalog.warehouse import open_warehouse
from statestore.formats.engine import Opening, Source
from statestore.formats.engines import engine_options
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.places.locations import parse_location
from statestore.formats.replaced_versions import ATTEMPTS, again, is_gone

_NOT_IN_NAMES = re.compile(r"[/$\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class CapturedVersion:
    """A version of one state that was captured, as ``store`` has it. ``words`` are the engine's for versions."""

    state: str
    store: str
    words: tuple[str, str]
    step: Step


@dataclass
class SourceAt:
    """The source at a path, which need not be there yet. ``selected`` are options of engines, by their names in
    Spark."""

    path: str
    selected: Mapping[str, str]
    _opening: Opening | None = None

    def __str__(self) -> str:
        """Return the path as messages show it: without keys that the options of a location may have."""
        return str(parse_location(self.path))

    def open(self) -> Source:
        """Open the source as it is now.

        Raises the errors of `inspect`, UnsupportedError CAPTURE_UNSUPPORTED for stores of ours.
        """
        return again(self.find().open).holding()

    def find(self) -> Opening:
        """Return what opens the source, which is looked for once. Raises as `open`."""
        if self._opening is None:
            self._opening = self._found()
        return self._opening

    def _found(self) -> Opening:
        """Return what opens the one source that the path has: an engine's, or a keyed store of ours."""
        for name in self.selected:
            for _, option in engine_options(name):
                if option.unsettled or option.alias or option.feed:
                    shows = "versions that the engine may write anew" if option.unsettled else "one version or feed"
                    raise InvalidInputError(
                        ErrorCode.INVALID_OPTION,
                        f"option {name} shows {shows}, and a capture keeps each version as it stays; leave it out",
                    )
        held = open_warehouse(self.path, self.selected).held
        if isinstance(held, EngineStates):
            return held.opening
        tables = [held.open(name) for name in held.names]
        sources = {each.opening for each in tables if isinstance(each, EngineTable)}
        if len(sources) == 1 and all(isinstance(each, EngineTable) for each in tables):
            return sources.pop()
        raise UnsupportedError(
            ErrorCode.CAPTURE_UNSUPPORTED,
            f"{self} has {', '.join(held.names) or 'no table'}; expected the state of one job, or one keyed "
            "store. Other stores keep their past themselves",
        )


@dataclass
class Looks:
    """The capture of a source by repeated looks. ``chosen`` are the states to capture; None: all that the source has.
    A new store begins with the version of its state in ``since``, by default with the oldest.

    Stores stay open between looks: what a writer knows of the rows that are open saves the next commit a look-up.
    """

    catalog: Catalog
    found: SourceAt
    chosen: Sequence[str] | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    stores: dict[str, CapturedStore] = field(default_factory=dict)

    def look(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[CapturedVersion]:
        """Capture the versions that can be read and are new, oldest first, all states in turn, and yield each.

        ``stopped`` is asked before each commit. Raises the errors of the source and of the stores.
        """
        lost = 0
        while True:
            source = self.found.open()
            waiting = list(self.states(source))
            try:
                while waiting:
                    for state in tuple(waiting):
                        if stopped():
                            return
                        found = self._next(source, state)
                        if found is None:
                            waiting.remove(state)
                        else:
                            lost = 0
                            yield found
                return
            except NotFoundError as error:  # a running engine removes old versions at any moment
                lost += 1
                if not is_gone(error) or lost == ATTEMPTS:
                    raise

    def states(self, source: Source) -> Sequence[str]:
        """Return the states to capture, by their listed names. Raises NotFoundError TABLE_NOT_FOUND."""
        listed = source.states()
        if self.chosen is None:
            return listed
        found = []
        for name in self.chosen:
            own = name if name in listed else source.listed_as(name)
            if own is None:
                raise NotFoundError(
                    ErrorCode.TABLE_NOT_FOUND,
                    f"{source.path} has no state {name!r}; it has {', '.join(listed) or 'none'}",
                )
            found.append(own)
        return list(dict.fromkeys(found))

    def behind(self, source: Source) -> Mapping[str, int]:
        """Return how many versions of each state can be read and are not captured."""
        found = {}
        for state in self.states(source):
            store = self.stores.get(state)
            found[state] = versions_behind(source, state, None if store is None else newest_captured(store))
        return found

    def close(self) -> None:
        """Close the stores."""
        while self.stores:
            self.stores.popitem()[1].close()

    def _next(self, source: Source, state: str) -> CapturedVersion | None:
        store = self._store(source, state)
        if store is None:
            return None
        try:
            step = capture_next(store, source, self.since.get(state))
        except InvalidInputError as error:
            if error.code != ErrorCode.NULL_KEY:
                raise
            if newest_captured(store) is not None:
                raise UnsupportedError(
                    ErrorCode.CAPTURE_UNSUPPORTED,
                    f"{state} of {source.path}: {error.message}. What was captured stays as it is; capture the state "
                    "into another warehouse from here on, where its keys may have nulls",
                ) from error
            store = self._store_with_nulls(source, state)
            step = capture_next(store, source, self.since.get(state))
        return None if step is None else CapturedVersion(state, store.spec.name, source.version_words, step)

    def _store(self, source: Source, state: str) -> CapturedStore | None:
        if state not in self.stores:
            found = open_captured(self.catalog, self.name(source, state), source, state)
            if found is None:
                return None
            self.stores[state] = found
        return self.stores[state]

    def _store_with_nulls(self, source: Source, state: str) -> CapturedStore:
        """Return a new store in the place of one without a version, whose keys cannot have nulls."""
        name = self.name(source, state)
        self.stores.pop(state).close()
        self.catalog.drop_store(name)
        found = open_captured(self.catalog, name, source, state, has_nulls=True)
        assert found is not None, "the state has a version"
        self.stores[state] = found
        return found

    def name(self, source: Source, state: str) -> str:
        """Return the name of a state's store. Raises UnsupportedError CAPTURE_UNSUPPORTED where two have one name."""
        name = store_name(state)
        alike = [each for each in source.states() if store_name(each) == name]
        if len(alike) > 1:
            raise UnsupportedError(
                ErrorCode.CAPTURE_UNSUPPORTED,
                f"{source.path}: states {' and '.join(map(repr, alike))} would both be store {name!r}; capture each "
                "into a warehouse of its own (states=, --state)",
            )
        return name


def store_name(state: str) -> str:
    """Return the name of the store of a state: its own, without what names of stores cannot have."""
    return _NOT_IN_NAMES.sub("_", state).lstrip(".") or "_"
