"""`USING statestore` in SQL: a temporary view of ours, Spark's own source where it is asked for, or one clear error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import statestore
from statestore.connector.spark.session.sql_text import routed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "America/New_York"


def session(current: str = "spark_catalog", *catalogs: str, s3a: Mapping[str, str] | None = None) -> Any:
    """A session of Spark Connect with these catalogs, and settings of Hadoop's client of S3."""
    settings = {"spark.sql.session.timeZone": ZONE} | {f"spark.sql.catalog.{name}": "class" for name in catalogs}
    settings |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in (s3a or {}).items()}
    return SimpleNamespace(
        catalog=SimpleNamespace(currentCatalog=lambda: current),
        conf=SimpleNamespace(get=lambda name, default=None: settings.get(name, default), getAll=settings),
        client=SimpleNamespace(host="localhost"),
    )


IN_ZONE = f"statestoreSessionTimeZone '{ZONE}', "
VIEWS = {
    "CREATE TEMPORARY VIEW v USING statestore OPTIONS (path '/w/p')": (
        f"CREATE TEMPORARY VIEW v USING arrow_statestore OPTIONS ({IN_ZONE}path '/w/p')"
    ),
    "create or replace global temp view v\n(a, b) using `StateStore`\noptions('path' = \"/w/p\", versionAsOf 1) -- x": (
        f"create or replace global temp view v\n(a, b) using arrow_statestore\noptions({IN_ZONE}'path' = \"/w/p\", "
        "versionAsOf 1) -- x"
    ),
    "CREATE TEMP VIEW IF NOT EXISTS a.v USING arrow_statestore OPTIONS (path '/w/p')": (
        f"CREATE TEMP VIEW IF NOT EXISTS a.v USING arrow_statestore OPTIONS ({IN_ZONE}path '/w/p')"
    ),
    "CREATE TEMPORARY VIEW v USING statestore OPTIONS (path '{here}')": (
        f"CREATE TEMPORARY VIEW v USING arrow_statestore OPTIONS ({IN_ZONE}path '{{here}}')"
    ),
    "CREATE TEMPORARY VIEW v USING statestore": "CREATE TEMPORARY VIEW v USING arrow_statestore",
}
UNTOUCHED = [
    "SELECT 'CREATE TEMPORARY VIEW v USING statestore' AS text -- CREATE TEMPORARY VIEW v USING statestore",
    "CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/statestore')",
    "CREATE TEMPORARY VIEW v USING statestore OPTIONS (provider 'builtin', path '/w/p')",
    "CREATE TABLE t USING statestore OPTIONS ('PROVIDER' = 'builtin', path '/w/p')",
    "CREATE TEMPORARY VIEW v USING my.statestore OPTIONS (path '/w/p')",
    "CREATE TABLE t (x int COMMENT 'USING statestore') USING parquet AS SELECT 1 AS x /* USING statestore */",
    "CREATE TABLE t USING parquet AS SELECT * FROM a JOIN b USING (statestore)",
    "CREATE VIEW v AS SELECT * FROM statestore",
    "MERGE INTO t USING statestore ON t.id = statestore.id WHEN MATCHED THEN DELETE",
    "CREATE TABLE other.t (x int) USING statestore",
    "SELECT * FROM statestore WHERE x = 'unclosed",
    "DROP TABLE statestore",
]
TABLES = {
    "CREATE TABLE t USING statestore OPTIONS (path '/w/p')": "t",
    "CREATE TABLE IF NOT EXISTS db.t (x int) USING arrow_statestore LOCATION '/w/p'": "db.t",
    "CREATE EXTERNAL TABLE spark_catalog.db.t USING statestore": "spark_catalog.db.t",
    "CREATE OR REPLACE TABLE t USING statestore AS SELECT 1 AS x": "t",
    "REPLACE TABLE t USING statestore": "t",
}


@pytest.mark.parametrize("written", VIEWS)
def test_a_view_gets_the_source_of_this_package(written: str) -> None:
    assert routed(session(), written) == (VIEWS[written], None)


def test_paths_of_a_view_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    monkeypatch.chdir(folder)
    quoted = str(folder).replace("'", "\\'")
    text = "CREATE TEMP VIEW v USING statestore OPTIONS (path 'w/prices$versions')"
    assert routed(session(), text)[0].endswith(f"path '{quoted}/w/prices$versions')")


KEYS = {"access.key": "me", "secret.key": "it's {secret}"}
OF_VIEW = "CREATE TEMP VIEW v USING statestore OPTIONS ({})"


NAMED, PLACED = "'fs.s3a.access.key' :{0}, 'fs.s3a.secret.key' :{1}, ", "'fs.s3a.access.key' ?, 'fs.s3a.secret.key' ?, "
SECRET = KEYS["secret.key"]


@pytest.mark.parametrize(
    ("options", "args", "added", "values"),
    [
        ("path 's3a://b/w/p'", None, NAMED, {"{0}": "me", "{1}": SECRET}),
        ("path 's3a://b/w/p', versionAsOf :n", {"n": 1}, NAMED, {"n": 1, "{0}": "me", "{1}": SECRET}),
        ("path 's3a://b/w/p', versionAsOf ?", [1], PLACED, ["me", SECRET, 1]),
        ("fs.s3a.access.key 'you', path = 's3://b/w/p'", [], "'fs.s3a.secret.key' :{0}, ", {"{0}": SECRET}),
        ("'fs.s3a.secret.key' 'x', path 's3://b/w/p', `FS.s3a.access.KEY` 'y'", None, "", None),
        ("path '/w/p'", None, "", None),
    ],
)
def test_settings_of_the_session_become_arguments(options: str, args: Any, added: str, values: Any) -> None:
    """Keys are never in the text, which Spark shows in errors."""
    marks = [f"statestore_{len(OF_VIEW) - 3}_{number}" for number in range(2)]
    text, given = routed(session(s3a=KEYS), OF_VIEW.format(options), args)
    assert text == OF_VIEW.replace("statestore", "arrow_statestore").format(f"{added.format(*marks)}{IN_ZONE}{options}")
    named = isinstance(values, dict)
    assert given == ({name.format(*marks): value for name, value in values.items()} if named else values)


def test_arguments_before_the_view_stay_before_it() -> None:
    text = "BEGIN SELECT ?; CREATE TEMP VIEW v USING statestore OPTIONS (path 's3a://b/w/p', versionAsOf ?); END"
    assert routed(session(s3a={"endpoint": "h"}), text, [1, 2])[1] == [1, "h", 2]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_other_statements_are_left_as_they_are(text: str) -> None:
    assert routed(session("spark_catalog", "other"), text, [1]) == (text, [1])


@pytest.mark.parametrize("text", TABLES)
def test_a_table_of_sparks_own_catalog_is_refused(text: str) -> None:
    with pytest.raises(statestore.UnsupportedError) as caught:
        routed(session("spark_catalog", "other"), text)
    assert caught.value.code == "SESSION_CATALOG"
    assert caught.value.message.startswith(f"{TABLES[text]} would be a table of Spark's own catalog")
    assert 'statestore.register(spark, "warehouse", name="state")' in caught.value.message
    if "spark_catalog" not in text:
        assert routed(session("state"), text) == (text, None)


def test_sql_of_a_session(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with statestore.connect("w").create_store("prices", key={"item": "string"}, value={"price": "int"}) as store:
        store.put("curry", 8, timestamp=1000)
        store.commit()
        store.put("curry", 9, timestamp=2000)
        store.commit()
    name = f"v{tmp_path.name}".replace("-", "_")
    options = "path 'w/prices', timestampAsOf '1969-12-31 19:00:01'"  # without a zone: in the session's
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING statestore OPTIONS ({options})")
    assert [row.price for row in spark.sql(f"SELECT price FROM {name}").collect()] == [8]
    spark.catalog.dropTempView(name)
    with pytest.raises(statestore.UnsupportedError, match="SESSION_CATALOG"):
        spark.sql(f"CREATE TABLE default.{name} (item string) USING statestore OPTIONS (path 'w/prices')")
    for source in ("statestore", "arrow_statestore"):
        with pytest.raises(statestore.UnsupportedError, match="SESSION_CATALOG"):
            spark.catalog.createTable(name, str(tmp_path / "w" / "prices"), source)
    with pytest.raises(PySparkException, match="STDS_"):  # an error of Spark's own source
        spark.sql(f"CREATE TEMPORARY VIEW {name} USING statestore OPTIONS (provider 'builtin', path '{tmp_path}')")
    statestore.unregister(spark)
    try:
        with pytest.raises(PySparkException, match="STDS_"):
            spark.sql(f"CREATE TEMPORARY VIEW {name} USING statestore OPTIONS (path '{tmp_path}')")
        with pytest.raises(PySparkException, match="SESSION_CATALOG"):
            spark.sql(f"CREATE TABLE {name} USING arrow_statestore OPTIONS (path '{tmp_path}/w/prices')")
    finally:
        statestore.register(spark)
