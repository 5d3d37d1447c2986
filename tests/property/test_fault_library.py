"""The tools of the campaign: calls fail, are cut short, kill and are recorded, and disks are made from the records."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from faults.campaign import scratch
from faults.children import Ended, children
from faults.disks import Cut, disk_after
from faults.library import CHANGING
from faults.trace import Step, read_trace


def in_child(function: str, **arguments: Any) -> Ended:
    """Run a function that needs nothing but the library."""
    return children(1, bare=True).run(f"faults.trials.library_trials:{function}", **arguments)


def struck(folder: Path, kinds: tuple[str, ...], way: str, at: int) -> str:
    ended = in_child("write_a_file", folder=str(folder), kinds=kinds, way=way, at=at, errno=errno.EIO)
    return f"signal {ended.signal}" if ended.signal else str(ended.value if ended.bad is None else ended.bad)


@pytest.mark.parametrize(
    ("kinds", "way", "at", "outcome"),
    [
        (("write",), "never", 1, "abcdefgh 3 calls"),
        (("write",), "once", 2, "EIO after abcd"),
        (("sync",), "once", 1, "EIO after abcdefgh"),
        (("open to write",), "once", 1, "EIO after nothing"),
        (("write",), "short", 1, "abefgh 3 calls"),
        (("rename",), "once", 1, "EIO after abcdefgh"),
        (("write",), "kill", 1, "signal 9"),
        (CHANGING, "kill after", 4, "signal 9"),
    ],
)
def test_a_call_is_struck(kinds: tuple[str, ...], way: str, at: int, outcome: str) -> None:
    with scratch() as folder:
        assert struck(folder, kinds, way, at) == outcome


def test_calls_below_another_folder_are_left_alone() -> None:
    with scratch() as folder, scratch() as other:
        ended = in_child("write_elsewhere", folder=str(folder), other=str(other))
        assert ended.value == "abcdefgh"


def test_the_clock_moves_and_files_are_swapped() -> None:
    with scratch() as folder:
        ended = in_child("move_the_clock", folder=str(folder), days=30)
        assert ended.value == {"days": 30, "swapped": "other"}


def test_calls_are_recorded_with_their_data() -> None:
    with scratch() as folder:
        (folder / "disk").mkdir()
        arguments = {"folder": str(folder / "disk"), "trace": str(folder / "trace")}
        ended = in_child("record", **arguments)
        assert ended.bad is None, ended.bad
        steps = read_trace(folder / "trace", str(folder / "disk"))
    root = str(folder / "disk")
    told = [(step.do, step.name.removeprefix(root), step.data, step.offset) for step in steps]
    assert told == [
        ("add", "/sub", b"", 0),
        ("add", "/sub/a", b"", 0),
        ("write", "", b"one", 0),
        ("write", "", b"two!", 3),
        ("cut", "", b"", 5),
        ("sync", "/sub/a", b"", 0),
        ("write", "", b"X", 1),
        ("mark", "a mark", b"", 0),
        ("add", "/b", b"", 0),
        ("remove", "/sub/a", b"", 0),
        ("write", "", b"unnamed", 0),
        ("add", "/c", b"", 0),
        ("move", "/d", b"", 0),
        ("sync", "", b"", 0),
    ]
    everything = disk_after(steps, root, Cut(len(steps), "strict", "nothing"))
    # The root was synced at last, with its names; of b only what was there at its own fsync, of d nothing.
    assert everything == {"sub": None, "b": b"onetw", "d": b""}
    assert disk_after(steps, root, Cut(len(steps), "strict", "all")) == {"sub": None, "b": b"oXetw", "d": b"unnamed"}
    assert disk_after(steps, root, Cut(6, "strict", "nothing")) == {}
    assert disk_after(steps, root, Cut(6, "ordered", "nothing")) == {"sub": None, "sub/a": b"onetw"}


def test_pages_reach_the_disk_in_any_order() -> None:
    """A page that was never synced may hold zeros while a later one is there."""
    pages = [Step("write", file=1, offset=4096 * n, data=b"%d" % n * 4096) for n in range(3)]
    steps = [Step("add", "/r/a", file=1), Step("sync", "/r", file=0), *pages]
    disks = {disk_after(steps, "/r", Cut(5, "strict", "some", draw))["a"] for draw in range(200)}
    torn = [disk for disk in disks if disk and len(disk) == 3 * 4096 and not any(disk[:4096]) and disk[-1:] == b"2"]
    assert torn
