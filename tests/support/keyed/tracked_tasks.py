"""Tracking without Spark: rows are divided among tasks by key group, and tasks run one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_log import shared_log
from statestore.connector.keyed.batch import _begun, _committed
from statestore.connector.keyed.keyed_job import KeyedJob, Work, make_job
from statestore.connector.keyed.task import Answer, from_json, read_emitted, run_partition
from statestore.connector.tracked.track import _work, parsed_state_type
from statestore.connector.tracked.tracked_states import STATE
from statestore.connector.tracked.work import InitialStates
from statestore.formats.places.locations import parse_location
from statestore.formats.values.key_groups import key_groups
from statestore.formats.values.types import make_schema
from statestore.tracked import StateSpec

GROUPS = 8
Row = tuple[Any, ...]
Kinds: TypeAlias = "str | Mapping[str, str]"
"""One type, or columns."""


class Tracking:
    """A new store "t" with a tracked state. Rows have the columns of the key, then those of the value."""

    def __init__(
        self,
        root: str | Path,
        spec: StateSpec,
        *,
        key: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
        state: Kinds = "bigint",
        output: Kinds = "bigint",
    ) -> None:
        key, values = key or {"word": "string"}, {"n": "bigint"} if values is None else values
        self.place, self.spec, self.state = parse_location(root).at("t"), spec, parsed_state_type(columns(state))
        self.store: KeyedStore = statestore.connect(root).create_store("t", "keyed", key=key, key_groups=GROUPS)
        self.key = make_schema(key, "key")
        self.rows = pa.schema([*self.key, *(make_schema(values, "value") if values else ())])
        self.output = columns(output)
        self.time = 0

    def job(self, work: Work, rows: pa.Schema) -> KeyedJob:
        return make_job(self.store, self.place, self.key.names, rows, self.output, work, "incremental")

    def batch(self, rows: Sequence[Row], at: int | None = None, *, tasks: int = 1, keeps: bool = False) -> list[Any]:
        """Run a batch at ``at`` seconds (default: one more than the last), commit it, and return the emitted rows in
        order of the tasks: tuples, or the bare values of one column."""
        self.time = self.time + 1 if at is None else at
        places = tuple(range(len(self.key), len(self.rows)))
        return self._run(self.job(_work(self.spec, self.state, places), self.rows), rows, tasks, keeps)

    def put_initial(
        self, rows: Sequence[Row], at: int = 0, tasks: int = 1, kinds: Mapping[str, str] | None = None
    ) -> None:
        """Put initial states, with the columns of the key and the state, or ``kinds`` of columns instead."""
        states = list(self.state) if pa.types.is_struct(self.state) else [pa.field("state", self.state)]
        if kinds is not None:
            states = list(make_schema(kinds, "value")) if kinds else []
        schema = pa.schema([*self.key, *states])
        self.time = at
        work = InitialStates(self.state, self.spec.timeout_ms is not None, tuple(range(len(self.key), len(schema))))
        self._run(self.job(work, schema), rows, tasks, keeps=False)

    def _run(self, job: KeyedJob, rows: Sequence[Row], tasks: int, keeps: bool) -> list[Any]:
        log = shared_log(job.storage, job.store_id)
        unused: Any = None  # rows of Spark give the first number of tasks
        batch = _begun(self.store, job, unused, log, tasks, f"batch at {self.time}", keeps, self.time * 1_000_000)
        answers: list[Answer] = []
        for partition in placed(as_table(rows, job.rows), job, batch.groups):
            answers += [from_json(text) for told in run_partition(batch, partition) for text in told[0].to_pylist()]
        version = _committed(self.store, batch.base, answers, None)
        files = shared_log(job.storage, job.store_id).outputs(version)
        emitted = [row for file in files for part in read_emitted(job.storage, file) for row in part.to_pylist()]
        return [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in emitted]

    def states(self, version: int | None = None) -> dict[Any, Any]:
        """The state of each key; keys of several columns are tuples."""
        if STATE not in self.store.states(version):
            return {}
        rows = self.store.scan(STATE, version=version).read_all().to_pylist()
        names = self.key.names
        return {tuple(row[n] for n in names) if len(names) > 1 else row[names[0]]: row["value"] for row in rows}

    def entries(self) -> dict[str, int]:
        """The number of rows in each state of the store, including the times that users do not see."""
        return {name: self.store.scan(name).read_all().num_rows for name in self.store.states()}


def columns(told: Kinds) -> pa.Schema:
    """Columns in the form of `parsed_state_type` and `output_type`; Spark itself would parse them only in its JVM."""
    return make_schema({"value": told} if isinstance(told, str) else told, "value")


def as_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def placed(table: pa.Table, job: KeyedJob, groups: Sequence[range]) -> list[list[pa.RecordBatch]]:
    """The rows in an order that Spark may send them to tasks: shuffled, and with a row for each task that only makes it
    run."""
    keys = [table.column(place).combine_chunks() for place in job.key]
    firsts = [each.start for each in groups]
    tasks = np.searchsorted(firsts, key_groups(keys, job.key_groups), "right") - 1
    schema = pa.schema([("task", pa.int32()), ("arrival", pa.int64()), *table.schema])
    found = []
    for task in range(len(groups)):
        mine = np.random.default_rng(len(tasks)).permutation(np.flatnonzero(tasks == task))
        numbers = [pa.array(np.full(len(mine), task, np.int32)), pa.array(mine.astype(np.int64))]
        rows = pa.Table.from_arrays([*numbers, *table.take(pa.array(mine)).columns], schema=schema)
        starter = pa.Table.from_pylist([{"task": task}], schema=schema)
        found.append(pa.concat_tables([rows, starter]).to_batches())
    return found
