"""State of which the checkpoint does not say all: without a schema file, or of a batch that was never committed.

Users give what is missing, in the options of a read (``given_types``). Here these are compared with the checkpoint, and
what stays unknown is said beside the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from statestore.formats.engine import FileFinding
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import LOGS, data_files
from statestore.formats.spark.checkpoint.crc_files import side_difference
from statestore.formats.spark.checkpoint.given_types import given_names, names_of
from statestore.formats.spark.checkpoint.state_errors import missing
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.readable_batches import batches_left

_OF_ROCKSDB = {"zip", "changelog"}
_OPTIONS = {"key": "keyType", "value": "valueType"}


def check_given(checkpoint: Checkpoint) -> None:
    """Check that types are given of states that are there, and that have no schema file.

    Raises InvalidInputError INVALID_OPTION.
    """
    stores = [(store, store.families[0].recorded) for each in checkpoint.operators for store in each.stores]
    known = {name: recorded for store, recorded in stores for name in names_of(store.operator_id, store.name)}
    known[""] = all(recorded for _, recorded in stores)
    for name in given_names(checkpoint.given):
        what = f"option keyType or valueType{f' of {name}' if name else ''}"
        if name not in known:
            listed = ", ".join(sorted(each for each, recorded in known.items() if each and not recorded))
            found = f"{checkpoint.root.path} has no such state; without a schema file there are {listed or 'none'}"
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{what}: {found}")
        if known[name]:
            found = f"a schema file of {checkpoint.root.path} says the types; leave out the option"
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{what}: {found}")


def check_begun(checkpoint: Checkpoint, store: Store) -> None:
    """Raise NotFoundError SPARK_STATE_NOT_FOUND if the batch was not committed, and is not written in whole."""
    batch = checkpoint.batch
    if batch.batch_id not in checkpoint.begun:
        return
    listed = [(number, data_files(checkpoint.folder(store, number))) for number in store.partitions]
    without = [str(number) for number, files in listed if all(file.version != batch.version for file in files)]
    if not without:
        return
    raise missing(
        f"batch {batch.batch_id} of {checkpoint.root.path}",
        f"it was begun and not committed, and {len(without)} of {len(listed)} partitions have not written their state "
        f"of it ({', '.join(without)}); leave out uncommitted, which shows the batch before it",
    )


def uncommitted_batches(checkpoint: Checkpoint, store: Store) -> list[int]:
    """The batches after the newest commit of which all partitions of a store have their state, ascending.

    The query was between the two writes, or the file of the commit is lost: nothing tells them apart.
    """
    begun = [number for number in checkpoint.root.at("offsets").numbered() if number > checkpoint.batches[-1]]
    if not begun:
        return []
    listed = [data_files(checkpoint.folder(store, number)) for number in store.partitions]
    written = [{file.version - 1 for file in files} for files in listed]
    return [number for number in begun if written and all(number in each for each in written)]


def log_findings(checkpoint: Checkpoint, store: Store, versions: Sequence[int]) -> list[FileFinding]:
    """Findings about the logs of offsets and commits: differences from checksums, and the batches without a commit."""
    root = checkpoint.root
    found = []
    for number in versions if root.is_local else ():
        for log in LOGS:
            path = root.at(log, number).path
            difference = side_difference(path)
            if difference is not None:
                text = f"{difference}; Spark reads this file without a check: restore it from a copy"
                found.append(FileFinding(path, text, version=number))
    for log in LOGS:
        found += _gaps(root, log)
    found += _without_times(checkpoint)
    found += _lost_schemas(checkpoint, store)
    for number in uncommitted_batches(checkpoint, store):
        path = root.at("commits", number).path
        text = (
            f"{path}: no such file, and offsets/{number} and state of batch {number} in all partitions are there: the "
            "query was about to commit it, or the file is lost; option uncommitted reads the batch"
        )
        found.append(FileFinding(path, text, damaged=False, version=number))
    return found


def _without_times(checkpoint: Checkpoint) -> Iterator[FileFinding]:
    """The logs of offsets that have no time of their batch, where others have one: each release writes all or none."""
    try:
        batches = [each for each in batches_left(checkpoint, checkpoint.batches) if each.logged]
    except StateStoreError:  # the list of versions says so
        return
    without = [each.batch_id for each in batches if each.timestamp_ms is None]
    for number in without if len(without) < len(batches) else ():
        path = checkpoint.root.at("offsets", number).path
        text = f"{path}: found no batchTimestampMs, the time of the batch, which others have; restore it from a copy"
        yield FileFinding(path, text, version=number)


def _lost_schemas(checkpoint: Checkpoint, store: Store) -> Iterator[FileFinding]:
    """The schema file of a store, where a release of Spark that always writes one has written the store."""
    if all(family.recorded for family in store.families) or not store.folders:
        return
    folder = checkpoint.folder(store, store.folders[0])
    kinds = {file.kind for number in store.folders for file in data_files(checkpoint.folder(store, number))}
    if store.prefix_columns is not None:
        release = "4.0 or later, which has written metadata of the operator"
    elif not kinds.isdisjoint(_OF_ROCKSDB):
        release = "3.2 or later, which has written its state with RocksDB"
    else:
        return
    path = folder.at("_metadata", "schema").path
    text = (
        f"{path}: no such file, and the query ran on Spark {release}: the types of the state are lost, and its rows "
        f"are shown as stored bytes, or with {' and '.join(_OPTIONS.values())}; restore the file from a copy"
    )
    yield FileFinding(path, text, version=checkpoint.batches[-1] if checkpoint.batches else None)


def _gaps(root: Folder, log: str) -> Iterator[FileFinding]:
    """The files that a log lacks between others. The query removes only those before all others."""
    numbers = root.at(log).numbered()
    for before, after in pairwise(numbers):
        if after == before + 1:
            continue
        path = root.at(log, before + 1).path
        last = "" if after == before + 2 else f" (and so up to {after - 1})"
        text = f"{path}: no such file{last}, between {before} and {after}; restore it from a copy"
        yield FileFinding(path, text, version=before + 1)


def reasons_against(checkpoint: Checkpoint, state_view: StateView, versions: Sequence[int]) -> list[str]:
    """The reasons why rows of these versions may not be all that the engine knows, as sentences."""
    opaque = state_view.family.opaque
    reasons = [_begun_notice(number) for number in versions if number in checkpoint.begun]
    if opaque:
        reasons.append(
            f"no schema file says the columns of its {' and its '.join(opaque)} (Spark 3.0 and earlier wrote none), so "
            f"stored bytes are shown; give {' and '.join(_OPTIONS[column] for column in opaque)} for columns"
        )
    return reasons


def _begun_notice(batch_id: int) -> str:
    """The reason why rows of such a batch may not be those of any batch."""
    return (
        f"batch {batch_id} was begun, and no commit of it is there; Spark computes it again when the query goes on, "
        "perhaps with other rows"
    )
