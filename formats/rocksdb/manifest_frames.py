"""The frames of a MANIFEST that must be whole, checked without its checksums and without the compiled loops.

RocksDB takes a record that breaks off, and a record of type 0 without bytes, for the end of what was written before a
crash: it then opens an older state of the database, and says nothing. So a damaged length loses rows. A checkpoint's
MANIFEST has its exact size, and nothing in it breaks off. RocksDB itself checks the checksums of the records.
"""

from __future__ import annotations

_PAGE, _HEADER, _NUMBERED_HEADER = 32768, 7, 11
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def broken_frame(data: bytes) -> str | None:
    """The first fault in the frames of a whole MANIFEST, None if there is none. Source: RocksDB's ``log::Reader``."""
    at, within = 0, False
    while at < len(data):
        left = min(_PAGE - at % _PAGE, len(data) - at)
        if left < _HEADER and left == _PAGE - at % _PAGE:  # too little for a record: the rest of a page
            if any(data[at : at + left]):
                return f"byte {at}: found bytes behind the last record of a page"
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6] if left >= _HEADER else 0
        header = _HEADER if kind <= _LAST else _NUMBERED_HEADER
        if not 1 <= kind <= 2 * _LAST or header + size > left:
            return f"byte {at}: found a record of type {kind} and {size} bytes, expected a whole one"
        kind = (kind - 1) % _LAST + 1
        if (kind in (_WHOLE, _FIRST)) == within:
            return f"byte {at}: found part {kind} of a record in the wrong place"
        at += header + size
        within = kind in (_FIRST, _MIDDLE)
    return "the last record is not whole" if within or not data else None
