"""A store as an edit of its changelog needs it: the records that it has now, and what is certain about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, joined_cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.changelogs.key_ranges import in_key_ranges
from statestore.formats.kafka.changelogs.record_history import neighbours
from statestore.formats.kafka.changelogs.record_log import END, RecordLog, keyed
from statestore.formats.kafka.changelogs.version_history import VersionedRules, versions
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.columns.record_encoders import ENCODED_FORMS, SESSIONS, WINDOWS, suffix_size
from statestore.formats.kafka.columns.store_form import StoreForm, StoreKind
from statestore.formats.kafka.columns.store_kinds import KINDS, logged_schema
from statestore.formats.kernels.arrays import Ints

CHANGELOG_SUFFIX = "-changelog"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
KIND, KEY_SERDE, VALUE_SERDE = "kind", "key serde", "value serde"
_OPTIONS = {KIND: "kind", KEY_SERDE: "keySerde", VALUE_SERDE: "valueSerde"}
_NOT_SHOWN = ("tombstone", "record")
_MOST_KEYS = 1 << 16
_OPERATORS = {
    "outer-join buffer": "the records that wait for a partner in a join",
    "subscription": "the subscriptions of a foreign-key join, which belong to rows of the tables that it joins",
    "grace buffer": "the records that wait for the end of a grace period",
    "suppression": "the updates that a suppression holds back",
}


@dataclass(frozen=True)
class EditedStore:
    """A store whose changelog gets records.

    ``where`` names the store in messages. ``guessed`` are those of KIND, KEY_SERDE and VALUE_SERDE that nobody has
    given. ``retention`` is in milliseconds. ``partitions`` is the number of partitions of the topic where that is
    certain. ``stream_times`` are what is known of stream time by partition besides the records. ``past``: the rows are
    the past versions of a versioned store (`statestore.formats.kafka.past_versions`), in place of the newest ones.
    """

    where: str
    state: str
    topic: str
    form: StoreForm
    guessed: frozenset[str]
    retention: int | None
    logs: tuple[RecordLog, ...]
    partitions: int | None = None
    stream_times: Mapping[int, int] = field(default_factory=dict)
    past: bool = False

    @property
    def kind(self) -> StoreKind:
        return KINDS[self.form.kind]

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that identify a row within a partition."""
        return self.kind.keys if self.kind.has_past and not self.past else self.kind.row_keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row, without those that only a reader adds."""
        return pa.schema([each for each in logged_schema(self.form) if each.name not in _NOT_SHOWN])

    def given(self, *whats: str) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED if one of KIND, KEY_SERDE and VALUE_SERDE is only guessed."""
        missing = [each for each in whats if each in self.guessed]
        if missing:
            options = " and ".join(_OPTIONS[each] for each in missing)
            raise UnsupportedError(
                ErrorCode.EDIT_UNSUPPORTED,
                f"{self.where} is read by guess: give {options} of the store, by options or in a stores file "
                "(statestore describe writes one)",
            )

    def refused(self, why: str) -> InvalidInputError:
        """The error for an edit from which the application would not go on, or not as the edit says."""
        return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{self.where}: {why}")


def check_editable(store: EditedStore) -> None:
    """Raise the error of a store that no record can change, or whose records here are not all that count.

    UnsupportedError EDIT_UNSUPPORTED for kinds and guesses, InvalidInputError EDIT_REFUSED otherwise.
    """
    kind = store.kind
    store.given(KIND)
    if kind.rows not in ENCODED_FORMS or kind.duplicates:
        what = _OPERATORS.get(kind.rows, "the records of one side of a join, which belong to those of the other side")
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED,
            f"{store.where} is of kind {kind.name}: {what}; edit the tables that the application builds from them, or "
            "put the corrected records into its input topics",
        )
    if not store.topic.endswith(CHANGELOG_SUFFIX):
        raise store.refused(
            f"topic {store.topic} is no changelog but an input of the application, which keeps its table in it "
            f"(topology.optimization), or a global store: put the corrected records into {store.topic} as any "
            "producer does, and every reader of the topic gets them"
        )
    if not _TOPIC.fullmatch(store.topic):
        raise store.refused(f"its changelog is topic {shown(store.topic, 80)}, which no topic of Kafka is called")
    for log in store.logs:
        _check_log(store, log)


def _check_log(store: EditedStore, log: RecordLog) -> None:
    found = log.findings
    where = f"partition {log.partition} of {store.topic}"
    if not found.partition_known:
        raise store.refused(
            "the records have no partition, so where a key lies is unknown; export them with partitions"
        )
    if found.remarks:
        raise store.refused(f"its records may not be those of the topic: {found.remarks[0]}")
    if found.open_transactions or found.unstable_records:
        raise store.refused(
            f"{where} has an open transaction: the application runs, or was killed; close it, or wait until the broker "
            "has ended the transaction (transaction.timeout.ms), and read again"
        )
    if found.tail is not None:
        raise store.refused(f"{where} ends amid a batch: the broker was writing; copy its log again")


def present_records(store: EditedStore, log: RecordLog) -> Iterator[pa.RecordBatch]:
    """Yield the records of the rows of now, or of past versions: key, value, headers and timestamp."""
    names = ["key", "value", "headers", "timestamp"]
    if store.kind.has_past:
        for batch in versions([log], VersionedRules(store.retention), END, expired=True):
            ends = batch.column("valid_to")
            chosen = batch.filter(ends.is_valid() if store.past else ends.is_null())
            yield chosen.rename_columns({"valid_from": "timestamp"}).select(names)
        return
    for found in in_key_ranges(partial(keyed, log), log.partition):
        valid = found.value.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero((neighbours(found).following < 0) & valid)
        chosen = pa.array(rows)
        headers = found.headers.take(chosen)
        if headers.null_count and store.kind.headers:
            raise store.refused("its records have no headers here, which are a part of its rows; export them, too")
        headers = headers.fill_null(pa.scalar([], HEADERS)) if headers.null_count else headers
        columns = [found.key.take(chosen), found.value.take(chosen), headers, pa.array(found.timestamp[rows])]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def segment_times(store: EditedStore, keys: Cells) -> Ints:
    """The times that decide about the segments of records: the start of a window, the end of a session."""
    times: Ints = keys.numbers(-12 if store.kind.rows in WINDOWS else -16, ">i8").astype(np.int64)
    return times


def stream_time(store: EditedStore, log: RecordLog) -> int:
    """The greatest time that the store has seen in a partition, by which it judges what has expired; -1: none."""
    greatest = store.stream_times.get(log.partition, -1)
    for records in keyed(log):
        segmented = store.kind.rows in (*WINDOWS, *SESSIONS)
        times = segment_times(store, records.key) if segmented else records.timestamp
        greatest = max(greatest, int(times.max(initial=-1)))
    return greatest


def last_times(store: EditedStore, log: RecordLog, keys: Collection[bytes]) -> dict[bytes, int]:
    """The greatest timestamp of the records of each of these keys, deletes too."""
    found: dict[bytes, int] = {}
    for rows in in_key_ranges(partial(keyed, log), log.partition, keys=keys):
        for key, time in zip(rows.key.to_pylist(), rows.timestamp.tolist(), strict=True):
            found[key] = max(found.get(key, -1), time)
    return found


def user_keys(store: EditedStore, log: RecordLog) -> Cells:
    """The user's keys of the first records of a partition."""
    parts, count = [], 0
    for records in keyed(log):
        parts.append(records.key.cut(0, suffix_size(store.kind)))
        count += len(records)
        if count >= _MOST_KEYS:
            break
    return joined_cells(parts)


def sample_of(store: EditedStore, *, is_key: bool = False) -> bytes | None:
    """The bytes of a user's key, or of a value, that is stored; None where there is none."""
    for log in store.logs:
        for records in present_records(store, log):
            if len(records):
                cells = cells_of(records.column("key" if is_key else "value"))
                return (cells.cut(0, suffix_size(store.kind)) if is_key else cells).cell(0)
    return None
