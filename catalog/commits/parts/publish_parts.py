"""Publishing of the parts of a write as one commit.

A segment of a part gets its name in the store by a hard link. One of which rows changed is written again before, one
at a time. The parts are joined again for each attempt, against the newest version: a commit that came in between costs
time and changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import INDEX_MIN_ROWS, NewFiles, RowBlock
from statestore.catalog.commits.parts.join_parts import Joined, JoinedSegment, join_parts
from statestore.catalog.commits.parts.staged_parts import OpenedPart, StagedPart, stage_segment, staging_gone
from statestore.catalog.commits.publish_commit import (
    MAX_ATTEMPTS,
    after_publish,
    is_committed,
    new_entry,
    publish,
    remove_files,
    too_many_conflicts,
)
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.log.store_identity import replaced
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.errors import CommitUnknownError, StateStoreError, StorageError
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta


@dataclass(frozen=True)
class Judged:
    """The rule of retention applied to parts. All times are epoch microseconds.

    ``cuts`` has for each part the time before which its records are too late. ``stream_time`` is the greatest time of
    an accepted record; None if no record is accepted.
    """

    cuts: tuple[int, ...]
    stream_time: int | None


def commit_parts(
    files: SegmentFiles,
    base: LogState,
    parts: Sequence[StagedPart],
    judge: Callable[[LogState, Sequence[StagedPart]], Judged],
    transaction: tuple[str, int] | None,
) -> LogState:
    """Commit the records of all parts, in the order of the parts, and return the log state with the commit.

    ``judge`` decides for each attempt which records are too late. The errors and the treatment of a transaction that
    the log already has are those of `commit_change`. Raises NotFoundError STORE_REPLACED for parts of another store.
    """
    storage = files.storage
    assert isinstance(storage, LocalStorage)
    for part in parts:
        if part.store != files.spec.store_id:
            raise replaced(f"store {files.spec.name!r}", part.store)
    parts = sorted(parts, key=lambda part: part.order)
    log_state = base
    files.check_identity()
    files.settle()
    with files.publishing:
        for _ in range(MAX_ATTEMPTS):
            log_state, _lease = files.leased(log_state)
            if is_committed(log_state, transaction):
                return log_state
            judged = judge(log_state, parts)
            committed = _attempt(files, storage, log_state, parts, judged, transaction)
            if committed is not None:
                return committed
    raise too_many_conflicts(files)


def _attempt(
    files: SegmentFiles,
    storage: LocalStorage,
    log_state: LogState,
    parts: Sequence[StagedPart],
    judged: Judged,
    transaction: tuple[str, int] | None,
) -> LogState | None:
    """Return the log state with the parts as the next version; None if another commit took the version."""
    with claim(storage) as claimed:
        new = NewFiles(claimed)
        try:
            opened = [OpenedPart(files.spec, part) for part in parts]
            joined = join_parts(files, log_state, opened, judged.cuts, new)
            rows = _add_segments(files, storage, log_state, joined)
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
        except StateStoreError:  # any other exception (such as an interrupt) leaves the outcome unknown
            remove_files(storage, new)
            raise
    return after_publish(storage, log_state, entry) if published else None


def _add_segments(files: SegmentFiles, storage: LocalStorage, log_state: LogState, joined: Joined) -> list[int]:
    """Name the segments of parts in the commit; return the numbers of its value rows and tombstones."""
    rows = list(joined.rows)
    links: dict[str, str] = {}
    for segment in joined.segments:
        meta = segment.staged.meta
        named = meta if segment.is_unchanged else _written_anew(files, log_state, segment)
        if named is not None:
            rows[meta.tombstone] += named.rows
            joined.new.segments.append(_linked(joined.new, segment, named, links))
    try:
        storage.link_many(links)
    except StorageError as error:
        missing = [path for path in links.values() if not Path(path).exists()]
        raise (staging_gone(str(Path(missing[0]).parent)) if missing else error) from error
    return rows


def _linked(new: NewFiles, segment: JoinedSegment, meta: SegmentMeta, links: dict[str, str]) -> SegmentMeta:
    """Return a staged segment under the name that its file gets."""
    index = meta.index
    assert index is not None
    file = replace(meta.file, name=new.new_name(".arrow"))
    links[file.name] = segment.path(meta.name)
    new.written[file.name] = file.bytes
    if meta.rows < INDEX_MIN_ROWS:
        return replace(meta, file=file, index=None)
    named = replace(index, name=new.new_name(".index.arrow"))
    links[named.name] = segment.path(index.name)
    new.written[named.name] = named.bytes
    return replace(meta, file=file, index=named)


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
