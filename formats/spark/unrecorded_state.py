"""State of which the checkpoint does not say all: without a schema file, or of a batch that was never committed.

Users give what is missing, in the options of a read (``given_types``). Here these are compared with the checkpoint, and
what stays unknown is said beside the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.checkpoint.begun_batches import begun_notice
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import data_files
from statestore.formats.spark.checkpoint.given_types import given_names, names_of
from statestore.formats.spark.checkpoint.state_errors import missing
from statestore.formats.spark.checkpoint.state_views import StateView

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


def reasons_against(checkpoint: Checkpoint, state_view: StateView, versions: Sequence[int]) -> list[str]:
    """The reasons why rows of these versions may not be all that the engine knows, as sentences."""
    opaque = state_view.family.opaque
    reasons = [begun_notice(number) for number in versions if number in checkpoint.begun]
    if opaque:
        reasons.append(
            f"no schema file says the columns of its {' and its '.join(opaque)} (Spark 3.0 and earlier wrote none), so "
            f"stored bytes are shown; give {' and '.join(_OPTIONS[column] for column in opaque)} for columns"
        )
    return reasons
