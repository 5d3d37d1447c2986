"""The files of a partition that make up a state version: a base and the changes of each version after it.

The base is the newest snapshot (HDFS-backed provider) or zip (RocksDB) that is not newer than the version; without one
the state is built from nothing. Each later version must have its delta or changelog. In checkpoint format 2 a version's
files carry a uid. The commit names the uid of the wanted version, and its changelog those of the versions before it,
back to a zip.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, DataFiles
from statestore.formats.spark.checkpoint.state_errors import missing

Lineage = Callable[[DataFile], dict[int, str]]
"""The uids of the versions before a changelog, by version."""


@dataclass(frozen=True)
class LoadPlan:
    """The files of a version; ``base`` is None where the state starts empty."""

    base: DataFile | None
    changes: tuple[DataFile, ...]


def plan_load(
    files: DataFiles,
    version: int,
    where: str,
    *,
    base_version: int | None = None,
    without: Collection[str] = (),
) -> LoadPlan:
    """The files of a version without uids; ``base_version`` requires a base, 0 is the empty one.

    The files named in ``without`` are no bases: a snapshot before them and the changes since then make up the version.

    Raises NotFoundError SPARK_STATE_NOT_FOUND, naming ``where``.
    """
    bases, changes = files.bases, files.changes
    if without:
        bases = {version: file for version, file in bases.items() if file.name not in without}
    start = base_version
    if start is None:
        start = max((base for base in bases if base <= version), default=0)
    elif start > version or (start and start not in bases):
        raise missing(
            f"snapshot {start} of {where}", f"expected 0 or one of {sorted(b for b in bases if b <= version)}"
        )
    # The loop ends at the first missing file, because a file name may contain any number as its version.
    absent = next((number for number in range(start + 1, version + 1) if number not in changes), None)
    if absent is not None:
        raise missing(f"state version {version} of {where}", f"no file of version {absent}")
    return LoadPlan(bases.get(start), tuple(changes[number] for number in range(start + 1, version + 1)))


def plan_lineage(
    files: Sequence[DataFile],
    version: int,
    uid: str,
    where: str,
    lineage: Lineage,
    *,
    base_version: int | None = None,
    without: Collection[str] = (),
) -> LoadPlan:
    """The files of a version of checkpoint format 2. Parameters and errors are those of `plan_load`."""
    named = {(file.kind, file.version, file.uid): file for file in files if file.name not in without}
    uids = {version: uid}
    start = version if ("zip", version, uid) in named else 0
    if base_version is not None or not start:
        # The lineage of a changelog ends at the snapshot before it. If that is not there, older lineages go on.
        for least in (base_version, 0):
            uids = {version: uid} | _uids_before(named, version, uid, lineage, least)
            start = max((v for v, u in uids.items() if v <= version and ("zip", v, u) in named), default=0)
            if start or base_version is not None:
                break
    if base_version is not None:
        if base_version and ("zip", base_version, uids.get(base_version)) not in named:
            raise missing(f"snapshot {base_version} of {where}", f"not in the lineage of version {version}")
        start = base_version
    changes: list[DataFile] = []
    for number in range(start + 1, version + 1):
        file = named.get(("changelog", number, uids.get(number)))
        if file is None:
            raise missing(
                f"state version {version} of {where}", f"no file of version {number} with uid {uids.get(number)}"
            )
        changes.append(file)
    return LoadPlan(named.get(("zip", start, uids.get(start))), tuple(changes))


def _uids_before(
    named: Mapping[tuple[str, int, str | None], DataFile], version: int, uid: str, lineage: Lineage, least: int | None
) -> dict[int, str]:
    """The uids of earlier versions back to a snapshot, or back to version ``least`` if that is given.

    A lineage goes back to the snapshot before it. The changelog of that snapshot's version has the lineage to the one
    before.
    """
    uids: dict[int, str] = {}
    while (file := named.get(("changelog", version, uid))) is not None:
        before = {number: name for number, name in lineage(file).items() if number < version}
        uids |= before
        if not before or least is None or least >= min(before):
            break
        version, uid = min(before.items())
    return uids


def readable_versions(files: DataFiles) -> list[int]:
    """The versions without uids whose files are all present, ascending; without version 0, which is always empty."""
    versions: list[int] = []
    for version in sorted({*files.bases, *files.changes}):
        before = versions[-1] if versions else 0  # the empty state
        if version in files.bases or before == version - 1:
            versions.append(version)
    return versions
