"""A store of a directory once the records of an edit are in its changelog: the `StateAt` by which an edit is verified.

The rows of the directory and the records of the edit are replayed as one changelog, and shown as the directory's are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.engine import HoldsPast, Part, StateAt
from statestore.formats.kafka.changelog_at import OFFSET, ChangelogAt
from statestore.formats.kafka.changelogs.record_log import RecordLog
from statestore.formats.kafka.known_store import KnownStore
from statestore.formats.values.filters import Filter


@dataclass(frozen=True)
class EditedAt(StateAt):
    """A store as a restore from ``replay`` has it, in the columns of a directory."""

    replay: ChangelogAt

    @property
    def version(self) -> int:
        return self.replay.version

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([each for each in self.replay.schema if each.name != OFFSET])

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        return self.replay.parts(filters)

    def rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.replay.rows(part, columns, filters):
            yield batch.drop_columns([OFFSET])


@dataclass(frozen=True)
class EditedVersionsAt(EditedAt, HoldsPast):
    """A versioned store as a restore from ``replay`` has it."""

    def past_from(self) -> int | None:
        return self.replay.past_from()

    def past_rows(self, part: Any, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        for batch in self.replay.past_rows(part, columns, filters):
            yield batch.drop_columns([OFFSET])


def edited_at(store: KnownStore, logs: tuple[RecordLog, ...], *, hide_expired: bool) -> EditedAt:
    """Return a store as of the rows and records in ``logs``."""
    kind = EditedVersionsAt if store.kind.has_past else EditedAt
    return kind(ChangelogAt(logs, store.form, store.retention, hide_expired=hide_expired))
