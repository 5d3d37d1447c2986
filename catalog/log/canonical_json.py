"""JSON with a checksum: its canonical form, which every release hashes, and its layout on one line
(docs/log-format.md, "Log entries").
"""

from __future__ import annotations

import json
from typing import Any

import xxhash

_HEAD, _MIDDLE = b'{"checksum":"', b'","commit":'
_BODY = len(_HEAD) + 16 + len(_MIDDLE)  # where the commit begins


def sealed_json(commit: dict[str, Any]) -> bytes:
    """Return a commit in canonical form behind its checksum."""
    return _sealed(_canonical(commit))


def is_canonical(data: bytes) -> bool:
    """Return whether the bytes are what `sealed_json` returns for a commit; they can then be hashed as they are."""
    return data == _sealed(data[_BODY:-1])


def json_checksum(commit: dict[str, Any]) -> str:
    """Return the checksum of a commit, whatever the layout in which it was read."""
    return xxhash.xxh3_64_hexdigest(_canonical(commit))


def _sealed(canonical: bytes) -> bytes:
    return b"%b%b%b%b}" % (_HEAD, xxhash.xxh3_64_hexdigest(canonical).encode(), _MIDDLE, canonical)


def _canonical(commit: dict[str, Any]) -> bytes:
    return json.dumps(commit, sort_keys=True, separators=(",", ":")).encode()
