"""Fetching of data files before they are read, so that an object store is asked once for all that a read needs.

Files of a local store are mapped, and nothing is done for them. A file of an object store is fetched region by region
when its bytes are verified, which would be one request after the other. Small ones are fetched whole by the storage.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta

Ranges = Sequence[tuple[int, int]] | None
BlockRows = tuple[SegmentWithClosures, int, int]
"""The rows [start, stop) of a segment, which are those of one block."""

TIMES = ("valid_from", "valid_to")


def fetch_segments(files: SegmentFiles, segments: Iterable[SegmentWithClosures]) -> None:
    """Fetch whole segments and their closures, for reads of all their rows."""
    if not files.is_local:
        found = list(segments)
        wanted: list[tuple[FileRef, Ranges]] = [(segment.meta.file, None) for segment in found]
        files.fetch_ahead(wanted + _closures(found))


def fetch_searched(
    files: SegmentFiles, searched: Iterable[BlockRows], closed: Iterable[SegmentWithClosures], moment: int
) -> None:
    """Fetch what a plan looks into: the starts of rows of blocks in whose middle ``moment`` lies, and closures.

    Short batches have their starts in pieces all over the block, so all of it is fetched that starts by the moment,
    which a read needs in any case. Where nothing says what that is, the whole block is fetched.
    """
    if files.is_local:
        return
    wanted: list[tuple[FileRef, Ranges]] = []
    narrow: dict[str, tuple[SegmentMeta, list[tuple[int, int]]]] = {}
    for segment, start, stop in searched:
        meta = segment.meta
        if has_short_batches(meta) and not meta.file.tail_checksum:
            wanted.append((meta.file, [*framing(meta), *batch_spans(files, meta, [(start, stop)])]))
        else:
            wanted.append((meta.file, framing(meta)))
            narrow.setdefault(meta.name, (meta, []))[1].append((start, stop))
    files.fetch_ahead(wanted + _closures(closed))
    found: list[tuple[FileRef, Ranges]] = []
    for meta, rows in narrow.values():
        file = files.open_segment(meta)
        if has_short_batches(meta):
            found.append((meta.file, batch_spans(files, meta, [_started(file, moment, *each) for each in rows])))
        else:
            found.append((meta.file, [each for rs in rows for each in file.ranges(("valid_from",), *rs)]))
    files.fetch_ahead(found)


def _started(file: Segment, moment: int, start: int, stop: int) -> tuple[int, int]:
    """Return the rows of a block up to the end of the last batch that begins with a row that starts by a moment."""
    times, starts = file.batch_times, file.batch_starts
    if times is None:
        return start, stop
    first, last = bisect_right(starts, start) - 1, bisect_left(starts, stop)
    end = first + 1 + int(times[first + 1 : last].searchsorted(moment, side="right"))
    return start, starts[end] if end < last else stop


def fetch_rows(
    files: SegmentFiles, parts: Iterable[tuple[SegmentWithClosures, int, int]], columns: Collection[str] | None = None
) -> None:
    """Fetch the batches with the rows [start, stop) of segments, and the closures of the segments.

    ``columns``: the stored columns that are read; None for all. Batches of uncompressed files are so long that their
    columns are worth to be fetched by themselves, after the file's framing, which says where they lie.
    """
    if files.is_local:
        return
    whole: dict[str, list[tuple[int, int]]] = {}
    segments: dict[str, SegmentWithClosures] = {}
    narrow: list[tuple[SegmentMeta, int, int]] = []
    for segment, start, stop in parts:
        meta = segments.setdefault(segment.meta.name, segment).meta
        whole.setdefault(meta.name, [])
        if columns is None or has_short_batches(meta):
            whole[meta.name].append((start, stop))
        else:
            narrow.append((meta, start, stop))
    metas = [(segments[name].meta, rows) for name, rows in whole.items()]
    # Where the batches lie is in the file itself, unless the commit says it, or all of them are needed.
    files.fetch_ahead(
        [(meta.file, framing(meta)) for meta, rows in metas if _places_are_in_file(meta) and not _are_all(meta, rows)]
    )
    wanted: list[tuple[FileRef, Ranges]] = [
        (meta.file, [*framing(meta), *batch_spans(files, meta, rows)]) for meta, rows in metas
    ]
    files.fetch_ahead(wanted + _closures(segments.values()))
    if narrow:
        names = [*dict.fromkeys([*(columns or ()), *TIMES])]
        files.fetch_ahead(
            [(meta.file, files.open_segment(meta).ranges(names, start, stop)) for meta, start, stop in narrow]
        )


def fetch_files(files: SegmentFiles, refs: Iterable[FileRef | None]) -> None:
    """Fetch whole files."""
    if not files.is_local:
        files.fetch_ahead([(ref, None) for ref in refs if ref is not None])


def _closures(segments: Iterable[SegmentWithClosures]) -> list[tuple[FileRef, Ranges]]:
    refs = {piece.file.name: piece.file for segment in segments for piece in segment.closures}
    return [(ref, None) for ref in refs.values()]


def has_short_batches(meta: SegmentMeta) -> bool:
    """Return whether columns lie in pieces all over the file."""
    return _places_are_in_file(meta) or any(block.batch_rows < block.rows for block in meta.blocks)


def framing(meta: SegmentMeta) -> list[tuple[int, int]]:
    """Return where the bytes lie without which the segment, or a long batch of it, cannot be opened."""
    ranges = meta.file.metadata_ranges
    return [ranges[0], ranges[-1]] if ranges and has_short_batches(meta) else list(ranges)


def batch_spans(files: SegmentFiles, meta: SegmentMeta, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (offset, length) of the batches with the rows of each part [start, stop).

    Where the batches lie is read from the file if the commit does not say it.
    """
    if not parts or _are_all(meta, parts):
        return [(0, meta.file.bytes)] if parts else []
    ends = _batch_ends(meta)
    if _places_are_in_file(meta):
        begins = files.open_segment(meta).batch_offsets
    else:
        begins = [offset for offset, _ in meta.file.metadata_ranges[1:]]  # of each batch, and of the footer
    if len(begins) != len(ends) + 1 or not ends:
        return [(0, meta.file.bytes)]  # not as a commit describes segments: opening the file reports it
    last = len(ends) - 1
    spans = [(min(bisect_right(ends, start), last), min(bisect_left(ends, stop), last)) for start, stop in parts]
    return [(begins[first], begins[end + 1] - begins[first]) for first, end in spans]


def _places_are_in_file(meta: SegmentMeta) -> bool:
    return bool(meta.blocks and meta.file.tail_checksum) and len(meta.file.metadata_ranges) == 2


def _are_all(meta: SegmentMeta, parts: Sequence[tuple[int, int]]) -> bool:
    """Return whether parts, which do not overlap, have all rows of a segment."""
    return sum(stop - start for start, stop in parts) >= meta.rows


def _batch_ends(meta: SegmentMeta) -> list[int]:
    """Return the row behind each batch of a segment."""
    if not meta.blocks:
        batches = len(meta.file.metadata_ranges) - 2
        return [meta.rows] if batches == 1 else []
    counts = [
        min(block.batch_rows, block.rows - first)
        for block in meta.blocks
        for first in range(0, block.rows, block.batch_rows)
    ]
    return list(accumulate(counts))
