"""A target in an object store is no state before its last object, and nothing of anybody else is touched."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow.fs as pafs
import pytest
from obstore.store import MemoryStore
from support.object_stores.doubles import location_in

from statestore.catalog.edits import object_claim, object_copies, object_target
from statestore.catalog.edits.copied_files import copy_files
from statestore.catalog.edits.object_target import ObjectTarget
from statestore.catalog.edits.targets import new_target, refuse_around, target_location
from statestore.formats.edits import UNFINISHED_FILE, CopiedFile
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, InvalidInputError, StateStoreError, StorageError, UnsupportedError
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import Location, parse_location

STAGES = (("commits/0", "commits/1"), ("offsets/1",), ("offsets/0",))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def place(store: MemoryStore) -> Location:
    return location_in(store, "a/target")


def names(store: MemoryStore) -> set[str]:
    return {str(item["path"]) for batch in obstore.list(store) for item in batch}


def content(store: MemoryStore, name: str) -> bytes:
    return bytes(obstore.get(store, name).bytes())


def write(target: Any, path: str, data: bytes) -> None:
    with target.create(path) as stream:
        stream.write(data)


def test_the_last_files_come_last_and_in_their_order(
    store: MemoryStore, place: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("state/1.delta", "commits/0", "offsets/0"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    puts: list[str] = []
    put = obstore.put

    def recorded(into: Any, path: str, *given: Any, **options: Any) -> Any:
        puts.append(path.removeprefix("a/target/"))
        return put(into, path, *given, **options)

    monkeypatch.setattr(obstore, "put", recorded)
    root = folder_at(parse_location(str(tmp_path)))
    files = [
        CopiedFile(root.at("offsets"), "0", "offsets/0", 9),
        CopiedFile(root.at("commits"), "0", "commits/0", 9),
        CopiedFile(root.at("state"), "1.delta", "state/1.delta", 13),
    ]
    with new_target(place) as target:
        assert isinstance(target, ObjectTarget)
        copied = copy_files(files, target, STAGES)
        write(target, "state/2.delta", b"two")
        for path in ("_metadata", "offsets/1", "commits/1"):
            write(target.last_files, path, path.encode())
        assert names(store) == {f"a/target/{path}" for path in (UNFINISHED_FILE, "state/1.delta", "state/2.delta")}
        assert target.files() == {
            "state/1.delta": 13, "state/2.delta": 3, "_metadata": 9, "offsets/0": 9, "offsets/1": 9, "commits/0": 9,
            "commits/1": 9,
        }  # fmt: skip
        before = len(puts)
        target.publish(b"{}", STAGES, None)
    assert puts[before] == "_metadata"
    assert set(puts[before + 1 : before + 3]) == {"commits/0", "commits/1"}
    assert puts[before + 3 :] == ["offsets/1", "edit.json", "offsets/0"]
    assert content(store, "a/target/offsets/0") == b"offsets/0"
    assert f"a/target/{UNFINISHED_FILE}" not in names(store)
    lines = sorted(f"{path}\t{len(path)}\t{hashlib.sha256(path.encode()).hexdigest()}" for path in
                   ("state/1.delta", "commits/0", "offsets/0"))  # fmt: skip
    assert copied.sha256 == hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_what_is_written_can_be_read_before_it_is_published(place: Location) -> None:
    with new_target(place) as target:
        write(target, "state/0/1.delta", b"0123456789")
        write(target.last_files, "commits/0", b"done")
        with target.shown(locally=False) as shown:
            folder = folder_at(parse_location(shown))
            assert sorted(folder.folders()) == ["commits", "state"]
            assert folder.at("state", 0).files() == {"1.delta": 10}
            assert folder.at("commits").read_small("0") == b"done"
            opened = folder.at("state", 0).random_access("1.delta", 10)
            assert [opened.read_at(2, 3), opened.read_at(8, 5)] == [b"234", b"89"]
            with folder.at("state", 0).stream("1.delta") as stream:
                assert stream.read(100) == b"0123456789"
        with pytest.raises(StateStoreError):
            folder_at(parse_location(shown)).folders()
        with target.shown(locally=True) as local:
            found = {path.relative_to(local).as_posix() for path in Path(local).rglob("*") if path.is_file()}
            assert found == {"state/0/1.delta", "commits/0"}
        target.publish(b"{}", (), None)


@pytest.mark.parametrize("size", [0, 10, 11, 35])
def test_files_of_any_size_arrive(
    store: MemoryStore, place: Location, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones at once, others in parts; written and copied."""
    for module in (object_target, object_copies):
        monkeypatch.setattr(module, "PART_BYTES", 10)
    monkeypatch.setattr(object_target, "MEMORY_BYTES", 20)
    data = bytes(range(size))
    (tmp_path / "file").write_bytes(data)
    with new_target(place) as target:
        with target.create("written") as stream:
            for at in range(0, size, 7):
                stream.write(data[at : at + 7])
        file = CopiedFile(folder_at(parse_location(str(tmp_path))), "file", "copied", size)
        assert copy_files([file], target).bytes == size
        assert target.written["written"].sha256 == target.digest("written") == hashlib.sha256(data).hexdigest()
        target.publish(b"{}", (), None)
    assert content(store, "a/target/written") == content(store, "a/target/copied") == data


def test_an_error_removes_what_was_put_and_nothing_else(store: MemoryStore, place: Location) -> None:
    with pytest.raises(ZeroDivisionError), new_target(place) as target:
        write(target, "state/1", b"1")
        write(target.last_files, "commits/0", b"mine")
        obstore.put(store, "a/target/commits/0", b"theirs")
        obstore.put(store, "a/target/other", b"theirs")
        raise ZeroDivisionError
    assert names(store) == {"a/target/commits/0", "a/target/other"}


def test_a_file_that_appears_meanwhile_is_not_replaced(store: MemoryStore, place: Location) -> None:
    with pytest.raises(InvalidInputError, match="commits/0 exists") as raised, new_target(place) as target:
        write(target, "state/1", b"1")
        write(target.last_files, "metadata", b"mine")
        write(target.last_files, "commits/0", b"mine")
        obstore.put(store, "a/target/commits/0", b"theirs")
        target.publish(b"{}", (), None)
    assert raised.value.code == ErrorCode.TARGET_EXISTS
    assert names(store) == {"a/target/commits/0"} and content(store, "a/target/commits/0") == b"theirs"


def test_a_file_that_fails_is_no_object(store: MemoryStore, place: Location) -> None:
    with pytest.raises(ZeroDivisionError), new_target(place) as target:
        with pytest.raises(KeyError), target.create("state/1") as stream:
            stream.write(b"half")
            raise KeyError
        assert names(store) == {f"a/target/{UNFINISHED_FILE}"}
        raise ZeroDivisionError
    assert names(store) == set()


@pytest.mark.parametrize("there", ["a/target", "a/target/x", "a/target/b/c", "a/target/edit.json"])
def test_what_is_there_is_never_replaced(store: MemoryStore, place: Location, there: str) -> None:
    obstore.put(store, there, b"mine")
    for attempt in (lambda: target_location(place.uri), lambda: next(_begun(place))):
        with pytest.raises(InvalidInputError, match="exists; an edit makes a new folder") as raised:
            attempt()
        assert raised.value.code == ErrorCode.TARGET_EXISTS
    assert names(store) == {there}


def _begun(place: Location) -> Iterator[Any]:
    with new_target(place) as target:
        yield target


def test_a_claim_that_cannot_be_removed_is_told(
    store: MemoryStore, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is whole then, and stays."""

    def refuse(*_: object) -> None:
        raise InvalidInputError(ErrorCode.NO_ACCESS, "refused")

    with pytest.raises(StorageError, match=r"is whole, but for edit.unfinished"), new_target(place) as target:
        assert isinstance(target, ObjectTarget)
        write(target, "state/1", b"1")
        write(target.last_files, "commits/0", b"done")
        monkeypatch.setattr(type(target.storage), "delete_many", refuse)
        target.publish(b"{}", (), None)
    found = {f"a/target/{name}" for name in ("state/1", "commits/0", "edit.json", UNFINISHED_FILE)}
    assert names(store) == found


def test_a_name_that_begins_alike_is_another_place(store: MemoryStore, place: Location) -> None:
    obstore.put(store, "a/target-2/x", b"")
    obstore.put(store, "a/targets", b"")
    assert target_location(place.uri) == place


def test_an_edit_that_has_not_ended_keeps_its_place(store: MemoryStore, place: Location) -> None:
    """A killed one does for ever, and says what to do."""
    killed = ObjectTarget(place)
    killed.claim()
    write(killed, "state/1", b"1")
    there = r"edit.unfinished is there, and 1 other object of 1 bytes, the last one put at 20.*Z, which may not be all"
    todo = rf"Wait for that edit, or if it was killed, remove all objects below {place}/ "
    todo += rf"\(aws s3 rm --recursive {place}/"
    told = rf"was begun by process \d+ on '.*' at 20.*Z.*{there}. {todo}\), or name another"
    with pytest.raises(InvalidInputError, match=told), new_target(place):
        pass
    assert names(store) == {f"a/target/{UNFINISHED_FILE}", "a/target/state/1"}
    obstore.put(store, f"a/target/{UNFINISHED_FILE}", b"no JSON")
    with pytest.raises(InvalidInputError, match=r"was begun, and has not ended"):
        target_location(place.uri)


def test_a_process_of_this_machine_that_has_ended_is_told(store: MemoryStore, place: Location) -> None:
    """Nobody knows of those of other machines."""
    process = subprocess.Popen(["sleep", "100"])
    about = {"host": "here", "process": process.pid, "time": 0, "life": object_claim._life(process.pid)}
    obstore.put(store, f"a/target/{UNFINISHED_FILE}", json.dumps(about).encode())
    with pytest.raises(InvalidInputError, match=r"is there and nothing else\. Wait for that edit"):
        target_location(place.uri)
    process.kill()
    process.wait()
    with pytest.raises(InvalidInputError, match="That process has ended: remove all objects"):
        target_location(place.uri)
    elsewhere = str(about["life"]).replace("pid:", "pid:1")
    for life in (None, 7, "", elsewhere):
        obstore.put(store, f"a/target/{UNFINISHED_FILE}", json.dumps({**about, "life": life}).encode())
        with pytest.raises(InvalidInputError, match="Wait for that edit"):
            target_location(place.uri)
    assert names(store) == {f"a/target/{UNFINISHED_FILE}"}


@pytest.mark.parametrize("other", [None, b"another edit"])
def test_an_edit_that_has_lost_its_claim_publishes_and_removes_nothing(
    store: MemoryStore, place: Location, other: bytes | None
) -> None:
    """Somebody took it for a killed one, and may have begun another edit."""
    told = "was removed or replaced meanwhile"
    with pytest.raises(InvalidInputError, match=told) as raised, new_target(place) as target:
        write(target, "state/1", b"1")
        write(target.last_files, "commits/0", b"done")
        obstore.delete(store, f"a/target/{UNFINISHED_FILE}")
        if other is not None:
            obstore.put(store, f"a/target/{UNFINISHED_FILE}", other)
        target.publish(b"{}", (), None)
    assert raised.value.code == ErrorCode.TARGET_EXISTS
    left = {"a/target/state/1"} | ({f"a/target/{UNFINISHED_FILE}"} if other is not None else set())
    assert names(store) == left


def test_of_two_that_begin_at_once_one_wins(
    store: MemoryStore, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen nothing."""
    first = ObjectTarget(place)
    first.claim()
    monkeypatch.setattr(object_claim, "refuse_objects", lambda _: None)
    with pytest.raises(InvalidInputError, match="was begun by process"):
        ObjectTarget(place).claim()
    first.discard(KeyError())
    obstore.put(store, "a/target/late", b"theirs")
    with pytest.raises(InvalidInputError, match="exists"):
        ObjectTarget(place).claim()
    assert names(store) == {"a/target/late"}


def test_a_store_that_replaces_what_it_is_to_create_is_no_place(
    store: MemoryStore, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *given, **options: put(*given, **{**options, "mode": "overwrite"}))
    with pytest.raises(UnsupportedError, match="NO_CREATE_ONLY_PUT"):
        ObjectTarget(place).claim()
    assert names(store) == set()


@pytest.mark.parametrize("path", ["", "/x", "../x", "a/../x", "a//b", "a/", "edit.json", UNFINISHED_FILE])
def test_paths_out_of_the_target_are_refused(place: Location, path: str) -> None:
    with pytest.raises(StateStoreError) as raised:
        ObjectTarget(place).create(path)
    assert raised.value.code == ErrorCode.EDIT_DIFFERS


def test_a_path_is_taken_once(place: Location) -> None:
    target = ObjectTarget(place)
    write(target, "one", b"")
    for again in (target, target.last_files):
        with pytest.raises(StateStoreError, match="one is written twice"):
            again.create("one")


@pytest.mark.parametrize(
    ("target", "folder", "inside"),
    [
        ("s3://b/source/t", "s3a://b/source", True),
        ("s3://b/source", "s3://b/source/chk-1", True),
        ("s3://b/source-2", "s3://b/source", False),
        ("s3://b/source", "s3://c/source", False),
        ("s3://user:key@b/source", "s3://b/source", True),
        ("gs://b/source", "s3://b/source", False),
        ("abfss://c@a.dfs.core.windows.net/s/t", "az://c/s", True),
        ("s3://b/t", "s3://b", True),
        ("s3://b/t", "/b/t", False),
    ],
)
def test_a_target_around_the_source_is_refused(target: str, folder: str, inside: bool) -> None:
    places = parse_location(target), parse_location(folder)
    if not inside:
        refuse_around(*places)
        return
    with pytest.raises(InvalidInputError, match="lies in the folder"):
        refuse_around(*places)


def test_a_file_of_the_source_that_is_gone_is_a_change(place: Location, tmp_path: Path) -> None:
    storage = pafs._MockFileSystem()
    for folder, name in ((folder_at(parse_location(str(tmp_path))), "gone"), (Folder(storage, ""), "gone")):
        with pytest.raises((ConflictError, StateStoreError), match="gone"), new_target(place) as target:
            copy_files([CopiedFile(folder, name, name, 4)], target)


def test_odd_names_arrive_as_they_are(store: MemoryStore, place: Location, tmp_path: Path) -> None:
    odd = ["a b", "100%", "%20", "ü", "e\u0301", "#?&=", "'\"", "b..", "x" * 200]
    for name in odd:
        (tmp_path / name).write_bytes(name.encode())
    folder = folder_at(parse_location(str(tmp_path)))
    with new_target(place) as target:
        copy_files([CopiedFile(folder, name, f"in/{name}") for name in odd], target)
        with target.shown(locally=False) as shown:
            inside = folder_at(parse_location(shown)).at("in")
            assert {name: inside.read_once(name) for name in inside.files()} == {name: name.encode() for name in odd}
        target.publish(b"{}", (), None)
    assert {name for name in odd if content(store, f"a/target/in/{name}") == name.encode()} == set(odd)


def test_a_copy_of_another_size_is_a_change(store: MemoryStore, place: Location, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    folder = folder_at(parse_location(str(tmp_path)))
    with pytest.raises(ConflictError, match="file has 5 bytes, it had 4"), new_target(place) as target:
        copy_files([CopiedFile(folder, "file", "file", 4)], target)
    assert names(store) == set()
