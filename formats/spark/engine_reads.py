"""The options with which Spark's own ``statestore`` source reads the states of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from statestore.formats.engine_reads import EngineRead, EngineReads
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import SETTINGS
from statestore.formats.spark.checkpoint.state_views import PARTITION, StateView
from statestore.formats.spark.edits.copied_files import metadata_paths, moved_metadata

_FORMAT = f"{SETTINGS}stateStore.checkpointFormatVersion"


def engine_reads_of(checkpoint: Checkpoint, views: Mapping[str, StateView]) -> EngineReads:
    """The reads of the newest batch; ``views`` are the states by name."""
    return EngineReads(
        "spark", {name: _read(checkpoint, view) for name, view in views.items()}, partial(_moved, checkpoint)
    )


def _read(checkpoint: Checkpoint, view: StateView) -> EngineRead:
    options = {"operatorId": str(view.operator_id), "batchId": str(checkpoint.batch.batch_id)}
    columns = tuple(name for name in view.schema.names if name != PARTITION.name)
    left_out = ""
    if view.shape == "join-side":
        options["joinSide"] = view.name
        if view.listed:
            columns = columns[1:]
            left_out = "for a join of state format 4 Spark's reader returns other bytes in the last column of the key"
    elif view.shape == "timers":
        options["readRegisteredTimers"] = "true"
    elif checkpoint.operator(view.operator_id).variables:
        options["stateVarName"] = view.name
    # The reader takes the format of the checkpoint from its session, and all else from the checkpoint.
    settings = {_FORMAT: "2" if checkpoint.batch.uids else "1"}
    return EngineRead(options, columns, settings, left_out)


def _moved(checkpoint: Checkpoint, place: str) -> Mapping[str, bytes]:
    return {path: moved_metadata(checkpoint.root, path, place) for path in metadata_paths(checkpoint.root)}
