"""Rebuilding a store with another kind, retention or segment interval by replaying its changes (KIP-889, upgrade).

Local files are never converted in place, as in Kafka Streams: the new store is made beside the old one, which stays
until the new one is committed. In the replay the time of a version is its state time. Records that are too old for the
new retention at their turn are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.log.store_spec import KEYED
from statestore.catalog.reads.table import Table
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError

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
    """Put all writes that the table's commits recorded into ``target``, in their order, and commit."""
    for batch in writes_of(table):
        target.put_all(batch)
    target.commit()


def writes_of(table: VersionedTable) -> Iterator[pa.Table]:
    """Yield key, value, ``timestamp`` and ``_change_type`` of every recorded write that is kept."""
    names = [n for n in (*table.spec.key_names, *table.spec.value_names) if n not in ADDED]
    log_state, first = table.files().log_state(), 0
    if log_state.horizon is not None:
        first = log_state.horizon.version + 1
        yield _history(table, names, log_state.horizon.version)
    if first > log_state.version:
        return
    columns = [*names, "valid_from", "_change_type"]
    for batch in Table(table).changes(start_version=first, columns=columns):
        kept = batch.filter(pc.not_equal(batch.column("_change_type"), "update_preimage"))
        yield pa.Table.from_batches([kept]).rename_columns([*names, "timestamp", "_change_type"])


def _history(table: VersionedTable, names: list[str], version: int) -> pa.Table:
    """Return the belief of the oldest kept version: every value at its start, and a delete at its end."""
    rows = Table(table).history(version=version, columns=[*names, "valid_from", "valid_to"]).read_all()
    ended = rows.filter(pc.is_valid(rows["valid_to"]))
    parts = []
    for part, time, change in ((ended, "valid_to", "delete"), (rows, "valid_from", "insert")):
        kept = part.select([*names, time]).rename_columns([*names, "timestamp"])
        parts.append(kept.append_column("_change_type", pa.array([change] * part.num_rows, pa.string())))
    # At one time the delete comes first, so that a value that follows at once stays.
    return pa.concat_tables(parts).sort_by([("timestamp", "ascending"), ("_change_type", "ascending")])
