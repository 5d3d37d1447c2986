"""Metadata that a commit records about the immutable files it adds: names, lengths, checksums and statistics.

The values go into the log as JSON; no file is opened here. Times are epoch microseconds. ``OPEN`` stands for the end of
a row that is still valid.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

OPEN = 2**63 - 1

Role = Literal["delta", "open", "closed", "late", "belief"]


@dataclass(frozen=True)
class FileRef:
    """An immutable file: its name below the store, its length, and one xxh3-64 checksum per region.

    ``checksums`` is the concatenation of 16 hex digits for each region of ``REGION_BYTES`` (1 MiB; the last may be
    shorter). ``metadata_ranges`` are the (offset, length) pairs of the Arrow framing: schema message, the metadata
    of each batch, and the footer; they are verified before Arrow parses them.
    """

    name: str
    bytes: int
    checksums: str
    metadata_ranges: tuple[tuple[int, int], ...] = ()


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

    @property
    def name(self) -> str:
        return self.file.name


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
    )


def segment_meta_from_json(data: dict[str, Any]) -> SegmentMeta:
    fields = dict(data)
    fields["file"] = file_ref_from_json(data["file"])
    fields["index"] = None if data["index"] is None else file_ref_from_json(data["index"])
    fields["key_groups"] = tuple(data["key_groups"])
    for bound in ("key_min", "key_max"):
        fields[bound] = None if data[bound] is None else tuple(data[bound])
    return SegmentMeta(**fields)


def closure_slice_from_json(data: dict[str, Any]) -> ClosureSlice:
    return ClosureSlice(**{**data, "file": file_ref_from_json(data["file"])})


def to_json(value: FileRef | SegmentMeta | ClosureSlice) -> dict[str, Any]:
    """The JSON form that the ``*_from_json`` functions read back."""
    return asdict(value)
