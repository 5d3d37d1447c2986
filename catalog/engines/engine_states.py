"""The states of an engine at one location, as the tables of a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from statestore.catalog.engines.engine_table import EngineTable
from statestore.formats.engine import Source
from statestore.formats.engines import EngineOpening, describe_only, engine_named
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, ReadOnlyError
from statestore.formats.notices import is_strict
from statestore.formats.places.locations import Location
from statestore.formats.replaced_versions import again, explained, is_gone
from statestore.formats.state_table import StateTable

if TYPE_CHECKING:
    from statestore.catalog.describe.table_summary import TableInfo, TableSummary
    from statestore.catalog.pinned_stores import PinnedStores

T = TypeVar("T")


@dataclass(frozen=True)
class EngineStates:
    """The states of one source.

    A source that is not ``pinned`` is opened anew where the engine has replaced what it reads. ``given`` are the
    options of the engine as the user gave them, ``bound`` the newest version that the tables have. ``one``: the state
    that alone is listed; None: all.
    """

    location: Location
    opening: EngineOpening
    source: Source
    pinned: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    bound: int | None = None
    one: str | None = None

    def pin(self, pinned: PinnedStores | None = None) -> EngineStates:
        """Return the states as of the one view of the directory; ``pinned`` is for stores.

        It is a new view where the engine has replaced the newest version of this one.
        """
        if self.pinned:
            return self
        try:
            return replace(self, source=self.source.holding(), pinned=True)
        except NotFoundError as error:
            if not is_gone(error):
                raise
        return self.pin_anew()

    def pin_anew(self) -> EngineStates:
        return replace(self, source=again(lambda: self.opening.open().holding()), pinned=True)

    def ask(self, question: Callable[[Source], T]) -> T:
        """Return the answer of the source. Errors as `EngineTable.ask`."""
        try:
            return explained(self.source, "", lambda: question(self.source))
        except NotFoundError as error:
            if self.pinned or not is_gone(error):
                raise
        return EngineTable(self.opening, "", "").ask(question)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ask(lambda source: source.states())) if self.one is None else (self.one,)

    @property
    def stores(self) -> tuple[str, ...]:
        return self.names

    @property
    def schemas(self) -> tuple[str, ...]:
        return ()

    def knows(self, name: str) -> bool:
        if self.one is not None:
            return name == self.one
        return name in self.names or self.ask(lambda source: source.listed_as(name)) is not None

    def open(self, name: str) -> StateTable:
        called, _, suffix = name.partition("$")
        base = self.ask(lambda source: called if called in source.states() else source.listed_as(called) or called)
        source = self.source if self.pinned else None
        strict = is_strict(self.opening.options)
        return state_table(EngineTable(self.opening, base, base, source, self.bound, strict), suffix)

    def only(self) -> StateTable:
        """Return the state that is read when none is named.

        Raises NotFoundError TABLE_NOT_FOUND, which names all states, if there is no such state.
        """
        default = self.ask(lambda source: source.default)
        if default is not None:
            return self.open(default)
        names = ", ".join(f"{self.location}/{name}" for name in self.names) or "none"
        options = ", ".join(option.name for option in engine_named(self.opening.engine).options)
        hint = f"; or select one by an option of the engine: {options}" if options else ""
        raise NotFoundError(
            ErrorCode.TABLE_NOT_FOUND, f"{self.location} has several tables; name one of them: {names}{hint}"
        )

    def about(self, name: str) -> TableInfo:
        from statestore.catalog.describe.table_summary import TableInfo

        info = self.ask(lambda source: source.info(name))
        return TableInfo(info.kind, None, info.facts, info.operator)

    def summary(self, name: str) -> TableSummary:
        from statestore.catalog.engines.engine_metadata import summarize_state

        return self.ask(lambda source: summarize_state(EngineTable(self.opening, name, name, source, self.bound)))

    def address(self, name: str) -> str:
        """Return the path of a state; options that select it go with the path of all states. A metadata table is that
        of the state by its name."""
        selects = self.opening.options and not describe_only(self.opening.options)
        return self.location.uri if selects and "$" not in name else self.location.at(name).uri

    @property
    def options(self) -> Mapping[str, str]:
        if self.opening.options:
            return self.given
        return {} if self.bound is None else {"versionAsOf": str(self.bound)}

    def store_of(self, name: str) -> str | None:
        base = name.partition("$")[0]
        return base if self.knows(base) else None

    def upkeep(self, store: str) -> NoReturn:
        raise ReadOnlyError(ErrorCode.READ_ONLY, f"{store!r} is an engine's state, which is read-only")


def state_table(table: EngineTable, suffix: str = "") -> StateTable:
    """Return a state, or one of its metadata tables."""
    if not suffix:
        return table
    from statestore.catalog.describe.metadata_table import MetadataTable
    from statestore.catalog.engines.engine_metadata import EngineMetadata

    return MetadataTable(EngineMetadata(table), suffix)
