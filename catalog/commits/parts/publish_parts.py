"""Publishing of the parts of a write as one commit.

A segment of a part gets its name in the store by a hard link, or has it already (`StagingFolder`). One of which rows
changed is written again before, one at a time. The parts are joined again for each attempt, against the newest version:
a commit that came in between costs time and changes no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import INDEX_MIN_ROWS, NewFiles, RowBlock
from statestore.catalog.commits.parts.join_parts import Joined, JoinedSegment, join_parts
from statestore.catalog.commits.parts.staged_parts import OpenedPart, StagedPart, stage_segment
from statestore.catalog.commits.parts.staging_folder import SEGMENTS, StagingFolder
from statestore.catalog.commits.publish_commit import (
    MAX_ATTEMPTS,
    after_publish,
    is_committed,
    new_entry,
    publish,
    remove_files,
    too_many_conflicts,
)
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import LocalStorage, Storage, local_root
from statestore.catalog.log.store_spec import replaced
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError, StorageError
from statestore.formats.places.object_cache import in_parallel
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta


@dataclass(frozen=True)
class Judged:
    """The rule of retention applied to parts. All times are epoch microseconds.

    ``cuts`` has for each part the time before which its records are too late. ``stream_time`` is the greatest time of
    an accepted record; None if no record is accepted.
    """

    cuts: tuple[int, ...]
    stream_time: int | None


Judge = Callable[[LogState, Sequence[StagedPart]], Judged]
"""Decides about the parts of a commit after a log state."""


def commit_parts(
    files: SegmentFiles,
    base: LogState,
    parts: Sequence[StagedPart],
    judge: Judge,
    transaction: tuple[str, int] | None,
) -> LogState:
    """Commit the records of all parts, in the order of the parts, and return the log state with the commit.

    ``judge`` decides for each attempt which records are too late. The errors and the treatment of a transaction that
    the log already has are those of `commit_change`. Raises NotFoundError STORE_REPLACED for parts of another store.
    """
    for part in parts:
        if part.store != files.spec.store_id:
            raise replaced(f"store {files.spec.name!r}", part.store)
    parts = sorted(parts, key=lambda part: part.order)
    log_state = base
    files.log.check_identity()
    files.log.settle()
    with writer_of(files).publishing, claim(files.storage):  # before the log is read, see `commit_change`
        for _ in range(MAX_ATTEMPTS):
            log_state, _lease = files.log.leased(log_state, commits=True)
            if is_committed(log_state, transaction):
                return _without_leftovers(files.storage, log_state, parts)
            judged = judge(log_state, parts)
            committed = _attempt(files, log_state, parts, judged, transaction)
            if committed is not None:
                return _without_leftovers(files.storage, committed, parts)
    raise too_many_conflicts(files)


def _without_leftovers(storage: Storage, log_state: LogState, parts: Sequence[StagedPart]) -> LogState:
    """Remove what the write left in an object store beside the files that the commit names."""
    named = file_names(log_state) if local_root(storage) is None else set()
    for folder in {part.folder for part in parts} if local_root(storage) is None else ():
        known = [name for part in parts if part.folder == folder for name in part.names]
        StagingFolder(storage, folder).remove_unnamed(named, known)
    return log_state


def _attempt(
    files: SegmentFiles,
    log_state: LogState,
    parts: Sequence[StagedPart],
    judged: Judged,
    transaction: tuple[str, int] | None,
) -> LogState | None:
    """Return the log state with the parts as the next version; None if another commit took the version."""
    storage = files.storage
    with claim(storage) as claimed:
        age = max((time.time() - part.begun for part in parts), default=0.0)
        new = NewFiles(claimed, begun=time.monotonic() - age)
        try:
            opened = [OpenedPart(storage, files.spec, part) for part in parts]
            joined = join_parts(files, log_state, opened, judged.cuts, new)
            rows = _add_segments(files, log_state, joined)
            new.add_closures([(name, log_state.version + 1, row, end) for name, row, end in joined.closures])
            new.write(storage)
            entry = new_entry(
                log_state,
                "write",
                new,
                transaction=transaction,
                stream_time=judged.stream_time,
                rows=rows[False],
                tombstones=rows[True],
                closed=sum(piece.count for piece in new.closures),
                dropped=joined.refused,
            )
            published = publish(storage, new, entry)
        except CommitUnknownError:
            raise
        except StateStoreError as error:  # any other exception (such as an interrupt) leaves the outcome unknown
            remove_files(storage, new)
            gone = _gone(storage, parts) if error.code == ErrorCode.FILE_NOT_FOUND else None
            raise (gone or error) from error.__cause__
    return after_publish(storage, log_state, entry) if published else None


def _gone(storage: Storage, parts: Sequence[StagedPart]) -> ConflictError | None:
    """Return the error for staged files that are no longer there; None if all are."""
    for part in parts:
        if not all(in_parallel(storage.exists, part.names)):
            return StagingFolder(storage, part.folder).gone()
    return None


def _add_segments(files: SegmentFiles, log_state: LogState, joined: Joined) -> list[int]:
    """Name the segments of parts in the commit; return the numbers of its value rows and tombstones."""
    rows = list(joined.rows)
    links: dict[str, str] = {}
    for segment in joined.segments:
        meta = segment.staged.meta
        named = meta if segment.is_unchanged else _written_anew(files, log_state, segment)
        if named is not None:
            rows[meta.tombstone] += named.rows
            is_linked = segment.folder.is_linked
            added = _linked(joined.new, named, links) if is_linked else _in_place(joined.new, named, named is meta)
            joined.new.segments.append(added)
    if joined.segments:
        _in_the_store(joined.segments[0].folder, links, [*joined.new.written, *joined.new.kept])
    return rows


def _in_the_store(folder: StagingFolder, links: Mapping[str, str], names: Sequence[str]) -> None:
    """Give staged files their names in the store. In an object store they have them, and are looked for.

    Raises ConflictError STAGED_FILE_MISSING for a file that vacuum has removed.
    """
    storage = folder.storage
    if not isinstance(storage, LocalStorage):
        if not all(in_parallel(storage.exists, names)):
            raise folder.gone()
        return
    try:
        storage.link_many({name: f"{storage.root}/{staged}" for name, staged in links.items()})
    except StorageError as error:
        missing = [name for name in links.values() if not (storage.root / name).exists()]
        raise (StagingFolder(storage, missing[0].rpartition("/")[0]).gone() if missing else error) from error


def _linked(new: NewFiles, meta: SegmentMeta, links: dict[str, str]) -> SegmentMeta:
    """Return a staged segment under the name that its file gets."""
    index = meta.index
    assert index is not None
    file = replace(meta.file, name=new.new_name(".arrow"))
    links[file.name] = meta.name
    new.written[file.name] = file.bytes
    if meta.rows < INDEX_MIN_ROWS:
        return replace(meta, file=file, index=None)
    named = replace(index, name=new.new_name(".index.arrow"))
    links[named.name] = index.name
    new.written[named.name] = named.bytes
    return replace(meta, file=file, index=named)


def _in_place(new: NewFiles, meta: SegmentMeta, is_kept: bool) -> SegmentMeta:
    """Return a segment that has its name in the store; ``is_kept``: another attempt needs it, too."""
    index = meta.index
    if index is not None and not index.name.startswith(SEGMENTS):  # of few rows, made for the join
        index = None
    for ref in (meta.file, index):
        if ref is not None:
            (new.kept if is_kept else new.written)[ref.name] = ref.bytes
    return replace(meta, index=index)


def _written_anew(files: SegmentFiles, log_state: LogState, segment: JoinedSegment) -> SegmentMeta | None:
    """Write a segment of a part again, with the ends that its rows got and without dropped rows; return it."""
    staged, version = segment.staged, log_state.version + 1
    start = staged.file.int64("valid_from")
    ends = staged.file.int64("valid_to") if segment.ends is None else np.asarray(segment.ends)
    is_kept = (ends > start) & (start >= segment.cut)
    kept = np.flatnonzero(is_kept)
    if not len(kept):
        return None
    spec = files.spec
    names = spec.key_names if staged.meta.tombstone else (*spec.key_names, *spec.value_names)
    columns = [staged.file.column_array(name) for name in names]
    closed = np.where(ends == OPEN, 0, version)
    count = len(ends)
    block = RowBlock(columns, start, ends, np.full(count, version), closed, np.zeros(count, bool))
    hashes, rows = staged.hashes, staged.rows
    if len(kept) < count:
        block = block.take(kept)
        chosen = is_kept[rows]
        hashes, rows = hashes[chosen], (np.cumsum(is_kept) - 1)[rows[chosen]].astype(rows.dtype)
    return stage_segment(spec, segment.folder, log_state, block, staged.meta.tombstone, hashes, rows)
