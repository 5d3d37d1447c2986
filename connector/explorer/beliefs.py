"""Beliefs about a key: its history as each commit that wrote or deleted it recorded it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.lives import LIFE_ROWS, life_of
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import Query, StateTable

BELIEFS = 24
BELIEF_ROWS = 400
VERSION = "_commit_version"


def beliefs_of(table: StateTable, query: Query, limits: Limits) -> pa.Table:
    """Return what the newest BELIEFS commits that wrote or deleted the key said about it, each as of its own version.

    A row is an interval of state time in the belief of ``__belief``, a version: ``__from`` and ``__to`` as in
    `life_of`, and the columns as texts. Of each belief the newest BELIEF_ROWS // BELIEFS intervals are returned. The
    metadata lists the versions as ``beliefs``, also one that has no interval, and the number of all such commits that
    are kept as ``commits``. ``all`` is empty where the table's changes cannot be asked: then these are the commits that
    wrote what is now known, and those that only deleted something are missing.
    """
    first, last = table.kept_versions()
    found = _writers(table, query, limits)
    now = life_of(table, query, LIFE_ROWS if found is None else 1, limits)
    writers = found if found is not None else {int(each) for each in now["__version"].to_pylist() if each is not None}
    kept = sorted(each for each in writers if first <= each <= last)
    chosen = kept[-BELIEFS:]
    empty = now.replace_schema_metadata(None).slice(0, 0).append_column("__belief", pa.array([], pa.float64()))
    parts = [empty]
    for version in chosen:
        limits.check()
        rows = life_of(table, replace(query, version=version), BELIEF_ROWS // BELIEFS, limits)
        belief = pa.array(np.full(rows.num_rows, float(version)))
        parts.append(rows.replace_schema_metadata(None).append_column("__belief", belief))
    timed = now.schema.metadata[b"timed"].decode()
    facts = {
        "timed": timed,
        "beliefs": ",".join(map(str, chosen)),
        "commits": str(len(kept)),
        "all": "" if found is None else "1",
    }
    return pa.concat_tables(parts, promote_options="default").replace_schema_metadata(facts)


def _writers(table: StateTable, query: Query, limits: Limits) -> set[int] | None:
    """Return the commits that wrote or deleted the key; None where the table's changes cannot be asked."""
    named = table.writers(query)
    if named is not None:
        return set(named)
    first, last = table.kept_versions()
    history = Query(mode="history", columns=(VERSION,), filters=query.filters, version=query.version)
    known = _versions(table, history, limits)
    if first == last:
        return known
    changes = Query(mode="changes", columns=(VERSION,), filters=query.filters, end_version=query.version)
    try:
        return known | _versions(table, changes, limits)
    except StateStoreError:
        limits.check()  # a limit that was met is no answer
        return None


def _versions(table: StateTable, query: Query, limits: Limits) -> set[int]:
    found: set[int] = set()
    for batch in limits.batches(table, query):
        found.update(pc.unique(batch.column(0).drop_null()).to_pylist())
    return found
