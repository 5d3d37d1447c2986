"""A statement of Spark sees one version of each source, although the sources move on whenever a table is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.engines.toys import write_package
from support.moving_sources import Moving, moved_on_by_looks, moving_stores, moving_toys

import statestore
from statestore.connector.sql import sql_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = "TIMESTAMP AS OF '2100-01-01T00:00:00Z'"
STORES = {
    "t": ["max(n) FROM {c}t", "max(n) FROM {history}", f"max(n) FROM {{c}}t {LATER}", "max(version) FROM {versions}"],
    "s": ["max(value) FROM {c}s.x", "max(value) FROM {c}s.y", f"max(value) FROM {{c}}s.x {LATER}"],
}
TOYS = {"toys": ["max(n) FROM {c}toys", "max(n) FROM {history}", "max(version) FROM {versions}"]}


@pytest.fixture(scope="module", params=["stores", "engine"])
def moving(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Moving]:
    folder = tmp_path_factory.mktemp("moving")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "engine":
            package = write_package(folder / "moving_toys.zip")  # a session takes one file of a name
            patch.syspath_prepend(package)
            spark.sparkContext.addPyFile(str(package))
        made = moving_stores(folder / "warehouse") if request.param == "stores" else moving_toys(folder / "toys")
        statestore.register(spark, made.path, "moves")
        yield made


def checked(moving: Moving, named: Callable[[str], dict[str, str]], ask: Callable[[str], Any]) -> None:
    """Ask for all parts of the sources in one statement."""
    parts = [
        (source, text.format(**named(source)))
        for source, several in (TOYS if "toys" in moving.numbers else STORES).items()
        for text in several
    ]
    before = moving.steps
    with moved_on_by_looks(moving):
        answer = list(ask("SELECT " + ", ".join(f"(SELECT {text}) AS c{n}" for n, (_, text) in enumerate(parts))))
    assert moving.steps > before, "nothing has moved"
    found: dict[str, set[int]] = {}
    for (source, text), value in zip(parts, answer, strict=True):
        found.setdefault(source, set()).add(moving.numbers[source][value] if "version" in text else value)
    assert all(len(numbers) == 1 for numbers in found.values()), (found, parts)


@pytest.mark.quick("stores")
def test_a_statement_over_a_catalog(spark: SparkSession, moving: Moving) -> None:
    def named(source: str) -> dict[str, str]:
        return {"c": "moves.", "history": f"moves.{source}.history", "versions": f"moves.{source}.versions"}

    for _ in range(2):  # the second one is newer
        last = moving.steps
        checked(moving, named, lambda text: spark.sql(text).collect()[0])
    assert moving.steps > last


@pytest.mark.quick("stores-None")
@pytest.mark.parametrize("reason", [None, pytest.param("a process of its own", marks=pytest.mark.slow)])
def test_a_statement_of_sql(
    spark: SparkSession, moving: Moving, monkeypatch: pytest.MonkeyPatch, reason: str | None
) -> None:
    """The frame shows the same rows when it is read again. A process that opens the tables anew is told versions."""
    if reason is not None:
        monkeypatch.setattr(sql_spark, "why_unplanned", lambda spark, own_schema: reason)

    def named(source: str) -> dict[str, str]:
        return {"c": "", "history": f"history('{source}')", "versions": f"`{source}$versions`"}

    def ask(text: str) -> Any:
        frame = statestore.sql(str(moving.path), text, spark=spark)
        moving.move()
        (first,), (again,) = frame.collect(), frame.collect()
        assert first == again
        return first

    checked(moving, named, ask)
