"""Parts of a keyed state: each has all rows of its key groups, and about so many bytes for each thread of its read."""

from __future__ import annotations

import pytest

from statestore.formats.flink import stored_parts
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RelativeHandle, RocksHandle
from statestore.formats.flink.stored_parts import PART_BYTES, parts_of
from statestore.formats.places.reading_threads import reading_in_tasks

GROUPS = 8
BLOCK = PART_BYTES // 4


def savepoint(block: int) -> KeyGroupHandle:
    offsets = tuple(100 + number * block for number in range(GROUPS))
    return KeyGroupHandle("savepoint", 0, offsets, RelativeHandle("state", 100 + GROUPS * block))


def database(size: int) -> RocksHandle:
    tables = (("000001.sst", RelativeHandle("a", size)),)
    return RocksHandle(1, "backend", 0, GROUPS, RelativeHandle("header", 10), tables, ())


def spans(handle: KeyGroupHandle | RocksHandle, asked: set[int] | None = None) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in parts_of([handle], asked, is_local=True)]


@pytest.mark.parametrize("handle", [savepoint(BLOCK), database(GROUPS * BLOCK)], ids=["savepoint", "database"])
def test_a_task_gets_a_part_of_bounded_bytes(handle: KeyGroupHandle | RocksHandle) -> None:
    with reading_in_tasks():
        assert spans(handle) == [(0, 3), (4, 7)]


@pytest.mark.parametrize("handle", [savepoint(BLOCK), database(GROUPS * BLOCK)], ids=["savepoint", "database"])
def test_a_read_with_several_threads_gets_larger_parts(
    handle: KeyGroupHandle | RocksHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_parts, "reading_threads", lambda: 2)
    assert spans(handle) == [(0, 7)]


def test_large_key_groups_are_parts_of_their_own() -> None:
    with reading_in_tasks():
        assert spans(savepoint(2 * PART_BYTES)) == [(group, group) for group in range(GROUPS)]


def test_parts_have_only_the_asked_key_groups() -> None:
    with reading_in_tasks():
        assert spans(savepoint(BLOCK), {1, 2, 6}) == [(1, 2), (6, 6)]


def test_a_database_in_an_object_store_is_one_part_also_where_key_groups_between_are_not_asked_for() -> None:
    for asked, span in ((None, (0, 7)), ({1, 4, 6, 90}, (1, 6)), ({3}, (3, 3))):
        found = parts_of([database(GROUPS * BLOCK)], asked, is_local=False)
        assert [(part.first, part.last) for part in found] == [span]
    assert not parts_of([database(GROUPS * BLOCK)], {90}, is_local=False)
