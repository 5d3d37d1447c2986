"""An engine as a package offers it: its name, its options, and how its state is recognised and opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statestore.formats.notices import STRICT
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location

if TYPE_CHECKING:
    from statestore.formats.engine import Source


@dataclass(frozen=True)
class EngineOption:
    """An option of an engine, for every door: ``name`` is Spark's spelling. ``kind``: int, bool or text.

    ``alias`` is the option of every table for which it is another spelling. ``feed``: the option asks for a change feed
    of the engine's own, whose rows are those of a state. ``describes``: the option says how states are to be read, and
    does not select one, so it goes with the path of a state. ``unsettled``: with the option, versions can be read that
    the engine may still write anew, which a capture refuses.
    """

    name: str
    kind: str
    meaning: str
    alias: str = ""
    feed: bool = False
    describes: bool = False
    unsettled: bool = False


SHARED_OPTIONS = (
    EngineOption(
        STRICT, "bool", "refuse rows that may not be current or complete, in place of a notice; false", describes=True
    ),
)
"""Options of the reads of every engine (`statestore.formats.notices`)."""


def _nothing(_: Folder) -> str:
    return ""


@dataclass(frozen=True)
class Engine:
    """The reader of one stream processor's state. A module listed in ``statestore.formats.engines``, or named by an
    installed package as an entry point, holds one as ``ENGINE``.

    ``expects`` is what the engine reads, for errors ("checkpoint of Structured Streaming"). ``recognises`` returns
    whether a folder is state of this engine; listing it is one request for all engines. ``open`` opens it. It gets all
    options of a read, by name, and refuses those of its own that do not go together. ``schemes`` are those of locations
    that belong to the engine and are no folders: a server, whose path is the name of a state or empty. ``unreadable``
    says of a folder that is not recognised what the engine has written there all the same, such as the checkpoint of a
    query before its first commit, and why there is no state in it; "" for anything else. ``includes_below``: folders of
    this engine below a recognised one are part of it. ``edit_settings`` are what the targets of its edits can be asked
    to be (`statestore.formats.edits.EditOptions.settings`), by the names in Python; each is a flag of the command.
    """

    name: str
    expects: str
    options: tuple[EngineOption, ...]
    recognises: Callable[[Folder], bool]
    open: Callable[[Location, Mapping[str, str]], Source]
    schemes: tuple[str, ...] = ()
    unreadable: Callable[[Folder], str] = _nothing
    includes_below: bool = False
    edit_settings: tuple[EngineOption, ...] = ()

    @property
    def read_options(self) -> tuple[EngineOption, ...]:
        """The options of reads of this engine's state: its own, and those that all engines have."""
        return (*self.options, *SHARED_OPTIONS)
