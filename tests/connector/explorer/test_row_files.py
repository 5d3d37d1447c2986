"""Files of rows are written side by side, and one that is cancelled is written by another who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from statestore.connector.explorer import row_files
from statestore.connector.explorer.limits import Limits, NobodyWaits
from statestore.connector.explorer.questions import Sorting
from statestore.connector.explorer.row_files import RowFile, RowFiles
from statestore.formats.engine import WholePart
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query, StateTable

WAIT = 30


@dataclass
class Held:
    """A table whose reads begin, and go on when the test says so."""

    name: str
    rows: int = 3
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    goes_on: threading.Event = field(default_factory=threading.Event)
    reads: int = 0
    identity: str = "one"

    def kept_versions(self) -> tuple[int, int]:
        return (0, 1)

    def schema(self, query: Query) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def splits(self, query: Query) -> list[WholePart]:
        return [WholePart()]

    def read(self, split: WholePart, query: Query) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        self.begun.release()
        yield pa.record_batch({"n": pa.array(range(self.rows), pa.int64())})
        assert self.goes_on.wait(WAIT)
        yield pa.record_batch({"n": pa.nulls(1, pa.int64())})


def as_table(held: Held) -> StateTable:
    return cast("StateTable", held)  # the part of a table that row_files ask


def values(row_file: RowFile, sorting: Sorting | None = None) -> list[Any]:
    return list(row_file.rows(sorting, 0, 100, Limits())["n"].to_pylist())


def test_one_place_does_not_wait_for_another(tmp_path: Path) -> None:
    kept = RowFiles(tmp_path)
    slow, quick = Held("slow"), Held("quick", rows=1)
    quick.goes_on.set()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(kept.of, 0, as_table(slow), Query(), Limits())
        assert slow.begun.acquire(timeout=WAIT)
        assert values(pool.submit(kept.of, 1, as_table(quick), Query(), Limits()).result(WAIT)) == [0, None]
        assert not waiting.done()
        slow.goes_on.set()
        assert values(waiting.result(WAIT)) == [0, 1, 2, None]


def test_those_who_ask_the_same_wait_for_one_file(tmp_path: Path) -> None:
    kept, table = RowFiles(tmp_path), Held("t")
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(kept.of, 0, as_table(table), Query(), Limits()) for _ in range(3)]
        assert table.begun.acquire(timeout=WAIT)
        table.goes_on.set()
        found = [each.result(WAIT) for each in asked]
    assert table.reads == 1 and found[0] is found[1] is found[2]


def test_a_cancelled_writer_leaves_the_file_to_one_who_waits(tmp_path: Path) -> None:
    kept, table = RowFiles(tmp_path), Held("t")
    first, second = Limits(), Limits()
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(kept.of, 0, as_table(table), Query(), first)
        assert table.begun.acquire(timeout=WAIT)
        waiter = pool.submit(kept.of, 0, as_table(table), Query(), second)
        first.gone.set()
        table.goes_on.set()
        with pytest.raises(NobodyWaits):
            writer.result(WAIT)
        assert values(waiter.result(WAIT)) == [0, 1, 2, None]
    assert table.reads == 2 and len(list(tmp_path.iterdir())) == 1


def test_one_who_waits_can_be_cancelled(tmp_path: Path) -> None:
    kept, table = RowFiles(tmp_path), Held("t")
    gone = Limits()
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(kept.of, 0, as_table(table), Query(), Limits())
        assert table.begun.acquire(timeout=WAIT)
        waiter = pool.submit(kept.of, 0, as_table(table), Query(), gone)
        gone.gone.set()
        with pytest.raises(NobodyWaits):
            waiter.result(WAIT)
        table.goes_on.set()
        assert len(values(writer.result(WAIT))) == 4


def test_rows_of_a_file_that_was_replaced_can_still_be_read(tmp_path: Path) -> None:
    kept = RowFiles(tmp_path)
    tables = [Held(str(number), rows=number) for number in range(row_files.KEPT + 2)]
    for table in tables:
        table.goes_on.set()
    found = [kept.of(0, as_table(table), Query(), Limits()) for table in tables]
    assert len(list(tmp_path.iterdir())) == row_files.KEPT
    assert values(found[1]) == [0, None]


def test_unknown_beginnings_come_first_if_asked(tmp_path: Path) -> None:
    table = Held("t")
    table.goes_on.set()
    row_file = RowFiles(tmp_path).of(0, as_table(table), Query(), Limits())
    assert values(row_file, Sorting("n", True)) == [2, 1, 0, None]
    assert values(row_file, Sorting("n", False, nulls_first=True)) == [None, 0, 1, 2]


def test_structs_are_sorted_by_their_fields_and_lists_are_refused(tmp_path: Path) -> None:
    """Python's order of the tuples is the truth; a null comes last in either direction, as in other columns."""
    values = [("b", 2.5, "x"), ("a", -1.5, "x"), ("a", -2.5, "y"), ("b", 2.5, "a"), ("", 0.0, "")]
    kind = pa.struct([("k", pa.string()), ("in", pa.struct([("f", pa.float64()), ("g", pa.string())]))])
    rows = [{"k": k, "in": {"f": f, "g": g}} for k, f, g in values]
    partly, null = {"k": None, "in": {"f": 1.0, "g": "z"}}, None
    batches = [pa.record_batch({"s": pa.array(part, kind)}) for part in (rows[:2], [null, partly], rows[2:])]
    with row_files.row_file_writer(tmp_path / "s", batches[0].schema) as file:
        for batch in batches:
            file.add(batch)
    row_file = file.finished()
    for descending in (False, True):
        found = row_file.rows(Sorting("s", descending), 0, 10, Limits())["s"].to_pylist()
        ordered = [{"k": k, "in": {"f": f, "g": g}} for k, f, g in sorted(values, reverse=descending)]
        assert found == [*ordered, partly, null]
    with row_files.row_file_writer(
        tmp_path / "l", pa.schema([("l", pa.struct([("x", pa.list_(pa.int64()))]))])
    ) as file:
        pass
    lists = file.finished()
    with pytest.raises(InvalidInputError, match=r"sort is 'l'.* has no order here"):
        lists.rows(Sorting("l", False), 0, 10, Limits())
