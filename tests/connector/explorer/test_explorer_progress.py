"""The progress of a long read: a share of the rows that it looks at, where their number is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import statestore
from statestore.connector.explorer.app import application
from statestore.connector.explorer.limits import ASKED, Limits, NobodyWaits
from statestore.connector.explorer.opened_paths import OpenedPaths
from statestore.connector.explorer.pages import count_of
from statestore.connector.explorer.row_files import RowFiles
from statestore.formats.state_table import Query
from statestore.formats.values.filters import parse_filters


@dataclass(frozen=True)
class Part:
    rows: int | None
    batches: tuple[int, ...]  # the rows of each that pass the filters


class Parted:
    """A table in the given parts."""

    def __init__(self, *parts: Part) -> None:
        self.parts = parts

    def splits(self, query: Query) -> Sequence[Part]:
        return self.parts

    def read(self, split: Part, query: Query) -> Iterator[pa.RecordBatch]:
        for rows in split.batches:
            yield pa.record_batch({"k": pa.array(range(rows), pa.int64())})


def seen(*parts: Part) -> list[tuple[int, int | None]]:
    limits = Limits()
    table: Any = Parted(*parts)
    found = [(limits.looked, limits.of) for _ in limits.read(table, Query())]
    return [*found, (limits.looked, limits.of)]


def test_rows_of_a_read_are_counted_as_they_are_looked_at() -> None:
    assert seen(Part(5, (2, 3)), Part(4, (4,))) == [(2, 9), (5, 9), (9, 9), (9, 9)]


def test_rows_that_filters_leave_out_count_with_their_part() -> None:
    assert seen(Part(1000, (1,)), Part(500, ()), Part(500, (2,))) == [(1, 2000), (1502, 2000), (2000, 2000)]


def test_more_rows_than_a_part_has_are_no_more_than_all() -> None:
    assert seen(Part(3, (2, 2)), Part(1, (1,))) == [(2, 4), (3, 4), (4, 4), (4, 4)]


def test_an_unknown_part_makes_the_share_unknown() -> None:
    assert {of for _, of in seen(Part(5, (5,)), Part(None, (7, 7)))} == {None}


def test_a_store_knows_its_share_and_a_cancelled_read_ends(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "own")
    with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        for number in range(1_000):
            store.put(f"i{number}", float(number), timestamp=number)
        store.commit()
    table = statestore.inspect(tmp_path / "own").open("prices")
    limits = Limits()
    query = Query(filters=parse_filters([("price", ">=", 990.0)]))
    assert count_of(table, query, limits) == 10
    assert (limits.rows, limits.looked, limits.of) == (10, 1_000, 1_000)
    limits.gone.set()
    with pytest.raises(NobodyWaits):
        count_of(table, query, limits)


def test_the_page_asks_for_progress_by_the_name_of_its_question(tmp_path: Path) -> None:
    client = TestClient(application(OpenedPaths([str(tmp_path)], {}), RowFiles(tmp_path)))
    limits = Limits()
    ASKED["mine"] = limits
    limits.rows, limits.looked, limits.of = 3, 40, 100
    assert client.get("/api/progress", params={"ask": "mine"}).json() == {"rows": 3, "looked": 40, "of": 100}
    limits.of = None
    assert client.get("/api/progress", params={"ask": "mine"}).json() == {"rows": 3, "looked": 40, "of": None}
    assert client.get("/api/progress", params={"ask": "other"}).json() == {"rows": None, "looked": None, "of": None}
