"""Rebuilding a store with another kind, retention or segment interval by replaying its writes (KIP-889, upgrade).

Local files are never converted in place, as in Kafka Streams: the new store is made beside the old one, which stays
until the new one is committed. In the replay the time of a version is its state time. Records that are too old for the
new retention at their turn are refused. A commit is one turn, with its records in the order of their times.

Two versioned stores have the same timelines: every value and every delete that the newest version believes, even a
delete that ended nothing, because a later put may find it. In all other cases the writes are replayed in the order of
commits, so that a store without versions keeps the last one of each key.

An expiry leaves nothing of moments before its horizon, so rows that ended by then are not replayed. Between versioned
stores, the rows valid at the horizon are those that the newest version believes, and are never too old: what came
before cannot be known write by write. In the order of commits, what the commits up to the horizon's version left is
replayed first, in the order of times. The new store has the same horizon, so that it refuses the same moments and puts,
except for a key_value store, whose times are new.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.commits.publish_commit import Change, commit_change
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.store_spec import KEYED, StoreSpec
from statestore.catalog.reads.changes import plan_changes, read_changes
from statestore.catalog.reads.table import Table
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.upkeep.expiry import run_expiry
from statestore.catalog.upkeep.timeline_writes import OfKeys, refused_writes, timeline_writes
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query

ALIKE = (
    frozenset(("versioned", "key_value")),
    frozenset(("window",)),
    frozenset(("join_window",)),
    frozenset(("session",)),
)
ADDED = ("window_end", "sequence")  # key columns that the new store adds itself


def check_rebuild(name: str, old: str, new: str) -> None:
    """Raise UnsupportedError REBUILD_KIND if rows of one kind cannot become rows of the other."""
    if old == KEYED:
        raise UnsupportedError(
            ErrorCode.REBUILD_KIND,
            f"store {name!r} is a keyed store, which has no changes to replay; read its states, and "
            "put them into a new store",
        )
    if not any({old, new} <= group for group in ALIKE):
        raise UnsupportedError(
            ErrorCode.REBUILD_KIND,
            f"store {name!r} is of kind {old!r} and cannot become {new!r}: its rows have other keys; versioned and "
            "key_value stores can become each other, others keep their kind",
        )


def replay(table: VersionedTable, target: Any) -> None:
    """Put the writes that the table's commits recorded into ``target``, and commit."""
    for batch in writes_for(table, target.spec):
        target.put_all(batch)
    target.commit()
    take_over(table, target, refused_for(table, target.spec))


def refused_for(table: VersionedTable, spec: StoreSpec, mine: OfKeys | None = None) -> int:
    """Return how many writes of chosen keys, or of all, a store ``spec`` refuses that are not among its `writes_for`.

    They were too old for it when they were committed.
    """
    return refused_writes(table, _retention(spec), mine) if is_timeline(table.spec, spec) else 0


def take_over(table: VersionedTable, target: Any, refused: int) -> None:
    """Give ``target``, which has the writes, what decides about later puts: the stream time and the horizon.

    ``refused`` is the number of writes that were not among them. The greatest time may be that of a value that was
    taken back, or that an expiry removed, which no row shows.
    """
    source, files, spec, log_state = table.files().log_state(), target._files, target.spec, target._log_state
    if spec.kind == "key_value":
        return
    if refused or source.stream_time_us > log_state.stream_time_us:
        keys, values = ([pa.array([], field.type) for field in schema] for schema in (spec.key, spec.value))
        nothing = Records(keys, values, np.empty(0, np.int64), np.empty(0, bool))
        stream_time = max(source.stream_time_us, log_state.stream_time_us)
        change = Change("write", nothing, stream_time, refused, expiring=spec.windowing)
        log_state = commit_change(files, log_state, lambda base: change)
    if source.horizon is not None:
        log_state = run_expiry(files, log_state, source.horizon.time)
    target._advance(log_state)


def writes_for(table: VersionedTable, spec: StoreSpec, mine: OfKeys | None = None) -> Iterator[pa.Table]:
    """Yield key, value, ``timestamp`` and ``_change_type`` of the writes for a store ``spec``, of chosen keys or all.

    They have the order in which the store takes them.
    """
    if is_timeline(table.spec, spec):
        yield from timeline_writes(table, _retention(spec), mine)
    else:
        yield from _in_order_of_commits(table, mine)


def is_timeline(old: StoreSpec, new: StoreSpec) -> bool:
    """Return whether the writes are those of the newest belief, by time, and none is too late for the new store."""
    return old.kind == new.kind == "versioned"


def _retention(spec: StoreSpec) -> int | None:
    """Return the retention of a versioned store in microseconds."""
    return None if spec.history_retention is None else spec.history_retention * 1000


def _in_order_of_commits(table: VersionedTable, mine: OfKeys | None) -> Iterator[pa.Table]:
    names = [n for n in (*table.spec.key_names, *table.spec.value_names) if n not in ADDED]
    files = table.files()
    log_state, _lease = files.leased()
    first = 0
    if log_state.horizon is not None:
        first = log_state.horizon.version + 1
        yield _history(table, names, log_state.horizon.version, mine)
    if first > log_state.version:
        return
    query = Query(mode="changes", columns=(*names, "valid_from", "_change_type"), start_version=first)
    schema = table.schema(query)
    for split in plan_changes(files, log_state, query):
        for batch in read_changes(files, replace(split, whole=True), schema, ()):
            kept = _of_keys(batch.filter(pc.not_equal(batch.column("_change_type"), "update_preimage")), table, mine)
            if kept.num_rows:
                yield pa.Table.from_batches([kept]).rename_columns([*names, "timestamp", "_change_type"])


def _of_keys(batch: pa.RecordBatch, table: VersionedTable, mine: OfKeys | None) -> pa.RecordBatch:
    """Return the rows of chosen keys."""
    if mine is None or not batch.num_rows:
        return batch
    return batch.filter(pa.array(mine([batch.column(name) for name in table.spec.key_names])))


def _history(table: VersionedTable, names: list[str], version: int, mine: OfKeys | None) -> pa.Table:
    """Return the belief of the oldest kept version: every value at its start, and a delete at its end."""
    reader = Table(table).history(version=version, columns=[*names, "valid_from", "valid_to"])
    rows = pa.Table.from_batches((_of_keys(batch, table, mine) for batch in reader), reader.schema)
    ended = rows.filter(pc.is_valid(rows["valid_to"]))
    parts = []
    for part, time, change in ((ended, "valid_to", "delete"), (rows, "valid_from", "insert")):
        kept = part.select([*names, time]).rename_columns([*names, "timestamp"])
        parts.append(kept.append_column("_change_type", pa.array([change] * part.num_rows, pa.string())))
    # At one time the delete comes first, so that a value that follows at once stays.
    return pa.concat_tables(parts).sort_by([("timestamp", "ascending"), ("_change_type", "ascending")])
