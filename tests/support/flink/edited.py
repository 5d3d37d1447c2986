"""Edits of Flink's snapshots carried out in a plain folder, as who makes a target carries them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.flink.edit_plan import FlinkEditPlan, edit_plan
from statestore.formats.flink.edits.key_search import in_schema
from statestore.formats.flink.source import FlinkSource
from support.edited_copies import write_copy


def planned(
    source: FlinkSource,
    edits: Sequence[StateEdit] = (),
    version: int | None = None,
    *,
    rewrite: bool = False,
    settings: Mapping[str, str] | None = None,
) -> FlinkEditPlan:
    """The plan of an edit, of the newest version. ``rewrite``: the keyed state of all operators is written anew."""
    number = source.refs[-1][0] if version is None else version
    if not rewrite:
        return source.edit_plan(number, edits, EditOptions(settings=settings or {}))
    operators = source.opened(number).metadata.operators
    keyed = frozenset(each.id for each in operators if any(task.managed_keyed is not None for task in each.subtasks))
    return edit_plan(source, number, edits, EditOptions(), keyed)


def written(plan: FlinkEditPlan, folder: Path, *, by_tasks: bool = False) -> FlinkSource:
    """Carry out a plan in a new folder, and open it. ``by_tasks``: each part is written by a copy of the plan."""
    folder.mkdir()
    write_copy(plan, folder, by_tasks=by_tasks)
    opened = plan.opened(str(folder))
    assert isinstance(opened, FlinkSource)
    return opened


def state_edit(source: FlinkSource, state: str, removed: pa.Table, added: pa.Table) -> StateEdit:
    """An edit in the columns of a state, without those of its placement."""
    info = source.info(state)
    names = [name for name in info.columns.names if name not in info.placement]
    schema = pa.schema([info.columns.field(name) for name in names])
    return StateEdit(state, info.row_key or info.key, removed.select(names), in_schema(added, schema))
