"""Findings about files of a snapshot that no state has, and about its folder. Reads do without, a restore may not."""

from __future__ import annotations

from collections.abc import Iterator

from statestore.formats.engine import FileFinding
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError
from statestore.formats.flink.snapshot.handles import EmptyHandle, InPlace, StreamHandle
from statestore.formats.flink.snapshot.job_snapshots import SnapshotRef, is_there
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot, SnapshotMetadata
from statestore.formats.flink.snapshot.snapshot_files import MISSING, SnapshotFiles, handles_of, needed_files
from statestore.formats.flink.snapshot.snapshot_names import CHECKPOINT, METADATA
from statestore.formats.flink.snapshot_states import OpenedSnapshot

_MOST_SHOWN = 5


def folder_findings(opened: OpenedSnapshot) -> Iterator[FileFinding]:
    """Yield what is wrong with a snapshot beside the files of its states, which a verification of these looks at."""
    ref, files, metadata = opened.ref, opened.files, opened.metadata
    with_states = {each.identity[0] for each in opened.states().values()}
    number = metadata.checkpoint_id
    match = CHECKPOINT.fullmatch(ref.name)
    if match and int(match[1]) != number:
        text = (
            f"{files.path}: is that of checkpoint {number}, and its folder is called {ref.name}: the folder was "
            "renamed, or the file is from another one"
        )
        yield FileFinding(files.path, text, damaged=False, version=number)
    seen: set[StreamHandle] = set()
    for operator in metadata.operators:
        for what, handle in _beside_states(operator, all_of_them=operator.id not in with_states):
            if isinstance(handle, InPlace | EmptyHandle) or handle in seen:
                continue
            seen.add(handle)
            try:
                files.locate(handle)
            except (NotFoundError, CorruptError) as error:
                name = operator.uid or operator.name or operator.id
                text = f"{error.message}; it has {what} of operator {name}, without which Flink restores no job"
                yield FileFinding(files.path, text, version=number)
    yield from _unnamed(ref, files, metadata)


def lost_files(opened: OpenedSnapshot | None) -> str:
    """Say in brackets which files of a snapshot are not there though its ``_metadata`` is; "" where it is not."""
    try:
        if opened is None or not is_there(opened.ref):
            return ""
        needed = (each for operator in opened.metadata.operators for each in needed_files(opened.files, operator))
        names = [each.name for each in needed if each.role == MISSING]
    except InvalidInputError:
        return ""
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f" (without {', '.join(names[:_MOST_SHOWN])}{more})" if names else ""


def _beside_states(operator: OperatorSnapshot, *, all_of_them: bool) -> Iterator[tuple[str, StreamHandle]]:
    if operator.coordinator is not None:
        yield "the state of the coordinator", operator.coordinator
    for subtask in operator.subtasks:
        for handle in subtask.in_flight:
            yield "records in flight", handle
    if all_of_them:
        for role, handle in handles_of(operator):
            yield role, handle


def _unnamed(ref: SnapshotRef, files: SnapshotFiles, metadata: SnapshotMetadata) -> Iterator[FileFinding]:
    """The files in a snapshot's folder that its ``_metadata`` does not name."""
    named = {METADATA}
    for operator in metadata.operators:
        beside = (handle for _, handle in _beside_states(operator, all_of_them=True))
        for handle in beside:
            if not isinstance(handle, InPlace | EmptyHandle):
                try:
                    named.add(files.locate(handle).name)
                except (NotFoundError, CorruptError):
                    continue
    spare = sorted(set(ref.folder.fresh().files()) - named)
    if spare:
        more = f" and {len(spare) - _MOST_SHOWN} more" if len(spare) > _MOST_SHOWN else ""
        text = (
            f"{files.path}: does not name {', '.join(spare[:_MOST_SHOWN])}{more} beside it: left over, or the file is "
            "from another snapshot"
        )
        yield FileFinding(files.path, text, damaged=False, version=metadata.checkpoint_id)
