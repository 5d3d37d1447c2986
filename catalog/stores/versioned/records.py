"""Results of a versioned store: a version of a key, and the outcome of a put."""

from __future__ import annotations

from typing import Any, NamedTuple

from statestore.catalog.reads.points.point_lookup import Found
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_codec import ValueCodec
from statestore.formats.values.times import from_us


class Record(NamedTuple):
    """One version: ``value`` (a bare scalar for one value column, else a dict), interval in epoch milliseconds."""

    value: Any
    valid_from: int
    valid_to: int | None


def record_of(found: Found, values: ValueCodec) -> Record:
    assert found.values is not None
    end = None if found.end == OPEN else from_us(found.end)
    return Record(values.to_user(found.values), from_us(found.start), end)


class PutResult(NamedTuple):
    """``accepted`` is False for a put older than the retention; ``valid_to`` is None for the key's newest version."""

    accepted: bool
    valid_to: int | None
