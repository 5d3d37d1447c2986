"""Checks of log entries and checkpoints: every name, number and length is checked before it is used.

The same rules hold for writing and for reading, so that nothing is published that could not be opened again. All
functions raise a ValueError that names the unexpected value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from statestore.formats.segments.regions import CHECKSUM_DIGITS, REGION_BYTES
from statestore.formats.segments.segment_columns import BATCH_ROWS
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef, Role, SegmentMeta

INT64 = range(-(2**63), 2**63)
COUNT = range(2**63)
VERSION = range(10**18)  # fits the 20 digits of a name and int64
DATA_FILE = re.compile(r"segments/[0-9A-Za-z_-][0-9A-Za-z._-]*")
PLAIN_FILE = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*")
CHECKSUMS = re.compile(f"(?:[0-9a-f]{{{CHECKSUM_DIGITS}}})*")
ROLES = get_args(Role)

_TIMES = ("min_valid_from", "max_valid_from", "min_valid_to", "max_valid_to")
_BLOCK_VERSIONS = ("min_added", "last_closed", "split_closed", "late_added")
_VERSIONS = ("min_added", "max_added", "last_closed", "split_closed", "late_added", "max_dropped")


def check_int(value: Any, allowed: range, what: str) -> None:
    """Raise ValueError unless ``value`` is an integer in ``allowed``; True, 1.0 and "1" are not integers."""
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{what} is {value!r}, expected an integer from {allowed.start} to {allowed.stop - 1}")


def check_ints(record: Any, names: Iterable[str], allowed: range, of: str = "") -> None:
    """Raise ValueError unless these fields of a record are integers in ``allowed``, as `check_int` does."""
    for name in names:
        value = getattr(record, name)
        if type(value) is not int or value not in allowed:
            check_int(value, allowed, name + of)


def check_text(value: Any, what: str) -> None:
    """Raise ValueError unless ``value`` is text; half a surrogate pair, which only JSON can hold, is not text."""
    if type(value) is not str:
        raise ValueError(f"{what} is {value!r}, expected text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is {value!r}, which is not valid Unicode") from None


def check_choice(value: Any, choices: Iterable[Any], what: str) -> None:
    if value not in choices:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(map(repr, choices))}")


def check_data_name(name: Any, what: str) -> None:
    """Raise ValueError unless ``name`` is a plain name below segments/, which cannot lead out of the store."""
    if type(name) is not str or not DATA_FILE.fullmatch(name):
        raise ValueError(f"{what} is {name!r}, expected a plain file name below segments/")


def check_changelog(name: Any, end: Any) -> None:
    if type(name) is not str or not PLAIN_FILE.fullmatch(name):
        raise ValueError(f"changelog is {name!r}, expected a plain file name")
    check_int(end, COUNT, f"end of changelog {name}")


def check_segment(meta: SegmentMeta) -> None:
    _check_file(meta.file)
    if meta.index is not None:
        _check_file(meta.index)
    check_choice(meta.role, ROLES, "role of a segment")
    check_choice(meta.tombstone, (True, False), "tombstone of a segment")
    check_int(meta.rows, range(1, COUNT.stop), "rows of a segment")
    check_ints(meta, _TIMES, INT64)
    check_ints(meta, _VERSIONS, VERSION)
    if meta.open_rows is not None:
        check_int(meta.open_rows, range(meta.rows + 1), "open rows of a segment")
    _check_blocks(meta)
    _check_pair(meta.key_groups, COUNT, "key_groups")
    for bounds in (meta.key_min, meta.key_max):
        for value in bounds or ():
            if type(value) is str:
                check_text(value, "bound of a key")
            elif not (value is None or type(value) in (int, bool)):
                raise ValueError(f"bound of a key is {value!r}, expected an integer, text, boolean or null")


def _check_blocks(meta: SegmentMeta) -> None:
    for block in meta.blocks:
        check_int(block.rows, range(1, meta.rows + 1), "rows of a block")
        check_int(block.batch_rows, range(1, BATCH_ROWS + 1), "rows of a record batch")
        check_ints(block, _TIMES, INT64, " of a block")
        check_ints(block, _BLOCK_VERSIONS, VERSION, " of a block")
    if meta.blocks and sum(block.rows for block in meta.blocks) != meta.rows:
        raise ValueError(f"the blocks of {meta.name} do not have its {meta.rows} rows")


def check_closures(pieces: Sequence[ClosureSlice]) -> None:
    """Raise ValueError unless all slices are right; files and segments that many of them share are checked once."""
    if not pieces:
        return
    for ref in {id(piece.file): piece.file for piece in pieces}.values():
        _check_file(ref)
    for segment in {piece.segment for piece in pieces}:
        check_data_name(segment, "segment of a closure list")
    for name, allowed in (("version", VERSION), ("offset", COUNT), ("count", COUNT), ("min_valid_to", INT64)):
        values = [getattr(piece, name) for piece in pieces]
        if {*map(type, values)} == {int} and min(values) in allowed and max(values) in allowed:
            continue
        for value in values:
            check_int(value, allowed, f"{name} of a closure list")


def _check_file(ref: FileRef) -> None:
    check_data_name(ref.name, "file name")
    check_file_ref(ref)


def check_file_ref(ref: FileRef) -> None:
    """Raise ValueError unless the length, checksums and metadata ranges of a file agree; any name is accepted."""
    check_int(ref.bytes, COUNT, f"length of {ref.name}")
    regions = -(-ref.bytes // REGION_BYTES)
    if len(ref.checksums) != CHECKSUM_DIGITS * regions or not CHECKSUMS.fullmatch(ref.checksums):
        raise ValueError(f"checksums of {ref.name} are not {CHECKSUM_DIGITS} hex digits for each of {regions} regions")
    for offset, length in ref.metadata_ranges:
        if offset < 0 or length < 0 or offset + length > ref.bytes:
            raise ValueError(f"metadata of {ref.name} at {offset}, {length} bytes, but the file has {ref.bytes}")
    if ref.tail_checksum and (len(ref.tail_checksum) != CHECKSUM_DIGITS or not CHECKSUMS.fullmatch(ref.tail_checksum)):
        raise ValueError(f"the checksum of the end of {ref.name} is not {CHECKSUM_DIGITS} hex digits")
    if ref.tail_checksum:
        (_, first), *others = ref.metadata_ranges or ((0, ref.bytes),)
        if not others or not first <= others[-1][0] == ref.bytes - others[-1][1] or not others[-1][0]:
            raise ValueError(f"the metadata ranges of {ref.name} do not say where its page table is")


def _check_pair(pair: Any, allowed: range, what: str) -> None:
    if type(pair) is not tuple or len(pair) != 2:
        raise ValueError(f"{what} is {pair!r}, expected two integers")
    for value in pair:
        check_int(value, allowed, what)
