"""Logs with the records of an edit behind their own: what a topic holds once the records were written to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from statestore.formats.kafka.changelogs.file_records import held, record_files
from statestore.formats.kafka.changelogs.record_log import LogFindings, RecordLog
from statestore.formats.kafka.changelogs.records import Records


@dataclass(frozen=True)
class OverlaidLog:
    """The records of ``base`` and then those of ``more``, under the offsets that follow; a `RecordLog`.

    Where the base has no offsets, those behind it have none either.
    """

    base: RecordLog
    more: RecordLog

    @property
    def partition(self) -> int:
        return self.base.partition

    @property
    def findings(self) -> LogFindings:
        found, more = self.base.findings, self.more.findings.records or 0
        records = None if found.records is None else found.records + more
        return replace(found, records=records, next_offset=found.next_offset + more)

    def read(self) -> Iterator[Records]:
        last: Records | None = None
        for records in self.base.read():
            yield records
            last = records
        number = self.base.findings.next_offset
        for records in self.more.read():
            at = np.arange(number, number + len(records), dtype=np.int64)
            number += len(records)
            yield replace(records, **_places(last, at, self.base.findings.missing_offsets))


def _places(last: Records | None, at: np.ndarray[Any, np.dtype[np.int64]], missing: int | None) -> dict[str, Any]:
    """The offsets of records behind the last one of a log, and what is missing below them."""
    if last is None or last.offset is None:
        return {"offset": None, "missing": None}
    before = missing if missing is not None else None if last.missing is None else int(last.missing[-1])
    return {"offset": at, "missing": None if before is None else np.full(len(at), before, np.int64)}


@dataclass(frozen=True)
class EmptyLog:
    """The log of a partition of which a source has no record; a `RecordLog`."""

    partition: int

    @property
    def findings(self) -> LogFindings:
        return LogFindings(self.partition, None, 0, 0, None, markers_known=False)

    def read(self) -> Iterator[Records]:
        return iter(())


def overlaid(logs: Sequence[RecordLog], path: str) -> tuple[RecordLog, ...]:
    """The logs of a topic with the records of the file at ``path`` behind them."""
    more = {log.partition: log for log in held(record_files(path))}
    own = {log.partition: log for log in logs}
    bases = {number: own.get(number, EmptyLog(number)) for number in sorted({*own, *more})}
    return tuple(OverlaidLog(base, more[at]) if at in more else base for at, base in bases.items())
