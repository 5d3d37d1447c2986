"""A failing disk is not an absence: a failed look-up is never taken for "there is no such file"."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.catalog.log.storage import LocalStorage
from statestore.formats.places.file_presence import is_there, names_in
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    found = {name: is_there(os.fsencode(tmp_path / name)) for name in ("file", ".", "absent", "file/below", "no/way")}
    assert found == {"file": True, ".": True, "absent": False, "file/below": False, "no/way": False}


@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_what_the_system_cannot_say_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(statestore.StorageError, match=r"DISK_FAILED.*cannot look for") as raised:
        is_there(os.fsencode(tmp_path / name))
    assert raised.value.errno


def test_folders_and_files_that_cannot_be_looked_at_are_no_absence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    storage = LocalStorage(tmp_path)
    asked: list[Callable[[], object]] = [
        lambda: names_in(tmp_path / "loop"),
        lambda: storage.list("loop/"),
        lambda: storage.state("loop"),
    ]
    for ask in asked:
        with pytest.raises(statestore.StorageError, match="DISK_FAILED"):
            ask()
    assert not names_in(tmp_path / "absent") and not storage.list("absent/")
    assert storage.state("absent") is None


@pytest.mark.parametrize("read", ["get", "get_versions", "refresh", "scan"])
def test_reads_that_cannot_look_for_newer_commits_do_not_answer_older_ones(tmp_path: Path, read: str) -> None:
    catalog = statestore.connect(tmp_path)
    with catalog.create_store("s", **COLUMNS) as writer, catalog.open_store("s", read_only=True) as reader:
        writer.put("a", 1, timestamp=1000)
        writer.commit()
        assert reader.get("a").value == 1
        writer.put("a", 2, timestamp=2000)
        writer.commit()
        log, away = tmp_path / "s" / "log", tmp_path / "log"
        log.rename(away)
        log.symlink_to(log)
        asked = {
            "get": lambda: reader.get("a"),
            "get_versions": lambda: list(reader.get_versions("a")),
            "refresh": reader.refresh,
            "scan": lambda: reader.scan().read_all(),
        }
        with pytest.raises(statestore.StorageError, match="DISK_FAILED"):
            asked[read]()
        log.unlink()
        away.rename(log)
        assert reader.get("a").value == 2


def test_a_file_that_is_removed_while_it_is_opened_is_missing_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    look = Path.stat

    def looked(path: Path, **options: Any) -> os.stat_result:
        found = look(path, **options)
        path.unlink()
        return found

    with monkeypatch.context() as patch, pytest.raises(statestore.NotFoundError, match="FILE_NOT_FOUND"):
        patch.setattr(Path, "stat", looked)
        folder_at(parse_location(tmp_path)).stream("file")
