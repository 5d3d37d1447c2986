"""Protocols and values of an engine, the reader of one stream processor's state.

A package that brings an engine names a module with an `Engine` called ``ENGINE`` as an entry point of the group
``statestore.engines``. Errors are those of `statestore`.
"""

from __future__ import annotations

from statestore.formats.engine import (
    ChecksResumption,
    CountsRows,
    DeltaPart,
    DescribesStates,
    Engine,
    EngineOption,
    ExplainsLoss,
    HasDeltas,
    HasSlices,
    HoldsPast,
    Part,
    ReadsFields,
    Source,
    StateAt,
    StateFile,
    StateInfo,
    StateSize,
    Version,
    WholePart,
)
from statestore.formats.keyed_operators import HoldsKeyedStates, KeyedOperator, OperatorState
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import Location, open_location
from statestore.formats.restore_findings import ChecksRestore, RestoreFinding
from statestore.formats.values.filters import Filter, mask

__all__ = [
    "ChecksRestore",
    "ChecksResumption",
    "CountsRows",
    "DeltaPart",
    "DescribesStates",
    "Engine",
    "EngineOption",
    "ExplainsLoss",
    "Filter",
    "Folder",
    "HasDeltas",
    "HasSlices",
    "HoldsKeyedStates",
    "HoldsPast",
    "KeyedOperator",
    "Location",
    "OperatorState",
    "Part",
    "ReadsFields",
    "RestoreFinding",
    "Source",
    "StateAt",
    "StateFile",
    "StateInfo",
    "StateSize",
    "Version",
    "WholePart",
    "mask",
    "open_location",
]
