"""A time as text means the same in every door: the same forms, the same moment, the same refusals."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.command_line import run
from support.parameters import mostly_slow

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE = datetime(2024, 5, 1, 9, 30, tzinfo=UTC)
SECOND, FRACTION = MINUTE + timedelta(seconds=15), MINUTE + timedelta(seconds=15, milliseconds=250)
NEW_YORK = timedelta(hours=4)  # of the tests' session behind UTC, in summer
ACCEPTED = {
    "2024-05-01T09:30Z": MINUTE,
    "2024-05-01 09:30Z": MINUTE,
    "2024-05-01T09:30:15Z": SECOND,
    "2024-05-01 09:30:15.25Z": FRACTION,
    "2024-05-01T09:30:15.250999999Z": FRACTION,
    " 2024-05-01 09:30:15 Z ": SECOND,
    "2024-05-01T11:30+02": MINUTE,
    "2024-05-01 11:30 +02": MINUTE,
    "2024-05-01T11:30+0200": MINUTE,
    "2024-05-01T04:00:15-05:30": SECOND,
    "2024-05-01 09:30:15-00:00": SECOND,
    "2024-05-01 09:30 UTC": MINUTE,
    "2024-05-01 09:30:15 GMT": SECOND,
    "2024-05-01 11:30 Europe/Berlin": MINUTE,
    "2024-05-01T05:30:15.250 America/New_York": FRACTION,
    "1714555800000": MINUTE,
    "+1714555800000": MINUTE,
    "1714555815250ms": FRACTION,
}
WITHOUT_ZONE = {
    "2024-05-01T05:30": MINUTE,
    "2024-05-01 05:30": MINUTE,
    "2024-05-01 05:30:15": SECOND,
    "2024-05-01T05:30:15.25": FRACTION,
    "2024-05-01": datetime(2024, 5, 1, tzinfo=UTC) + NEW_YORK,
}
"""In the session's zone; elsewhere they are refused."""
REFUSED: dict[str, str] = {
    "": "INVALID_TIME",
    "yesterday": "INVALID_TIME",
    "2024": "INVALID_TIME",
    "2024-05": "INVALID_TIME",
    "2024-5-1": "INVALID_TIME",
    "20240501T0930Z": "INVALID_TIME",
    "2024-W18-3": "INVALID_TIME",
    "2024-05-01Z": "INVALID_TIME",
    "2024-05-01T09Z": "INVALID_TIME",
    "2024-05-01T24:00Z": "INVALID_TIME",
    "2024-05-01x09:30Z": "INVALID_TIME",
    "2024-02-30T09:30Z": "INVALID_TIME",
    "2024-05-01T09:30:15,25Z": "INVALID_TIME",
    "2024-05-01T09:30+2": "INVALID_TIME",
    "2024-05-01T09:30 CEST": "INVALID_TIME",
    "09:30Z": "INVALID_TIME",
    "09:30": "INVALID_TIME",
    "T09:30Z": "INVALID_TIME",
    "1714555800000.5": "INVALID_TIME",
    "2024-05-01T09:30 Mars/Base": "INVALID_TIME_ZONE",
    "2024-05-01T09:30+24:00": "INVALID_TIME_ZONE",
    "99999999999999999": "TIME_OUT_OF_RANGE",
    "0001-01-01T00:00+10:00": "TIME_OUT_OF_RANGE",
}
QUICK = ["2024-05-01T09:30Z", "2024-05-01 11:30 +02", "1714555815250ms", "2024-05-01 05:30:15", "2024-05-01"]
NAIVE = "is '{}' without a time zone, so the moment is not known; add one, like {}"
Ask = Callable[[str], Any]


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A value for each moment, its milliseconds, and others just before and after, so that the value tells the time."""
    folder = tmp_path_factory.mktemp("times")
    middle = [milliseconds(moment) for moment in {*ACCEPTED.values(), *WITHOUT_ZONE.values()}]
    times = sorted({time + shift for time in middle for shift in (-1, 0, 1)})
    with statestore.connect(folder).create_store("t", key={"k": "int"}, value={"ms": "bigint"}) as store:
        store.write(pa.table({"k": pa.array([1] * len(times), pa.int32()), "ms": times, "timestamp": times}))
    return str(folder)


def in_python(path: str) -> Ask:
    table = statestore.inspect(path).table("t")
    return lambda text: table.scan(as_of=text, columns=["ms"]).read_all()["ms"].to_pylist()


def of_a_key(path: str) -> Ask:
    def ask(text: str) -> Any:
        with statestore.connect(path).open_store("t") as store:
            record = store.get(1, as_of=text)
            return [] if record is None else [record.value]

    return ask


def on_the_command_line(path: str) -> Ask:
    def ask(text: str) -> Any:
        answer = run("scan", path, "t", f"--as-of={text}", "--json")
        if answer.code:
            raise RuntimeError(answer.err)
        return [row["ms"] for row in answer.rows]

    return ask


def attached(path: str) -> Ask:
    return lambda text: [ms for _, ms, *_ in statestore.attach(path, as_of=text).sql("FROM t").fetchall()]


def written(path: str) -> Ask:
    """A column of texts in rows to write."""

    def ask(text: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            store = statestore.connect(folder).create_store("t", key={"k": "int"}, value={"v": "int"})
            with store:
                store.write(
                    pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32()), "timestamp": [text]})
                )
                return [milliseconds(row["valid_from"]) for row in store.scan().read_all().to_pylist()]

    return ask


def put(path: str) -> Ask:
    """A value of a column of timestamps on the command line."""

    def ask(text: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            statestore.connect(folder).create_store("t", key={"k": "int"}, value={"v": "timestamp"}).close()
            answer = run("put", folder, "t", "1", text)
            if answer.code:
                raise RuntimeError(answer.err)
            found = statestore.inspect(folder).table("t").scan(columns=["v"]).read_all()["v"].to_pylist()
            return [milliseconds(moment) for moment in found]

    return ask


def filtered(path: str) -> Ask:
    """A filter on a column of timestamps, in which one moment of the store is the newest up to the text."""
    table = statestore.inspect(path).table("t")

    def ask(text: str) -> Any:
        return table.history(columns=["ms"], filter=("valid_from", "<=", text)).read_all()["ms"].to_pylist()[-1:]

    return ask


def in_duckdb(path: str, written: str = "'{}'") -> Ask:
    text = f"SELECT ms FROM t TIMESTAMP AS OF {written}"
    return lambda time: statestore.sql(path, text.format(time))["ms"].to_pylist()


DOORS: dict[str, Callable[[str], Ask]] = {
    "Python": in_python,
    "a key in Python": of_a_key,
    "command line": on_the_command_line,
    "attach": attached,
    "DuckDB": in_duckdb,
    "DuckDB TIMESTAMP": functools.partial(in_duckdb, written="TIMESTAMP '{}'"),
    "DuckDB expression": functools.partial(in_duckdb, written="TIMESTAMP '{}' - INTERVAL '0 seconds'"),
}


def refusal(ask: Ask, text: str) -> str:
    """The error of a door."""
    with pytest.raises(Exception) as caught:
        ask(text)
    return str(caught.value)


@pytest.mark.parametrize("door", DOORS)
def test_the_same_forms_are_the_same_moments(path: str, door: str) -> None:
    ask = DOORS[door](path)
    assert {text: ask(text) for text in ACCEPTED} == {text: [milliseconds(at)] for text, at in ACCEPTED.items()}


@pytest.mark.parametrize("door", DOORS)
def test_the_same_forms_are_refused(path: str, door: str) -> None:
    ask = DOORS[door](path)
    assert {text: code for text, code in REFUSED.items() if f"{code}] " not in refusal(ask, text)} == {}


@pytest.mark.parametrize("door", DOORS)
def test_a_time_without_a_zone_is_one_error(path: str, door: str) -> None:
    ask = DOORS[door](path)
    for text in WITHOUT_ZONE:
        said = refusal(ask, text)
        assert "NAIVE_" in said
        assert NAIVE.format(text, f"{text}Z" if ":" in text else f"{text}T00:00:00Z") in " ".join(said.split())


CELLS: dict[str, Callable[[str], Ask]] = {"column of texts": written, "put": put, "filter": filtered}
"""Where a time is a cell, or is compared with one."""


@pytest.mark.quick("column of texts", "filter")
@pytest.mark.parametrize("door", CELLS)
def test_cells_have_the_same_forms(path: str, door: str) -> None:
    """A column of texts takes no numbers, which belong into a column of integers."""
    ask = CELLS[door](path)
    taken = {text: at for text, at in ACCEPTED.items() if door != "column of texts" or "-" in text}
    assert {text: ask(text) for text in taken} == {text: [milliseconds(at)] for text, at in taken.items()}
    refused = {*REFUSED, *(ACCEPTED.keys() - taken.keys())}
    said = {text: refusal(ask, text) for text in refused}
    codes = ("INVALID_TIME", "TIME_OUT_OF_RANGE") if door == "column of texts" else ("WRONG_VALUE", "INVALID_FILTER")
    assert {text: error for text, error in said.items() if not any(f"[{code}" in error for code in codes)} == {}
    for text in WITHOUT_ZONE:
        assert NAIVE.format(text, f"{text}Z" if ":" in text else f"{text}T00:00:00Z") in refusal(ask, text)


def test_filters_on_the_times_of_a_key(tmp_path: Path) -> None:
    """Texts find the rows that datetimes find, with every operator, where the key is looked up, too."""
    with statestore.connect(tmp_path).create_store(
        "w", "window", key={"k": "string"}, value={"v": "int"}, retention="1 day", window_size="1 minute"
    ) as store:
        for minute in range(4):
            store.put("a", minute, MINUTE + timedelta(minutes=minute))
        store.commit()
    table = statestore.inspect(tmp_path).table("w")
    at, end = "2024-05-01T11:32 +02", "2024-05-01 09:33 UTC"

    def found(*filters: tuple[Any, ...]) -> list[int]:
        return sorted(table.scan(columns=["v"], filter=list(filters)).read_all()["v"].to_pylist())

    assert found(("window_start", "=", at)) == [2]
    assert found(("k", "=", "a"), ("window_start", "=", at), ("window_end", "=", end)) == [2]
    assert found(("window_start", "in", [at, MINUTE])) == [0, 2]
    assert found(("window_start", "!=", at)) == [0, 1, 3]
    assert found(("window_start", "<", at)) == [0, 1]


def by_options(spark: SparkSession, path: str, texts: list[str]) -> DataFrame:
    read = [spark.read.format("statestore").option("timestampAsOf", text).load(f"{path}/t") for text in texts]
    return functools.reduce(lambda a, b: a.union(b), [frame.selectExpr("ms") for frame in read])


def by_statement(spark: SparkSession, path: str, texts: list[str], written: str = "'{}'") -> DataFrame:
    parts = [f"SELECT ms FROM t TIMESTAMP AS OF {written.format(text)}" for text in texts]
    return statestore.sql(path, " UNION ALL ".join(parts), spark=spark)


SPARK_DOORS: dict[str, Callable[..., DataFrame]] = {
    "option": by_options,
    "sql": by_statement,
    "sql TIMESTAMP": functools.partial(by_statement, written="TIMESTAMP '{}'"),
    "sql expression": functools.partial(by_statement, written="TIMESTAMP '{}' - INTERVAL '0' SECOND"),
}


@pytest.mark.parametrize("texts", mostly_slow([QUICK, [*ACCEPTED, *WITHOUT_ZONE]], [QUICK]))
@pytest.mark.parametrize("door", mostly_slow(SPARK_DOORS, 2))
def test_spark_reads_the_same_forms_and_those_without_a_zone_in_the_session_s(
    spark: SparkSession, path: str, door: str, texts: list[str]
) -> None:
    moments = ACCEPTED | WITHOUT_ZONE
    found = SPARK_DOORS[door](spark, path, texts).toArrow()["ms"].to_pylist()
    assert sorted(found) == sorted(milliseconds(moments[text]) for text in texts)


@pytest.mark.parametrize("refused", mostly_slow([list(REFUSED)[:3], list(REFUSED)[3:]], 2))
@pytest.mark.parametrize("door", SPARK_DOORS)
def test_spark_refuses_the_same_forms(spark: SparkSession, path: str, door: str, refused: list[str]) -> None:
    ask = functools.partial(SPARK_DOORS[door], spark, path)
    assert [text for text in refused if f"{REFUSED[text]}] " not in refusal(lambda t: ask([t]), text)] == []


def test_duckdb_takes_a_time_without_a_zone_before_at_time_zone(path: str) -> None:
    ask = in_duckdb(path, "TIMESTAMP '{}' AT TIME ZONE 'America/New_York'")
    assert ask("2024-05-01 05:30") == [milliseconds(MINUTE)]
