"""The demo's join on its two engines: each flight with the weather as of its departure, by two orders of records.

`weather` holds observations by the time they were made (state time). `weather_by_arrival` holds them by the time they
arrived, as a table without versions would. Both engines run the same SQL over a view `joined`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.catalog import connect
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError

Ask = Callable[[str], pa.Table]

STORES = {"by_state": "weather", "by_arrival": "weather_by_arrival"}

DUCKDB_JOINED = """
CREATE TABLE joined AS
SELECT f.*, s.wind_speed AS wind, a.wind_speed AS wind_by_arrival, a.observed AS observed_by_arrival
FROM (SELECT row_number() OVER () AS number, * FROM flights) f
ASOF JOIN by_state s ON f.origin = s.origin AND f.departed >= s.valid_from
ASOF JOIN by_arrival a ON f.origin = a.origin AND f.departed >= a.valid_from
"""

# Spark has no as-of join: cut the intervals into hours, join on airport and hour, and keep the interval that fits.
SPARK_HOURS = """
CREATE OR REPLACE TEMPORARY VIEW {name}_hours AS
SELECT *, explode(sequence(
    date_trunc('HOUR', valid_from),
    date_trunc('HOUR', coalesce(valid_to, valid_from + INTERVAL 7 DAYS)), INTERVAL 1 HOUR)) AS hour
FROM {name}
"""
SPARK_JOINED = """
CREATE OR REPLACE TEMPORARY VIEW joined AS
SELECT f.*, s.wind_speed AS wind, a.wind_speed AS wind_by_arrival, a.observed AS observed_by_arrival
FROM flights f
JOIN by_state_hours s ON f.origin = s.origin AND date_trunc('HOUR', f.departed) = s.hour
    AND f.departed >= s.valid_from AND (s.valid_to IS NULL OR f.departed < s.valid_to)
JOIN by_arrival_hours a ON f.origin = a.origin AND date_trunc('HOUR', f.departed) = a.hour
    AND f.departed >= a.valid_from AND (a.valid_to IS NULL OR f.departed < a.valid_to)
"""

BY_WIND = """
WITH state AS (
    SELECT cast(floor(wind / 5) * 5 AS int) AS wind_mph, count(*) AS flights, avg(dep_delay) AS mean_delay
    FROM joined WHERE wind < 40 GROUP BY 1),
arrival AS (
    SELECT cast(floor(wind_by_arrival / 5) * 5 AS int) AS wind_mph, count(*) AS flights, avg(dep_delay) AS mean_delay
    FROM joined WHERE wind_by_arrival < 40 GROUP BY 1)
SELECT wind_mph, s.flights AS flights, round(s.mean_delay, 2) AS mean_delay,
       a.flights AS flights_by_arrival, round(a.mean_delay, 2) AS mean_delay_by_arrival
FROM state s JOIN arrival a USING (wind_mph) ORDER BY wind_mph
"""
TOTALS = """
SELECT count(*) AS flights,
       count(CASE WHEN wind <> wind_by_arrival THEN 1 END) AS wrong_wind,
       round(100.0 * count(CASE WHEN wind <> wind_by_arrival THEN 1 END) / count(*), 2) AS wrong_percent,
       round(avg(CASE WHEN wind <> wind_by_arrival THEN abs(wind - wind_by_arrival) END), 2) AS mean_error_mph
FROM joined
"""
WORST = """
SELECT flight, origin, dest, departed, dep_delay, round(wind, 1) AS wind,
       round(wind_by_arrival, 1) AS wind_by_arrival, observed_by_arrival
FROM joined WHERE wind < 100 AND wind_by_arrival < 100
ORDER BY abs(wind - wind_by_arrival) DESC, departed, flight LIMIT 3
"""
DAY = """
SELECT departed, wind, wind_by_arrival FROM joined
WHERE origin = '{origin}' AND departed BETWEEN TIMESTAMP '{start}' AND TIMESTAMP '{end}' AND wind < 100
ORDER BY departed
"""


def day_around(worst: pa.Table) -> str:
    """The query for all departures of the airport within half a day of the first row of WORST."""
    row = worst.to_pylist()[0]
    moment = row["departed"].astimezone(UTC)
    start, end = (f"{moment + timedelta(hours=h):%Y-%m-%d %H:%M:%S}+00:00" for h in (-12, 8))
    return DAY.format(origin=row["origin"], start=start, end=end)


def duckdb_join(warehouse: Path, flights: pa.Table) -> Ask:
    """Join on DuckDB; return a function that runs a query over `joined`."""
    from statestore.connector.duckdb.attach import attach

    connection = attach(str(warehouse))
    connection.register("flights", flights)
    catalog = connect(warehouse)
    for name, store in STORES.items():
        connection.register(name, catalog.open_store(store).history().read_all())
    connection.execute(DUCKDB_JOINED)
    return lambda query: connection.sql(query).to_arrow_table()


def spark_join(warehouse: Path, flights: pa.Table) -> Ask:
    """Join on Spark, which reads both histories through the data source; return a function like `duckdb_join`."""
    spark = start_spark()
    spark.createDataFrame(flights).createOrReplaceTempView("flights")
    for name, store in STORES.items():
        reader = spark.read.format("statestore").option("history", "true")
        reader.load(str(warehouse / store)).createOrReplaceTempView(name)
        spark.sql(SPARK_HOURS.format(name=name))
    spark.sql(SPARK_JOINED)
    spark.sql("CACHE TABLE joined")
    return lambda query: spark.sql(query).toArrow()


def start_spark() -> Any:
    """A small local session with this package's source. NotFoundError SPARK_NOT_INSTALLED and JAVA_NOT_FOUND name the
    package to install."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise NotFoundError(
            ErrorCode.SPARK_NOT_INSTALLED,
            "pyspark is missing; type: pip install 'statestore[spark]', or use --engine duckdb",
        ) from None
    from statestore.connector.spark.session.register import register

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("statestore demo").master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        raise NotFoundError(
            ErrorCode.JAVA_NOT_FOUND,
            f"Spark did not start ({error}); it needs Java 17 or newer: install it (Debian: apt-get install "
            "openjdk-17-jre-headless) or use --engine duckdb",
        ) from error
    register(spark)
    return spark
