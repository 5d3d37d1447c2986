"""A range has one spelling in Python and in SQL; any other one is an error that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import statestore
from statestore.connector.options import checked_options
from statestore.formats.errors import InvalidInputError

OTHERS = [
    ("from_version", "start_version"),
    ("starting_version", "start_version"),
    ("startingVersion", "start_version"),
    ("startVersion", "start_version"),
    ("since_commit", "start_version"),
    ("to_version", "end_version"),
    ("endingVersion", "end_version"),
    ("start_timestamp", "start_time"),
    ("starting_timestamp", "start_time"),
    ("from_time", "start_time"),
    ("end_timestamp", "end_time"),
    ("endingTimestamp", "end_time"),
    ("until", "end_version or end_time"),
    ("start", "start_version or start_time"),
    ("strat_version", "start_version"),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests only read it."""
    folder = tmp_path_factory.mktemp("w")
    catalog = statestore.connect(folder)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for moment in (1, 2):
            store.put("a", moment, timestamp=moment)
            store.commit()
    with catalog.create_store("keyed", kind="keyed", key={"k": "string"}) as keyed, keyed.backend() as backend:
        state = backend.value_state("n", "bigint")
        backend.set_current_key("a")
        state.update(1)
        keyed.commit([backend.snapshot("full").result()])
    return folder


@pytest.mark.parametrize("call", ["changes", "diff"])
def test_python_names_the_right_spelling(warehouse: Path, call: str) -> None:
    with statestore.connect(warehouse).open_store("s") as store:
        for table in (store, statestore.inspect(warehouse).table("s")):
            for given, right in OTHERS:
                told = rf"UNKNOWN_OPTION\] {call}\(…\) .*'{given}'; write .*{right}"
                with pytest.raises(InvalidInputError, match=told):
                    getattr(table, call)(**{given: 1})


def test_sql_names_the_right_spelling(warehouse: Path) -> None:
    for given, right in OTHERS:
        if given != "strat_version":
            told = rf"INVALID_SQL\].* changes\(…\) .*'{given}'; write {right}"
            with pytest.raises(InvalidInputError, match=told):
                statestore.sql(str(warehouse), f"SELECT * FROM changes('s', {given} => 1)")


@pytest.mark.parametrize(("given", "right"), [("timestampAsOf", "as_of"), ("version_as_of", "version")])
def test_moments_have_one_spelling_too(warehouse: Path, given: str, right: str) -> None:
    table = statestore.inspect(warehouse).table("s")
    for call in (table.scan, table.get):
        with pytest.raises(InvalidInputError, match=rf"no argument '{given}'; write {right}"):
            call(**{"key": "a", given: 1} if call == table.get else {given: 1})


def test_history_is_a_range_of_times_only(warehouse: Path) -> None:
    """A version in its range had no effect in SQL before."""
    with pytest.raises(InvalidInputError, match=r"history\(…\) has no argument 'start_version'; write start_time"):
        statestore.sql(str(warehouse), "SELECT * FROM history('s', start_version => 1)")
    with pytest.raises(InvalidInputError, match=r"changes.* is given start_version twice"):
        statestore.sql(str(warehouse), "SELECT * FROM changes('s', start_version => 1, start_version => 2)")


def test_the_older_names_of_the_range_of_a_history_mean_the_same(warehouse: Path) -> None:
    table: Any = statestore.inspect(warehouse).table("s")
    expected = table.history(start_time=1, end_time=1).read_all()
    assert expected.num_rows == 1
    assert table.history(start=1, end=1).read_all() == expected
    with pytest.raises(InvalidInputError, match="start_time twice"):
        table.history(start=1, start_time=1)


@pytest.mark.parametrize(
    ("given", "right"),
    [("from_version", "startingVersion"), ("start_time", "startingTimestamp"), ("endVersion", "endingVersion")],
)
def test_spark_has_its_own_spelling(given: str, right: str) -> None:
    with pytest.raises(InvalidInputError, match=f"UNKNOWN_OPTION.*did you mean {right}"):
        checked_options({given: "1"}, "read")
