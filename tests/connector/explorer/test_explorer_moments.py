"""Versions and times as they are typed on the page, and the progress of a question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.explorer.app import moment_of
from statestore.connector.explorer.limits import ASKED, Limits
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import StateTable
from statestore.formats.values.times import format_time


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    folder = tmp_path_factory.mktemp("moments")
    with statestore.connect(folder).create_store("s", key={"k": "string"}, value={"n": "bigint"}) as store:
        for number in range(3):
            store.put("a", number, timestamp=number)
            store.commit()
    return open_warehouse(folder).pin().open("s")


def times(table: StateTable) -> list[int]:
    found: list[int] = table.versions()["timestamp"].cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize(
    ("typed", "version", "as_of"),
    [
        ("2", 2, ""),
        (" latest ", 3, ""),
        ("1@1970-01-01T00:00:00.001Z", 1, "1970-01-01T00:00:00.001Z"),
        ("latest@5ms", 3, "1970-01-01T00:00:00.005Z"),
        ("2999-01-01T00:00Z", 3, ""),
        ("2999-01-01 00:00 UTC", 3, ""),
    ],
)
def test_versions_and_times_are_typed(table: StateTable, typed: str, version: int, as_of: str) -> None:
    assert moment_of(table, typed) == {"version": version, "as_of": as_of, "note": ""}


def test_a_time_is_the_newest_version_by_then(table: StateTable) -> None:
    for version, moment in enumerate(times(table)):
        newest = max(number for number, each in enumerate(times(table)) if each <= moment)
        assert moment_of(table, format_time(moment))["version"] == newest >= version
    early = moment_of(table, "1971-01-01T00:00Z")
    assert early["version"] == 0 and "nothing is kept" in early["note"]


@pytest.mark.parametrize(
    ("typed", "said"), [("9", "0 to 3"), ("nonsense", "nonsense"), ("9@2024-01-01T00:00Z", "0 to 3")]
)
def test_what_is_no_moment_is_refused(table: StateTable, typed: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        moment_of(table, typed)


def test_rows_are_counted_while_a_question_is_answered() -> None:
    limits = Limits()
    ASKED["one"] = limits

    def batches() -> Iterator[Any]:
        for size in (3, 4):
            yield pa.record_batch({"n": pa.array(range(size))})

    seen = [ASKED["one"].rows for _ in limits.watched(batches())]
    assert seen == [3, 7]
    del limits
    assert "one" not in ASKED
