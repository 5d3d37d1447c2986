"""Results of a versioned store: a version of a key, and the outcome of a put."""

from __future__ import annotations

from typing import Any, NamedTuple

from statestore.catalog.reads.lookup.point_lookup import Found
from statestore.catalog.reads.shown import html_facts, html_page
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_codec import ValueCodec
from statestore.formats.values.times import format_time, from_us


class Record(NamedTuple):
    """One version: ``value`` (a bare scalar for one value column, else a dict), interval in epoch milliseconds."""

    value: Any
    valid_from: int
    valid_to: int | None

    def __repr__(self) -> str:
        ends = (f"{name}={time}{_as_text(time)}" for name, time in zip(self._fields[1:], self[1:], strict=True))
        return f"Record(value={self.value!r}, {', '.join(ends)})"

    def _repr_html_(self) -> str:
        facts = [
            ("value", str(self.value)),
            ("valid_from", _moment(self.valid_from)),
            ("valid_to", _moment(self.valid_to)),
        ]
        return html_page("Record", "", html_facts(facts))


def _as_text(time: object) -> str:
    return f" ({_moment(time)})" if type(time) is int else ""


def _moment(time: object) -> str:
    return format_time(time * 1000) if type(time) is int else str(time)


def record_of(found: Found, values: ValueCodec) -> Record:
    assert found.values is not None
    end = None if found.end == OPEN else from_us(found.end)
    return Record(values.to_user(found.values), from_us(found.start), end)


class PutResult(NamedTuple):
    """``accepted`` is False for a put older than the retention; ``valid_to`` is None for the key's newest version."""

    accepted: bool
    valid_to: int | None

    def __repr__(self) -> str:
        return f"PutResult(accepted={self.accepted}, valid_to={self.valid_to}{_as_text(self.valid_to)})"

    def _repr_html_(self) -> str:
        return html_page(
            "PutResult", "", html_facts([("accepted", str(self.accepted)), ("valid_to", _moment(self.valid_to))])
        )
