"""Classes and values of an engine, the reader of one stream processor's state.

A package that brings an engine names a module with an `Engine` called ``ENGINE`` as an entry point of the group
``statestore.engines``. Errors are those of `statestore`.
"""

from __future__ import annotations

from statestore.formats.edits import (
    CopiedFile,
    EditedSource,
    EditOptions,
    EditPlan,
    MovedRows,
    StateEdit,
    StoredSide,
    Target,
)
from statestore.formats.engine import (
    DeltaPart,
    HoldsPast,
    Part,
    RestoreCheck,
    Source,
    StateAt,
    StateFile,
    StateInfo,
    StateSize,
    Version,
    WholePart,
)
from statestore.formats.engine_offer import Engine, EngineOption
from statestore.formats.engine_reads import EngineRead, EngineReads
from statestore.formats.jobs import Job, JobInput, KeyedOperator, OperatorState, RestoreFinding
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location, open_location
from statestore.formats.values.filters import Filter, mask
from statestore.formats.written import Written

__all__ = [
    "CopiedFile",
    "DeltaPart",
    "EditOptions",
    "EditPlan",
    "EditedSource",
    "Engine",
    "EngineOption",
    "EngineRead",
    "EngineReads",
    "Filter",
    "Folder",
    "HoldsPast",
    "Job",
    "JobInput",
    "KeyedOperator",
    "Location",
    "MovedRows",
    "OperatorState",
    "Part",
    "RestoreCheck",
    "RestoreFinding",
    "Source",
    "StateAt",
    "StateEdit",
    "StateFile",
    "StateInfo",
    "StateSize",
    "StoredSide",
    "Target",
    "Version",
    "WholePart",
    "Written",
    "mask",
    "open_location",
]
