"""The available engines: those of this package, and those of installed packages.

A package adds an engine by an entry point of the group ``statestore.engines``, whose value is a module with an `Engine`
called ``ENGINE``. A module is loaded when no engine before it recognises a path or an option.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statestore.formats.engine_offer import Engine, EngineOption
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import ARROW_SCHEMES, LOCAL_SCHEME, Location
from statestore.formats.replaced_versions import again

if TYPE_CHECKING:
    from statestore.formats.engine import Source

BUILT_IN = ("statestore.formats.spark.engine", "statestore.formats.flink.engine", "statestore.formats.kafka.engine")
GROUP = "statestore.engines"


@dataclass(frozen=True)
class EngineOpening:
    """State of an engine at a location, with the options of a read."""

    engine: str
    location: Location
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Source:
        engine = engine_named(self.engine)
        return again(lambda: engine.open(self.location, self.options))


def engines() -> Iterator[Engine]:
    """All engines; those of installed packages come last."""
    yield from built_in_engines()
    for module in _installed(tuple(sys.path)):
        engine = _brought(module)
        if engine is not None:
            yield engine


def built_in_engines() -> Iterator[Engine]:
    """The engines of this package."""
    return map(_loaded, BUILT_IN)


def engine_named(name: str) -> Engine:
    """The engine of this name. Raises UnsupportedError UNKNOWN_ENGINE."""
    for engine in engines():
        if engine.name == name:
            return engine
    known = ", ".join(engine.name for engine in engines())
    raise UnsupportedError(
        ErrorCode.UNKNOWN_ENGINE,
        f"no engine {name!r} is installed here; there are {known}; install the package that has it",
    )


def recognised(folder: Folder, *, installed: bool = True) -> Engine | None:
    """The engine whose state a folder is; None where no engine recognises it. A folder with a memory is listed once.

    Without ``installed``, engines of installed packages are not asked: to look for them takes longer than all else.
    """
    asked = engines() if installed else built_in_engines()
    return next((engine for engine in asked if engine.recognises(folder)), None)


def unreadable(folder: Folder) -> str:
    """Return which engine has begun a folder that none recognises, and why it holds no state; "" for none."""
    return next((said for engine in engines() if (said := engine.unreadable(folder))), "")


def engine_of_scheme(scheme: str) -> Engine | None:
    """The engine to which locations of a scheme belong, because they are no folders; None where they are."""
    if scheme == LOCAL_SCHEME or scheme in ARROW_SCHEMES:
        return None
    return next((engine for engine in engines() if scheme in engine.schemes), None)


def engine_options(name: str) -> list[tuple[Engine, EngineOption]]:
    """The options with this name, in upper or lower case, and the engines that have them."""
    return [(e, option) for e in engines() for option in e.read_options if option.name.lower() == name.lower()]


def describe_only(options: Iterable[str]) -> bool:
    """Return whether options select no state, so that they go with the path of one; options of no engine do not."""
    return all(option.describes for name in options for _, option in engine_options(name))


def expected() -> str:
    """Descriptions of the state that engines read, for errors: "a checkpoint of Structured Streaming"."""
    return " or ".join(f"a {engine.expects}" for engine in engines())


@functools.cache
def _loaded(module: str) -> Engine:
    found = importlib.import_module(module).ENGINE
    if not isinstance(found, Engine):
        raise UnsupportedError(
            ErrorCode.UNKNOWN_ENGINE, f"module {module} has no Engine called ENGINE, which an engine must have"
        )
    return found


@functools.cache
def _brought(module: str) -> Engine | None:
    """The engine of an installed package; None, with a warning, for one that cannot be loaded: state that it has
    nothing to do with stays readable."""
    try:
        return _loaded(module)
    except Exception as error:
        text = f"engine {module} cannot be loaded ({type(error).__name__}: {error}); mend or remove its package"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


@functools.lru_cache(maxsize=8)
def _installed(path: tuple[str, ...]) -> tuple[str, ...]:
    """Modules of engines in packages on the path. The path may grow while a process runs (Spark's files)."""
    from importlib.metadata import entry_points  # takes longer to load than an engine takes to recognise its state

    return tuple(sorted({entry.value for entry in entry_points(group=GROUP)}))
