"""Edits of Flink's snapshots carried out in a plain folder, as who makes a target carries them out."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.flink.edit_plan import FlinkEditPlan, edit_plan
from statestore.formats.flink.edits.key_search import in_schema
from statestore.formats.flink.source import FlinkSource


@dataclass(frozen=True)
class FolderTarget:
    """A target that is a folder of this machine."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder)

    def create(self, path: str) -> IO[bytes]:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("xb")


def planned(
    source: FlinkSource,
    edits: Sequence[StateEdit] = (),
    version: int | None = None,
    *,
    rewrite: bool = False,
    **settings: str,
) -> FlinkEditPlan:
    """The plan of an edit, of the newest version. ``rewrite``: the keyed state of all operators is written anew."""
    number = source.refs[-1][0] if version is None else version
    if not rewrite:
        return source.edit_plan(number, edits, EditOptions(settings=settings))
    operators = source.opened(number).metadata.operators
    keyed = frozenset(each.id for each in operators if any(task.managed_keyed is not None for task in each.subtasks))
    return edit_plan(source, number, edits, EditOptions(), keyed)


def written(plan: FlinkEditPlan, folder: Path, *, by_tasks: bool = False) -> FlinkSource:
    """Carry out a plan in a new folder, and open it. ``by_tasks``: each part is written by a copy of the plan."""
    folder.mkdir()
    target = FolderTarget(folder)
    sizes: dict[str, int] = {}
    for copied in plan.copied():
        with copied.folder.stream(copied.name) as stream, target.create(copied.path) as out:
            while piece := stream.read(1 << 20):
                out.write(piece)
    for part in plan.parts():
        one: FlinkEditPlan = pickle.loads(pickle.dumps(plan)) if by_tasks else plan
        sizes |= one.write(pickle.loads(pickle.dumps(part)), target)
    sizes |= plan.finish(target)
    check_sizes(folder, sizes)
    opened = plan.opened(str(folder))
    assert isinstance(opened, FlinkSource)
    return opened


def check_sizes(folder: Path, sizes: Mapping[str, int]) -> None:
    assert {name: (folder / name).stat().st_size for name in sizes} == dict(sizes)


def state_edit(source: FlinkSource, state: str, removed: pa.Table, added: pa.Table) -> StateEdit:
    """An edit in the columns of a state, without those of its placement."""
    info = source.info(state)
    names = [name for name in info.columns.names if name not in info.placement]
    schema = pa.schema([info.columns.field(name) for name in names])
    return StateEdit(state, info.row_key or info.key, removed.select(names), in_schema(added, schema))
