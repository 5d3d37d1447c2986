"""Copies of engines' directories with an edit: the files of a plan, without what makes an edit safe and verified.

Files that no engine ever changes are links to those of the source, so a test that runs an engine on the copy and then
compares the source shows that this is true of them.
"""

from __future__ import annotations

import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from statestore.formats.edits import EditPlan


@dataclass(frozen=True)
class FolderTarget:
    """A target that is a folder of this machine."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder)

    def create(self, path: str) -> IO[bytes]:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("xb")


def write_copy(plan: EditPlan, folder: Path, *, by_tasks: bool = False) -> dict[str, int]:
    """Write what a plan says; return the sizes of the files that are not copies. No file may be written twice.

    ``by_tasks``: each part is written by a copy of the plan.
    """
    target, sizes = FolderTarget(folder), dict[str, int]()
    for part in plan.parts():
        one: EditPlan = pickle.loads(pickle.dumps(plan)) if by_tasks else plan
        sizes.update(one.write(pickle.loads(pickle.dumps(part)), target))
    for each in plan.copied():
        (folder / each.path).parent.mkdir(parents=True, exist_ok=True)
        assert not (folder / each.path).exists(), each.path
        if each.folder.is_local and each.immutable:
            os.link(Path(each.folder.path) / each.name, folder / each.path)
        elif each.folder.is_local:
            shutil.copyfile(Path(each.folder.path) / each.name, folder / each.path)
        else:
            (folder / each.path).write_bytes(each.folder.fresh().read_once(each.name))
    sizes.update(plan.finish(target))
    assert sizes == {path: (folder / path).stat().st_size for path in sizes}
    return sizes
