"""Requests for the files that opening a checkpoint will need, made together: four waits in place of a dozen and more.

No decision is made here: a file that is fetched in vain, or not fetched, only takes time.
"""

from __future__ import annotations

from statestore.formats.places.folder import Folder

_OF_OPERATORS = ((), ("_metadata",), ("_metadata", "v2"), ("_stateSchema",))


def fetch_ahead(root: Folder, batch_id: int | None) -> None:
    """List and read what `open_checkpoint` needs into the memory of ``root``. Does nothing for local checkpoints."""
    if root.is_local:
        return
    commits, offsets, state = root.at("commits"), root.at("offsets"), root.at("state")
    root.fetch([commits, offsets, state], [(root, "metadata")])
    batch = batch_id if batch_id is not None else max(commits.numbered(), default=0)
    wanted = [(folder, batch) for folder in (commits, offsets) if str(batch) in folder.files()]
    operators = [state.at(name) for name in state.folders() if name.isdecimal()]
    root.fetch([each.at(*names) for each in operators for names in _OF_OPERATORS], wanted)
    partitions = [first for each in operators if (first := _first_partition(each)) is not None]
    schemas = [
        folder.at(name) for each in operators for folder in [each.at("_stateSchema")] for name in folder.folders()
    ]
    metadata = [(each.at("_metadata"), "metadata") for each in operators if "metadata" in each.at("_metadata").files()]
    versions = [(v2, v2.numbered()[-1]) for each in operators for v2 in [each.at("_metadata", "v2")] if v2.numbered()]
    root.fetch(schemas or partitions, [*metadata, *versions])
    files: list[tuple[Folder, str | int]] = [(folder, name) for folder in schemas for name in folder.files()]
    stores = [] if schemas else [each for first in partitions for each in _stores(first)]
    root.fetch(stores, files or [(each.at("_metadata"), "schema") for each in stores])


def _first_partition(operator: Folder) -> Folder | None:
    numbers = [int(name) for name in operator.folders() if name.isdecimal()]
    return operator.at(min(numbers)) if numbers else None


def _stores(partition: Folder) -> list[Folder]:
    """The folders of a partition with a schema each: its own for one store, else one for each store."""
    names = partition.folders()
    return [partition] if "_metadata" in names else [partition.at(name) for name in names]
