"""The past versions of a versioned store as a state of their own, ``<store>.past``, which no list has.

A row is a version that another one or a delete has ended, with the times between which it was valid. The state of the
store itself has the newest versions. An edit of the past changes values, or lets versions go, under the times that they
have (`statestore.formats.kafka.edits.edited_records`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.engine import HoldsPast, Part, StateAt, StateInfo
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.values.filters import Filter

SUFFIX = ".past"
VALID_TO = "valid_to"
_TIME = pa.field(VALID_TO, pa.timestamp("us", tz="UTC"))


def store_of_past(name: str, states: Collection[str]) -> str:
    """Return the store whose past versions a state has; for any other state its own name."""
    base = name.removesuffix(SUFFIX)
    return base if base != name and name not in states and base in states else name


def past_info(info: StateInfo, name: str, where: str) -> StateInfo:
    """Return the state of the past versions of a store. Raises NotFoundError TABLE_NOT_FOUND for another kind."""
    if "valid_from" not in info.columns.names:
        raise _no_past(name, where)
    placed = tuple(each for each in info.row_key if each in info.placement)
    row_key = (*info.key, "valid_from", *placed)
    return replace(
        info,
        name=name,
        columns=pa.schema([*info.columns, _TIME]),
        row_key=row_key,
        lookups=(info.key, row_key),
        has_past=False,
    )


@dataclass(frozen=True)
class PastVersionsAt(StateAt):
    """The past versions of a store."""

    of: HoldsPast

    @property
    def version(self) -> int:
        return self.of.version

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.of.schema, _TIME])

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        return self.of.parts(filters)

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.of.past_rows(part, columns, filters):
            ended = batch.filter(pc.is_valid(batch.column(VALID_TO)))
            yield ended.select(self.schema.names)


def past_versions(at: StateAt, name: str, where: str) -> PastVersionsAt:
    """Return the past versions of a store. Raises NotFoundError TABLE_NOT_FOUND for one of another kind."""
    if not isinstance(at, HoldsPast) or "valid_from" not in at.schema.names:
        raise _no_past(name, where)
    return PastVersionsAt(at)


def _no_past(name: str, where: str) -> NotFoundError:
    return NotFoundError(ErrorCode.TABLE_NOT_FOUND, f"{where} has no {name}: its store is not versioned")
