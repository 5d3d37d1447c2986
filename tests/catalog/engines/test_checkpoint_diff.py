"""`diff` of two batches of a checkpoint, applied to the rows of the one, gives the rows of the other: for all types."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index
from support.command_line import run
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.figures import figures_of


def text(row: dict[str, Any]) -> str:
    return str(sorted(row.items()))


@pytest.mark.quick("*join__hdfs", "*sess__rkcl")
@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK[::2]))
def test_the_difference_makes_one_batch_of_another(name: str) -> None:
    found = statestore.inspect(checkpoint_path(name))
    for table in map(found.table, found.tables()):
        first, last = table.table.kept_versions()
        states = {
            batch: Counter(text(row) for row in table.scan(version=batch).read_all().to_pylist())
            for batch in (first, last - 1, last)
        }
        for old, new in ((first, last), (last - 1, last), (last, first)):
            rows = Counter(states[old])
            for change in table.diff(old, new).read_all().to_pylist():
                key = {name: value for name, value in change.items() if not name.startswith("_")}
                if change["_change"] != "added":
                    rows[text(key | change["_old"])] -= 1
                if change["_change"] != "removed":
                    rows[text(key | change["_new"])] += 1
                assert change["_old"] != change["_new"]
            assert min(rows.values(), default=0) >= 0 and +rows == states[new], table.table.name


@pytest.mark.parametrize("name", mostly_slow(sorted(index()), QUICK))
def test_inspect_names_the_types_of_every_state(name: str) -> None:
    """Types that stores of this project do not have are named, too: no state looks damaged for its types."""
    told = run("inspect", checkpoint_path(name), "--json").rows
    assert told and all((table["status"], table["health"]) == ("ok", []) for table in told)


@pytest.mark.quick("*dedup*", "*limit*")
@pytest.mark.parametrize("name", ["spark4.3.0-aggmulti__rkcl", "spark4.3.0-limit__rkcl", "spark4.3.0-dedup__hdfs"])
def test_reports_take_keys_that_stores_of_ours_can_not_have(name: str) -> None:
    """Floating-point numbers, and columns without a type."""
    figures = figures_of(open_warehouse(checkpoint_path(name)).open("state").pin())
    rows = statestore.inspect(checkpoint_path(name)).table("state").history().read_all().num_rows
    assert sum(cell["rows"] for cell in figures.heat) == rows > 0
    assert figures.busiest
