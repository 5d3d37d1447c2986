"""One statement on Spark: each table that it names becomes a DataFrame over the data source, with time as options."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from statestore.catalog.warehouse import Warehouse
from statestore.connector.identifiers import spark_quoted
from statestore.connector.spark.intervals import with_intervals
from statestore.connector.spark.session.readers_and_writers import ZONE_CONF, why_unplanned
from statestore.connector.spark.session.register import register
from statestore.connector.sql.named_tables import (
    Value,
    check_answerable,
    columns_named,
    find_table,
    is_qualified,
    queries_of,
    time_of,
    with_exact_times,
)
from statestore.connector.sql.spark_dialect import SparkSQL
from statestore.connector.sql.sql_statement import (
    TableReference,
    check_reads_only,
    described_history,
    find_references,
    located,
    parse,
    position_of_quoted,
    replace_table,
    words,
)
from statestore.formats.engines import engine_options
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import format_time, time_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "arrow_statestore"
# The part that Spark adds to a message: a position in a statement that the user has not written, and the plan.
_PLAN = re.compile(r"[;.]?\s*(SQLSTATE: \w+;?\s*)?(\(?line \d+, pos(ition)? \d+\)?|line \d+ pos \d+;)\s.*", re.DOTALL)
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TIMES = (TimestampType, TimestampNTZType, DateType)
_READ_AS = {"integer": "{}", "time": "unix_micros(CAST({} AS TIMESTAMP))", "text": "{}"}


def run_on_spark(warehouse: Warehouse, text: str, spark: SparkSession) -> DataFrame:
    """Run one statement and return a DataFrame; see `statestore.connector.sql.query.sql`.

    Tables that are not in the warehouse are looked up in the session. The scans stay distributed; columns that the
    statement cannot need are not read.
    """
    register(spark)
    if [word.upper() for word in words(text, SparkSQL)] == ["SHOW", "STORES"]:
        return spark.createDataFrame([(name,) for name in warehouse.tables()], "name string")
    described = described_history(text, SparkSQL)
    if described is not None:
        table = find_table(warehouse, f"{find_table(warehouse, *described).name}$versions")
        return _read(warehouse, spark, table, Query(), None).orderBy("version", ascending=False)
    tree = parse(text, SparkSQL)
    references = find_references(tree, text, partial(is_qualified, warehouse))
    check_reads_only(tree, text, lambda name: any(n.lower() == name.lower() for n in warehouse.tables()))
    queries = queries_of(references, _SparkEvaluator(spark))
    scans = _scans(warehouse, spark, references, queries)
    if not scans:
        return _analysed(spark, text, text, {})
    for scan in scans:
        replace_table(scan.reference.node, scan.view, scan.reference.shown)
    return _analysed_over(warehouse, spark, text, tree, scans, columns_named(tree, [s.reference for s in scans]))


@dataclass(frozen=True)
class _Scan:
    reference: TableReference
    table: StateTable
    query: Query
    view: str


def _scans(
    warehouse: Warehouse, spark: SparkSession, references: Sequence[TableReference], queries: Sequence[Query]
) -> list[_Scan]:
    scans = []
    for reference, query in zip(references, queries, strict=True):
        try:
            table = find_table(warehouse, reference.name, reference.position)
        except NotFoundError:
            if reference.mode == "state" and spark.catalog.tableExists(_in_session(reference)):
                continue
            raise
        check_answerable(table, query, reference)
        scans.append(_Scan(reference, table, query, f"__statestore_{uuid.uuid4().hex}"))
    return scans


def _in_session(reference: TableReference) -> str:
    return ".".join(spark_quoted(part.name) for part in reference.node.parts)


def _analysed_over(
    warehouse: Warehouse,
    spark: SparkSession,
    text: str,
    tree: exp.Expr,
    scans: Sequence[_Scan],
    needed: set[str] | None,
) -> DataFrame:
    """The statement's DataFrame over the frames of its tables."""
    frames: dict[str, Any] = {}
    for scan in scans:
        columns = None if needed is None else _needed_columns(scan.table, scan.query, needed)
        frames[scan.view] = _read(warehouse, spark, scan.table, scan.query, columns)
    try:
        return _analysed(spark, tree.sql(dialect=SparkSQL), text, frames)
    except InvalidInputError:
        if needed is None:
            raise
    # Spark's message about a wrong column lists the existing ones, so it must see all of them.
    return _analysed_over(warehouse, spark, text, tree, scans, None)


def _analysed(spark: SparkSession, text: str, written: str, frames: Mapping[str, Any]) -> DataFrame:
    """The DataFrame of ``text``, which is ``written`` with other table names. Spark gets the frames of these names as
    parts of the statement: Spark Connect analyses a statement when it is run, and temporary views would be gone."""
    text = text.replace("{", "{{").replace("}", "}}") if frames else text
    for name in frames:
        text = text.replace(spark_quoted(name), f"{{{name}}}")
    try:
        return spark.sql(text, **frames)
    except PySparkException as error:
        said = _PLAN.sub("", str(error)).strip()
        raise located(
            InvalidInputError(ErrorCode.INVALID_SQL, said), position_of_quoted(said, written, SparkSQL)
        ) from error


def _needed_columns(table: StateTable, query: Query, needed: set[str]) -> list[str] | None:
    names = table.schema(query).names
    # The option is a list with commas; a row count alone still needs a column.
    kept = [name for name in names if name.lower() in needed] or list(names[:1])
    return None if any("," in name for name in kept) else kept


def _read(
    warehouse: Warehouse, spark: SparkSession, table: StateTable, query: Query, columns: Sequence[str] | None
) -> DataFrame:
    """The DataFrame of a table of the pinned warehouse, at the version of its source."""
    if why_unplanned(spark, own_schema=False) is None:
        from statestore.connector.spark.planner.planned_table import frame_of

        asked = replace(query, columns=None if columns is None else tuple(columns))
        return with_intervals(frame_of(spark, table, asked))
    reader = spark.read.format(SOURCE)
    query = _stated(table, query)
    for option, value in {**_options(query), **_selecting(warehouse, table.name, query)}.items():
        reader = reader.option(option, value)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    return reader.load(warehouse.address(table.name))


def _stated(table: StateTable, query: Query) -> Query:
    """The query with the version that it means, for a process that opens the table again.

    Changes by state time go by the newest version that process finds: no option states the version for them.
    """
    if query.mode != "changes":
        return query if query.version is not None else replace(query, version=table.kept_versions()[1])
    if query.end_version is not None or query.start_time is not None or query.end_time is not None:
        return query
    return replace(query, end_version=table.kept_versions()[1])


def _selecting(warehouse: Warehouse, name: str, query: Query) -> dict[str, str]:
    """Options of an engine that select the state; a version of the statement stands for one among them."""
    if "$" in name:
        return {}
    given = dict(warehouse.options)
    if query.version is None:
        return given
    return {
        option: value
        for option, value in given.items()
        if option != "versionAsOf" and all(known.alias != "versionAsOf" for _, known in engine_options(option))
    }


def _options(query: Query) -> dict[str, str]:
    options: dict[str, str] = {}
    if query.mode == "history":
        options["history"] = "true"
    if query.mode == "changes":
        options["readChangeFeed"] = "true"
    numbers = {"versionAsOf": query.version, "startingVersion": query.start_version, "endingVersion": query.end_version}
    times = {"timestampAsOf": query.as_of, "startingTimestamp": query.start_time, "endingTimestamp": query.end_time}
    options |= {option: str(value) for option, value in numbers.items() if value is not None}
    options |= {option: format_time(value) for option, value in times.items() if value is not None}
    return options


class _SparkEvaluator:
    """Versions and times as Spark computes them. A time without a zone is one of the session's time zone."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def time(self, text: str) -> int:
        return time_of(text, self._zone)

    def _zone(self) -> tzinfo:
        return time_zone(str(self.spark.conf.get(ZONE_CONF)), "the session's time zone")

    def evaluate(self, expressions: Sequence[exp.Expr]) -> list[Value]:
        texts = [with_exact_times(e, self, "timestamp_micros").sql(dialect=SparkSQL) for e in expressions]
        try:
            frame = self.spark.sql("SELECT " + ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts)))
            kinds = [_kind(field.dataType, text) for field, text in zip(frame.schema, texts, strict=True)]
            columns = [_READ_AS[kind].format(f"c{i}") for i, kind in enumerate(kinds)]
            row = frame.selectExpr(*columns).first()
        except PySparkException as error:
            said = str(error).partition("\n")[0]
            raise InvalidInputError(ErrorCode.INVALID_TIME, f"cannot evaluate {', '.join(texts)}: {said}") from error
        return [self._value(*found) for found in zip(kinds, row or (), texts, strict=True)]

    def _value(self, kind: Literal["integer", "time", "text"], value: Any, text: str) -> Value:
        if value is None:
            raise InvalidInputError(ErrorCode.INVALID_TIME, f"{text} is null; expected a time or an integer")
        return Value("time", self.time(value)) if kind == "text" else Value(kind, value)


def _kind(type_: DataType, text: str) -> Literal["integer", "time", "text"]:
    if isinstance(type_, _INTEGERS):
        return "integer"
    if isinstance(type_, StringType):
        return "text"
    if isinstance(type_, _TIMES):
        return "time"
    raise InvalidInputError(
        ErrorCode.INVALID_TIME,
        f"{text} is of type {type_.simpleString()}; expected a time or an integer of epoch milliseconds",
    )
