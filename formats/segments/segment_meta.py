"""Metadata that a commit records about the immutable files it adds: names, lengths, checksums and statistics.

The values go into the log as JSON; no file is opened here. Times are epoch microseconds. ``OPEN`` stands for the end of
a row that is still valid.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from itertools import accumulate
from typing import Any, Literal

from statestore.formats.kernels.arrays import OPEN as OPEN

Role = Literal["delta", "open", "closed", "late", "belief"]


@dataclass(frozen=True)
class FileRef:
    """An immutable file: its name below the store, its length, and one xxh3-64 checksum per region.

    ``checksums`` is the concatenation of 16 hex digits for each region of ``REGION_BYTES`` (1 MiB; the last may be
    shorter). ``metadata_ranges`` are the (offset, length) pairs of the Arrow framing: schema message, the metadata
    of each batch, and the footer; they are verified before Arrow parses them. ``tail_checksum`` is that of the last of
    them, in 16 hex digits, if it has a page table (`page_table`), else empty.
    """

    name: str
    bytes: int
    checksums: str
    metadata_ranges: tuple[tuple[int, int], ...] = ()
    tail_checksum: str = ""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a segment, sorted by ``valid_from``, and the statistics by which a read judges them.

    Each statistic has the meaning that it has in `SegmentMeta`. ``batch_rows``: the rows of each of its record batches
    but the last, which has the rest; 0 only where the whole file is taken for one block.
    """

    rows: int
    min_valid_from: int
    max_valid_from: int
    min_valid_to: int
    max_valid_to: int
    min_added: int
    last_closed: int
    split_closed: int
    late_added: int
    batch_rows: int = 0


@dataclass(frozen=True)
class SegmentMeta:
    """One segment file and the statistics that decide whether a read may skip it or pass it uncut.

    Stored ends are upper bounds: closures that are not folded yet can only shorten them.
    """

    file: FileRef
    role: Role
    tombstone: bool
    rows: int
    min_valid_from: int
    max_valid_from: int
    min_valid_to: int
    max_valid_to: int
    min_added: int
    max_added: int
    last_closed: int  # greatest `_closed` of rows with `_added` < `_closed` that are not split; 0 if none
    split_closed: int  # greatest `_closed` of split rows; 0 if none
    late_added: int  # greatest `_added` of rows that were late when written; 0 if none
    max_dropped: int  # belief segments: greatest `_dropped`; else 0
    key_groups: tuple[int, int] = (0, 0)  # first and last key group that may occur
    key_min: tuple[Any, ...] | None = None  # per key column, JSON-able (int, str, bool) or None where unknown
    key_max: tuple[Any, ...] | None = None
    index: FileRef | None = None
    open_rows: int | None = None  # rows whose stored end is ``OPEN``; None where the commit does not record it
    blocks: tuple[Block, ...] = ()  # in the order of their rows; none if the whole file is one block

    @property
    def name(self) -> str:
        return self.file.name

    def spans(self) -> tuple[tuple[int, Block], ...]:
        """Return (first row, block) of each block; the rows of a file without blocks are one block."""
        if self.blocks:
            return tuple(zip(accumulate((b.rows for b in self.blocks), initial=0), self.blocks, strict=False))
        whole = Block(
            self.rows,
            self.min_valid_from,
            self.max_valid_from,
            self.min_valid_to,
            self.max_valid_to,
            self.min_added,
            self.last_closed,
            self.split_closed,
            self.late_added,
        )
        return ((0, whole),)


@dataclass(frozen=True)
class ClosureSlice:
    """Rows [offset, offset+count) of a closure file: new ends for rows of one segment, given by one commit."""

    file: FileRef
    segment: str
    version: int
    offset: int
    count: int
    min_valid_to: int


def file_ref_from_json(data: dict[str, Any]) -> FileRef:
    return FileRef(
        name=str(data["name"]),
        bytes=int(data["bytes"]),
        checksums=str(data["checksums"]),
        metadata_ranges=tuple((int(a), int(b)) for a, b in data["metadata_ranges"]),
        tail_checksum=str(data.get("tail_checksum", "")),
    )


def segment_meta_from_json(data: dict[str, Any]) -> SegmentMeta:
    fields = dict(data)
    fields["file"] = file_ref_from_json(data["file"])
    fields["index"] = None if data["index"] is None else file_ref_from_json(data["index"])
    fields["key_groups"] = tuple(data["key_groups"])
    for bound in ("key_min", "key_max"):
        fields[bound] = None if data[bound] is None else tuple(data[bound])
    if "blocks" in data:
        fields["blocks"] = tuple(Block(*block) for block in data["blocks"])
    return SegmentMeta(**fields)


def closure_slice_from_json(data: dict[str, Any]) -> ClosureSlice:
    return ClosureSlice(**{**data, "file": file_ref_from_json(data["file"])})


def to_json(value: FileRef | SegmentMeta | ClosureSlice) -> dict[str, Any]:
    """The JSON form that the ``*_from_json`` functions read back."""
    fields = asdict(value)
    for file in (fields, fields.get("file"), fields.get("index")):
        if file is not None and not file.get("tail_checksum", "file"):
            del file["tail_checksum"]
    if isinstance(value, SegmentMeta):
        fields["blocks"] = [astuple(block) for block in value.blocks]
        for name, absent in (("blocks", []), ("open_rows", None)):  # of a file that an older release wrote
            if fields[name] == absent:
                del fields[name]
    return fields
