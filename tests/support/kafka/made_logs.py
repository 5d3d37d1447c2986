"""A log of one partition held in memory, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.changelogs.record_log import LogFindings, LogMoment
from statestore.formats.kafka.changelogs.records import RECORDS, Records, records_of
from support.kafka.log_files import Logged
from support.kafka.real_applications import application, data


@dataclass(frozen=True)
class MadeLog:
    """A `RecordLog`. Offsets that it does not have are missing."""

    logged: Sequence[Logged]
    partition: int = 0
    piece: int = 7
    next_offset: int | None = None
    offsets: bool = True

    @property
    def findings(self) -> LogFindings:
        after = self.logged[-1].offset + 1 if self.logged else 0
        after = after if self.next_offset is None else self.next_offset
        missing = after - len(self.logged) if self.offsets else None
        first = self.logged[0].offset if self.logged else None
        return LogFindings(self.partition, first, after, len(self.logged), missing)

    def read(self) -> Iterator[Records]:
        return iter(self._pieces)

    @cached_property
    def _pieces(self) -> list[Records]:
        return list(self._made())

    def _made(self) -> Iterator[Records]:
        for begin in range(0, len(self.logged), self.piece):
            rows = [each.row(self.partition) for each in self.logged[begin : begin + self.piece]]
            if not self.offsets:
                rows = [{**row, "offset": None} for row in rows]
            batch = pa.RecordBatch.from_pylist(rows, RECORDS)
            missing = None
            if self.offsets:
                missing = batch.column("offset").to_numpy() - np.arange(begin, begin + len(rows))
            yield records_of(batch, self.partition, missing)


def random_records(seed: int, *, gaps: bool = False, keys: int = 5, count: int = 60) -> list[Logged]:
    """Records of few keys with late times, deletes, and with ``gaps`` also missing offsets and null keys."""
    chance = random.Random(seed)
    found, offset, now = [], 0, 1000
    for _ in range(chance.randrange(count)):
        offset += chance.randrange(3) if gaps and chance.random() < 0.3 else 0
        now += chance.choice([0, 0, 1, 5, 40])
        late = chance.choice([0, 0, 0, 1, 10, 90])
        key = None if gaps and chance.random() < 0.05 else b"key-%d" % chance.randrange(keys)
        value = None if chance.random() < 0.25 else b"value-%d" % chance.randrange(1000)
        headers = (("h", chance.choice([None, b"", b"x"])),) if chance.random() < 0.3 else ()
        found.append(Logged(offset, now - late, key, value, headers))
        offset += 1
    return found


def prefix(records: Sequence[Logged], moment: LogMoment, partition: int = 0) -> list[Logged]:
    """The records up to a moment: stream time only grows, so a late record does not end a prefix, nor reopen one."""
    found, stream_time = [], -1
    for record in records:
        stream_time = max(stream_time, record.timestamp)
        if moment.time is not None and stream_time > moment.time:
            break
        if record.offset > moment.offsets.get(partition, 1 << 62):
            break
        found.append(record)
    return found


@cache
def changelog_log(name: str, topic: str, partition: int) -> MadeLog:
    """The changelog of a store of a real application."""
    records = [
        Logged(
            row["offset"],
            row["timestamp"],
            data(row["key"]),
            data(row["value"]),
            tuple((header, data(value)) for header, value in row["headers"]),
        )
        for row in application(name).changelogs[topic]
        if row["partition"] == partition
    ]
    return MadeLog(records, partition)
