"""An edit is killed at any moment, or the disk fails: its source is as it was, its target absent or whole."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from faults.children import Ended, children
from faults.library import CHANGING, KINDS
from faults.trials.edit_trials import whole_or_absent
from support.engines.toy_edits import tree, write_source
from support.parameters import SHARE

TRIALS = "faults.trials.edit_trials"
EVERY = 7
"""The fast test kills before every seventh call."""
SOME = 1 if SHARE == 1 else 3
"""The slow one kills before every call, and before every third one where a share of the slow cases is run."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


def run(function: str, root: Path, below: Path | None = None, **arguments: Any) -> Ended:
    return children().run(f"{TRIALS}:{function}", root=str(root), below=str(below or root), **arguments)


def calls(source: Path) -> int:
    """The calls that change files which an edit makes."""
    root = source.parent
    ended = run("counted", root)
    assert ended.bad is None, ended.bad
    assert whole_or_absent(root / "target") == "whole"
    shutil.rmtree(root / "target")
    return sum(ended.value[kind] for kind in CHANGING)


def beside(root: Path) -> list[str]:
    """What is in the folder of the source and the target besides them."""
    return sorted(path.name for path in root.iterdir() if path.name not in ("source", "target"))


def edit_again(root: Path, at: int) -> None:
    """Where an edit has left something, the next one to the same target removes it."""
    if beside(root):
        again = run("edited", root, kinds=list(CHANGING), way="never", at=1, errno=0)
        assert again.bad is None and again.value["error"] is None, (at, again)
        assert beside(root) == [] and whole_or_absent(root / "target") == "whole", at
        shutil.rmtree(root / "target")


@pytest.mark.parametrize("step", [EVERY, pytest.param(SOME, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["kill", "kill after"])
def test_a_killed_edit_leaves_a_whole_target_or_none(source: Path, way: str, step: int) -> None:
    root, before = source.parent, tree(source)
    total, seen = calls(source), set()
    assert total > 30
    for at in range(1, total + 1, step):
        ended = run("edited", root, kinds=list(CHANGING), way=way, at=at, errno=0)
        assert ended.signal is not None, (at, ended)
        assert tree(source) == before, at
        found = whole_or_absent(root / "target")
        assert found in ("absent", "whole"), (at, found)
        seen.add(found)
        if found == "whole":
            shutil.rmtree(root / "target")
        edit_again(root, at)
    assert seen == {"absent", "whole"} or step == EVERY


MODES = {
    "full disk": (["write", "open to write", "mkdir", "link", "rename", "sync"], "from then on", errno.ENOSPC),
    "failing device": (list(CHANGING), "from then on", errno.EIO),
    "one failing call": (list(CHANGING), "once", errno.EIO),
    "short writes": (["write"], "short", 0),
    "a file that cannot be read": (["read", "open to read"], "once", errno.EIO),
}


@pytest.mark.parametrize("step", [EVERY, pytest.param(SOME, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", MODES)
def test_a_failing_disk_is_an_error_or_does_not_matter(source: Path, mode: str, step: int) -> None:
    kinds, way, number = MODES[mode]
    root, before = source.parent, tree(source)
    counts = run("counted", root).value
    shutil.rmtree(root / "target")
    errors = 0
    for at in range(1, sum(counts[kind] for kind in kinds) + 1, step):
        ended = run("edited", root, kinds=kinds, way=way, at=at, errno=number)
        assert ended.bad is None, (mode, at, ended.bad)
        assert tree(source) == before, at
        found = whole_or_absent(root / "target")
        assert found in (["whole"] if ended.value["error"] is None else ["absent", "whole"]), (mode, at, ended, found)
        assert ended.value["error"] != "OSError" or "read" in kinds, (mode, at, ended)
        errors += ended.value["error"] is not None
        shutil.rmtree(root / "target", ignore_errors=True)
        edit_again(root, at)
    assert errors > 0 or mode == "short writes"


def test_the_source_is_never_changed_by_a_call(source: Path) -> None:
    """Of all calls that change files an edit makes none on its source, but links of files that never change."""
    ended = run("counted", source.parent, source)
    assert ended.bad is None, ended.bad
    changing = {kind: ended.value[kind] for kind in CHANGING if ended.value[kind]}
    assert ended.value["open to read"] > 5
    assert changing.keys() == {"link"}
    linked = [path for path in (source / "queues").iterdir() if path.stat().st_nlink > 1]
    assert len(linked) == changing["link"] > 0
    assert not [path for path in source.glob("*.*") if path.stat().st_nlink > 1]
    assert set(KINDS) >= set(changing)
