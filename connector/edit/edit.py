"""`edit`: the state of a stopped job, changed by statements, as a new place from which the engine goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from statestore.catalog.edits.apply import Listener, apply_edit
from statestore.catalog.edits.receipt import Receipt
from statestore.catalog.edits.targets import target_location
from statestore.catalog.reads.arguments import key_filters
from statestore.catalog.upkeep.ranges.task_runs import runs_of
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.edit.edited_state import EditedState
from statestore.connector.edit.editing import Editing, engine_states, newest_version
from statestore.connector.edit.engine_readers import engine_reader
from statestore.connector.edit.net_edit import net_edit
from statestore.connector.edit.preview import ChangedRows, Preview, changed_rows, preview_of
from statestore.connector.edit.row_changes import delete_rows, insert_rows
from statestore.connector.edit.run_merge import run_merge
from statestore.connector.edit.run_statement import run_delete, run_insert, run_update
from statestore.connector.edit.statements import Delete, Insert, Statement, Text, Update, parsed, statements_of
from statestore.connector.edit.units import one_array
from statestore.formats.edit_settings import checked_settings
from statestore.formats.edits import EditOptions, EditPlan, StateEdit
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.engines import engine_named
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError, shown
from statestore.formats.state_table import check_number
from statestore.formats.table_columns import checked_filters
from statestore.formats.values.canonical import ErrorPath, canonical, nullable, of_scalars
from statestore.formats.values.filters import Filter, mask, parse_filters
from statestore.formats.values.types import conform
from statestore.formats.values.without_pandas import bools, without_nulls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def edit(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    version: int | None = None,
    as_batch: bool = False,
    allow_late: bool = False,
    keep_rows: bool = False,
    keep_statements: bool = False,
    allow_external_access: bool = False,
    settings: Mapping[str, Any] | None = None,
    with_engine: bool = False,
    progress: Listener | None = None,
    spark: SparkSession | None = None,
    **options: Any,
) -> Edit:
    """Change the state of a stopped job: a context in which statements say what, at whose end ``target`` is written.

    ``source`` is a Spark checkpoint, a Flink savepoint or checkpoint, or a Kafka Streams directory. It stays as it is,
    and ``target``, which must not exist, becomes a copy of it that differs by the edit alone, and from which the engine
    goes on:

        with statestore.edit("checkpoint", "mended") as edit:
            edit.sql("UPDATE state SET value.sum = 26 WHERE key.dish = 'curry'")
            print(edit.preview())
        print(edit.receipt)

    The target is written when the block ends, and not at all when it ends by an error. Without statements it is the
    same state. Without a ``target`` nothing is ever written, and `Edit.preview` shows what would be.

    ``version`` is the batch, checkpoint or snapshot that is edited, by default the newest. ``as_batch``: the edit is a
    version of its own after it, where the engine can have one. ``allow_late``: rows may come that the watermark of the
    job removes at once. ``keep_rows`` and ``keep_statements``: the receipt in the target has the rows before and after,
    and the statements, in full; by default it has digests of them, because what was erased must not stay in it.
    ``allow_external_access``: statements may read data files, as ``FROM 'rows.parquet'``. ``settings`` are what the
    engine offers for its target, such as ``{"partitions": 64}``. ``with_engine``: before the target appears, the
    engine's own reader reads it and must find the same rows, which the receipt says; for a checkpoint of Spark that is
    PySpark's, in the session of this process or in a local one that is started for it. With ``spark``, a session, its
    tasks look for rows, write and compare; they need to see source and target by the same paths as this process.
    ``options`` are those of engines that select state, such as ``stores_file`` (docs/reference.md).

    Raises the errors of `inspect`, UnsupportedError EDIT_UNSUPPORTED for state that cannot be edited, and when it is
    written InvalidInputError EDIT_REFUSED or TARGET_EXISTS.
    """
    given = engine_options_of("edit", options)
    terms = EditTerms(
        version,
        as_batch=as_batch,
        allow_late=allow_late,
        keep_rows=keep_rows,
        keep_statements=keep_statements,
        allow_external_access=allow_external_access,
        settings={} if settings is None else settings,
        with_engine=with_engine,
        progress=progress,
        spark=spark,
    )
    return edit_of(source, target, given, terms)


@dataclass(frozen=True)
class EditTerms:
    """How an edit is to be made, by the names and with the meaning of the arguments of `edit`."""

    version: int | None = None
    as_batch: bool = False
    allow_late: bool = False
    keep_rows: bool = False
    keep_statements: bool = False
    allow_external_access: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    with_engine: bool = False
    progress: Listener | None = None
    spark: SparkSession | None = None


def edit_of(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None,
    selected: Mapping[str, str],
    terms: EditTerms,
) -> Edit:
    """Begin an edit as `edit` does. ``selected`` are options of engines, by their names in Spark.

    Raises InvalidInputError INVALID_OPTION for settings that the engine of the source has not.
    """
    check_number(terms.version)
    runs = None if terms.spark is None else runs_of(terms.spark)
    if target is not None:
        if not isinstance(target, str | os.PathLike):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"target is {shown(target)}; expected a path, or None for a preview alone"
            )
        target_location(target)
    warehouse = open_warehouse(source, selected).pin()
    states = engine_states(warehouse)
    settings = checked_settings(engine_named(states.opening.engine), terms.settings, states.source.path)
    asked = states.bound if terms.version is None else int(terms.version)
    newest = states.ask(newest_version) if asked is None else asked
    engine_reader(states.source, wanted=terms.with_engine)  # raises where there is none
    editing = Editing(warehouse, states.source, newest, terms.allow_external_access, runs)
    options = EditOptions(terms.as_batch, terms.allow_late, settings)
    return Edit(editing, None if target is None else os.fspath(target), terms, options)


class Edit:
    """An edit of a source, as `edit` returns it. ``receipt`` is there once the target is written, whether or not what
    it has could be handed on to the engine (EDIT_NOT_DELIVERED)."""

    def __init__(self, editing: Editing, target: str | None, terms: EditTerms, options: EditOptions) -> None:
        self.receipt: Receipt | None = None
        self._editing = editing
        self._target = target
        self._terms = terms
        self._options = options
        self._statements: list[str] = []
        self._ended = False

    @property
    def version(self) -> int:
        """The version of the source that is edited."""
        return self._editing.version

    def sql(self, text: str) -> None:
        """Run UPDATE, DELETE, INSERT and MERGE statements in DuckDB's SQL, which semicolons separate.

        They run one after the other, and each sees what those before it did. Tables are the states of the source, by
        their names, which may also be read at other versions (``state VERSION AS OF 3``), and whatever has a path, such
        as ``FROM 'warehouse/prices' TIMESTAMP AS OF '2024-05-01T09:30Z'``. Columns that say where the engine keeps a
        row can be read and not be set. A field of a struct is set by its name: ``SET value.sum = 26``. Values have to
        fit the columns as they are: nothing is rounded or cut off. A row whose key is there already cannot be inserted:
        write UPDATE or MERGE.

        A text that is refused changes nothing, not even by the statements before the one that was refused. Raises
        InvalidInputError INVALID_SQL, WRONG_VALUE or EDIT_REFUSED, UnsupportedError UNSUPPORTED_STATEMENT, and
        NotFoundError.
        """
        self._check_open()
        texts = list(statements_of(text))
        with self._editing.whole():
            for each in texts:
                _run(self._editing, each, self._parsed(each))
        self._statements += [each.written for each in texts]

    def table(self, name: str) -> StateRows:
        """Return a state by its name, for changes of rows without SQL. Raises NotFoundError TABLE_NOT_FOUND."""
        self._check_open()
        return StateRows(self, self._editing, self._editing.state(name))

    def edits(self) -> Sequence[StateEdit]:
        """Return what all changes so far amount to, for each state that is not as it was."""
        return [each for each, _ in self._edits()]

    def changes(self) -> Sequence[ChangedRows]:
        """Return the rows that the edit names and that change, for each state."""
        return [changed_rows(each, is_keyed) for each, is_keyed in self._edits()]

    def preview(self) -> Preview:
        """Return what would be written now, with the rows that change. Writes nothing."""
        edits = self._edits()
        plan: EditPlan | StateStoreError
        try:
            plan = self._editing.source.edit_plan(self.version, [each for each, _ in edits], self._options)
        except (InvalidInputError, UnsupportedError) as error:
            plan = error
        return preview_of(self._editing.source, self._target, self.version, edits, plan)

    def apply(self) -> Receipt:
        """Write the target, verify it, and return its receipt, as the end of a block does.

        Raises InvalidInputError MISSING_OPTION without a target, EDIT_REFUSED or TARGET_EXISTS.
        """
        self._check_open()
        if self._target is None:
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION, "this edit has no target; name one: statestore.edit(source, target)"
            )
        with engine_reader(self._editing.source, wanted=self._terms.with_engine) as reader:
            self.receipt = apply_edit(
                self._editing.source,
                self.version,
                self.edits(),
                self._target,
                self._options,
                statements=tuple(self._statements),
                keep_rows=self._terms.keep_rows,
                keep_statements=self._terms.keep_statements,
                reader=reader,
                runs=self._editing.runs,
                published=self._published,
                **({} if self._terms.progress is None else {"progress": self._terms.progress}),
            )
        return self.receipt

    def _published(self, receipt: Receipt) -> None:
        """Keep the receipt, with its key, and end the edit: the target is there, whatever comes."""
        self.receipt, self._ended = receipt, True

    def __enter__(self) -> Edit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._target is not None and not self._ended:
            self.apply()
        self._ended = True

    def __repr__(self) -> str:
        into = "no target" if self._target is None else self._target
        return f"edit of version {self.version} of {self._editing.source.path} into {into}"

    def _edits(self) -> list[tuple[StateEdit, bool]]:
        states = sorted(self._editing.states.values(), key=lambda state: state.name)
        found = [(net_edit(state), state.is_keyed) for state in states]
        return [(each, is_keyed) for each, is_keyed in found if each is not None]

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidInputError(
                ErrorCode.EDIT_REFUSED, "this edit has ended, and its target is written; begin a new one of its target"
            )

    def _parsed(self, text: Text) -> Statement:
        try:
            return parsed(text)
        except InvalidInputError as error:
            names = [name for name in self._editing.warehouse.tables() if not name.isidentifier()]
            bare = next((name for name in names if name in text.written and f'"{name}"' not in text.written), None)
            if bare is None:
                raise
            advice = f'{error.message}\nThe name of a state with other characters than letters has quotes: "{bare}"'
            raise InvalidInputError(error.code, advice) from error

    def _note(self, what: str) -> None:
        self._statements.append(what)


class StateRows:
    """The rows of one state in an edit, for changes without SQL. Later statements see them."""

    def __init__(self, edit: Edit, editing: Editing, state: EditedState) -> None:
        self._edit = edit
        self._editing = editing
        self._state = state

    @property
    def schema(self) -> pa.Schema:
        """The columns that a row has, without those that say where the engine keeps it."""
        return self._state.own

    def put(self, row: Mapping[str, Any] | pa.Table | pa.RecordBatch) -> None:
        """Write a row, in the place of the one with its key where there is one; in a list it comes last.

        ``row`` is a dict with each of the columns, or a table as `put_all` takes it. Raises InvalidInputError
        WRONG_VALUE or WRONG_SCHEMA.
        """
        if isinstance(row, pa.Table | pa.RecordBatch):
            self.put_all(row)
            return
        self.put_all([row])

    def put_all(self, rows: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]) -> None:
        """Write rows as `put` does: a table with the columns of `schema` in any order, or a sequence of dicts.

        Columns that say where the engine keeps a row, as those of a scan, are passed over: that follows from its key.
        """
        state = self._state
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if not isinstance(rows, pa.Table):
            rows = _table_of(rows, state)
        table = conform(_without_placement(rows, state), self.schema)
        self._edit._check_open()
        with self._editing.whole():
            state.load(table)
            if state.is_keyed:
                there, new = state.numbers(state.now, table)
                delete_rows(state, np.flatnonzero(np.isin(there, new)))
            insert_rows(state, table)
        self._edit._note(f"put into {state.name}: {table.num_rows} rows")

    def delete(self, key: Any = None, *, filter: Any = None) -> int:
        """Remove the rows of a key, as `get` takes one, or all that pass a filter, as `scan` does; return their number.

        Raises InvalidInputError WRONG_KEY, INVALID_FILTER, or MISSING_OPTION if neither is given.
        """
        state = self._state
        if (key is None) == (filter is None):
            raise InvalidInputError(
                ErrorCode.MISSING_OPTION, "delete: give a key, or filter=…; to delete all rows write DELETE FROM in sql"
            )
        found: Sequence[Filter] = parse_filters(filter) if key is None else key_filters(state.table, key)
        query = checked_filters(state.schema, _query(found), state.name)
        self._edit._check_open()
        with self._editing.whole():
            state.load_where(query.filters)
            rows = [np.empty(0, np.int64)]
            begin = 0
            for batch in state.now.to_batches():
                passing = mask(query.filters, batch)
                here = np.arange(batch.num_rows) if passing is None else np.flatnonzero(bools(without_nulls(passing)))
                rows.append(begin + here)
                begin += batch.num_rows
            chosen = np.concatenate(rows)
            delete_rows(state, chosen)
        self._edit._note(f"delete from {state.name}: {len(chosen)} rows")
        return len(chosen)


def _run(editing: Editing, text: Text, statement: Statement) -> None:
    """Change the rows of a state as a statement says. Raises the errors of `Edit.sql`."""
    match statement:
        case Update():
            run_update(editing, text, statement)
        case Delete():
            run_delete(editing, text, statement)
        case Insert():
            run_insert(editing, text, statement)
        case _:
            run_merge(editing, text, statement)


def _query(filters: Sequence[Filter]) -> Any:
    from statestore.formats.state_table import Query

    return Query(filters=tuple(filters))


def _without_placement(rows: pa.Table, state: EditedState) -> pa.Table:
    """Return rows without the columns of the placement, of which each may be there or not."""
    return rows.drop_columns([name for name in state.placement if name in rows.column_names])


def _table_of(rows: Sequence[Mapping[str, Any]], state: EditedState) -> pa.Table:
    """Return rows that are given as dicts as a table. Raises InvalidInputError WRONG_VALUE, which names the column."""
    schema = state.own
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    checks = {
        field.name: nullable(canonical(ErrorPath(ErrorCode.WRONG_VALUE, field.name, field.type))) for field in schema
    }
    for row in rows:
        if not isinstance(row, Mapping) or set(row) - set(state.placement) != set(schema.names):
            found = ", ".join(map(str, row)) if isinstance(row, Mapping) else shown(row)
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE,
                f"a row of {state.name!r} has the columns {', '.join(schema.names)}; found {found}. Write a dict with "
                "each of them, None for null",
            )
        for name, check in checks.items():
            value = of_scalars(row[name])
            check(value)
            columns[name].append(value)
    try:
        cells = [one_array(pa.array(columns[field.name], field.type)) for field in schema]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise InvalidInputError(
            ErrorCode.WRONG_VALUE, f"a row of {state.name!r}: {error}; give values that fit"
        ) from None
    return pa.Table.from_arrays(cells, schema=pa.schema([field.with_nullable(True) for field in schema]))
