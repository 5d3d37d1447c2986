"""Segments and closure slices as JSON in which each file stands once (docs/log-format.md, "Files").

A closure file holds the closures of many segments, and its reference has a checksum for each of its regions. Log
entries of format 3 and log checkpoints therefore list the files, and segments and slices refer to a file by its place
in the list. Fields of a segment that have their default are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

from statestore.formats.segments.segment_meta import (
    ClosureSlice,
    FileRef,
    SegmentMeta,
    file_ref_from_json,
    segment_meta_from_json,
)

_FILES = ("file", "index")


def _defaults() -> dict[str, Any]:
    """Return the JSON of every field of a segment that may be absent."""
    found: dict[str, Any] = {"tombstone": False}
    found |= {f"{name}": 0 for name in ("last_closed", "split_closed", "late_added", "max_dropped")}
    for field in fields(SegmentMeta):
        if field.default is not MISSING:
            found[field.name] = list(field.default) if isinstance(field.default, tuple) else field.default
    return found


_DEFAULTS = _defaults()
_PLAIN = tuple(field.name for field in fields(SegmentMeta) if field.name not in (*_FILES, "blocks"))


class FileTable:
    """The list of files that is being written."""

    def __init__(self) -> None:
        self.json: list[list[Any]] = []
        self._numbers: dict[FileRef, int] = {}

    @property
    def has_page_tables(self) -> bool:
        """Return whether a file has a page table, which formats before them do not know."""
        return any(len(file) > 4 for file in self.json)

    def number(self, ref: FileRef) -> int:
        """Return the place of a file in the list, to which it is added if it is new."""
        number = self._numbers.get(ref)
        if number is None:
            number = self._numbers[ref] = len(self.json)
            tail = [ref.tail_checksum] if ref.tail_checksum else []
            self.json.append([ref.name, ref.bytes, ref.checksums, [list(pair) for pair in ref.metadata_ranges], *tail])
        return number

    def segment(self, meta: SegmentMeta) -> dict[str, Any]:
        """Return the JSON of a segment."""
        data: dict[str, Any] = {}
        for name in _PLAIN:
            value = getattr(meta, name)
            if isinstance(value, tuple):
                value = list(value)
            if name not in _DEFAULTS or value != _DEFAULTS[name]:
                data[name] = value
        if meta.blocks:
            data["blocks"] = [list(vars(block).values()) for block in meta.blocks]
        data["file"] = self.number(meta.file)
        if meta.index is not None:
            data["index"] = self.number(meta.index)
        return data

    def closure(self, piece: ClosureSlice) -> list[Any]:
        """Return the JSON of a closure slice."""
        return [self.number(piece.file), piece.segment, piece.version, piece.offset, piece.count, piece.min_valid_to]


def files_from_json(data: Any) -> list[FileRef]:
    """Return the files of a list. Raises ValueError or TypeError for anything else."""
    return [_file_of_list(*file) for file in data]


def _file_of_list(name: Any, length: Any, checksums: Any, ranges: Any, *tail: Any) -> FileRef:
    tail_checksum = "".join(tail) if tail else ""
    if len(tail) > 1 or bool(tail) != bool(tail_checksum):
        raise ValueError(f"the end of {name} has the checksums {tail!r}")
    fields = {"name": name, "bytes": length, "checksums": checksums, "metadata_ranges": ranges}
    return file_ref_from_json({**fields, "tail_checksum": tail_checksum})


def segments_from_json(data: Iterable[dict[str, Any]], files: list[FileRef]) -> tuple[SegmentMeta, ...]:
    """Return segments whose files are in the list ``files``. Raises LookupError, ValueError or TypeError for anything
    else.
    """
    return tuple(_segment(fields, files) for fields in data)


def closures_from_json(data: Iterable[list[Any]], files: list[FileRef]) -> tuple[ClosureSlice, ...]:
    """Return closure slices whose files are in the list ``files``; errors are those of `segments_from_json`."""
    return tuple(
        ClosureSlice(_file(files, number), segment, version, offset, count, end)
        for number, segment, version, offset, count, end in data
    )


def _segment(data: dict[str, Any], files: list[FileRef]) -> SegmentMeta:
    whole = {**_DEFAULTS, **data}
    for name in _FILES:
        if whole[name] is not None:
            whole[name] = vars(_file(files, whole[name]))
    return segment_meta_from_json(whole)


def _file(files: list[FileRef], number: Any) -> FileRef:
    if type(number) is not int or not 0 <= number < len(files):
        raise ValueError(f"file {number!r} of {len(files)}")
    return files[number]
