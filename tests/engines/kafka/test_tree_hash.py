"""``tree_hash`` sees every change of a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.kafka.running.tree_hash import tree_hash


def link(path: Path) -> None:
    path.rename(path.with_name("x"))
    path.symlink_to("x")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda at: (at / "a" / "file").write_bytes(b"4"),
    "a longer file": lambda at: (at / "a" / "file").write_bytes(b"33"),
    "another name": lambda at: (at / "a" / "file").rename(at / "a" / "other"),
    "another folder": lambda at: (at / "a" / "file").rename(at / "file"),
    "a hidden file": lambda at: (at / ".hidden").touch(),
    "an empty folder": lambda at: (at / "empty").mkdir(),
    "a file that is gone": lambda at: (at / "a" / "empty").unlink(),
    "a link in its place": lambda at: link(at / "a" / "empty"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_gives_another_hash(change: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"3")
    (tmp_path / "a" / "empty").touch()
    before = tree_hash(tmp_path)
    assert tree_hash(tmp_path) == before
    CHANGES[change](tmp_path)
    assert tree_hash(tmp_path) != before
