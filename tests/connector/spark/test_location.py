"""Relative paths mean what they mean in the process that gives them, wherever Spark's tasks and servers run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from support.checkpoints.spark_state_fixtures import checkpoint_path, index, multiset, truth, types_checkpoint
from support.local_cluster import MASTER, linked_home
from support.object_store import BUCKET, object_store
from support.parameters import SHARE
from support.paths import TESTS

import statestore
from statestore.catalog.warehouse import open_table
from statestore.connector.asof.join_request import make_request
from statestore.connector.spark.location import client_path, no_catalog_table, with_settings
from statestore.connector.spark.session.register import check_workers
from statestore.formats.state_table import Query, StateTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSES = TESTS / "support" / "processes"
READS = {
    "directory": [],  # no task works where the paths are meant
    "read": [["curry", 2.0], ["naan", 5.0]],
    "read_option": [["curry", 2.0], ["naan", 5.0]],
    "as_of": [["curry", 1.0]],
    "version": [["curry", 1.0]],
    "history": [["curry", 1.0], ["curry", 2.0], ["naan", 5.0]],
    "changes": [["curry", 1.0], ["curry", 2.0], ["naan", 5.0]],
    "metadata": 3,
    "joined": [["curry", 1.0]],
    "joined_handle": [["curry", 1.0]],
    "joined_table": [["curry", 1.0]],
    "joined_stream": [["curry", 1.0, 1.0], ["curry", 2.0, 2.0], ["naan", 5.0, 5.0]],
    "catalog": [["curry", 2.0, 1.0], ["dal", 3.0, 3.0]],
    "explained": "none",
    "sql": [["curry", "{x}"]],
    "sql_wrong": (
        "InvalidInputError: [INVALID_SQL] line 2, column 2: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or "
        "function parameter with name `cost` cannot be resolved. Did you mean one of the following? [`item`, `price`, "
        "`valid_to`, `valid_from`]"
    ),
    "sql_view": [["curry", 1.0]],
    "sql_table": f"UnsupportedError: {no_catalog_table('made')}",
    "sql_describe": 3,
}
WRITES = {
    "append": [["dal", 3.0]],
    "overwrite": [["dal", 3.0]],
    "stream": [["curry", 2.0], ["naan", 5.0]],
    "update_mode": [["curry", 2.0], ["naan", 5.0]],
    "keyed": [["dal", 1]],
    "tracked": [["dal", 1]],
    "edited": [["key-05-é", 550], ["key-06-éé", 553], ["key-07-ééé", 556]],
}
UPDATE_REFUSED = (
    "UnsupportedError: [NO_QUERY_ID] a session of Spark Connect cannot write update mode, because Spark does not "
    "report its query there; write in mode append or complete, or with foreachBatch and the options txnAppId and "
    "txnVersion"
)
CATALOG_REFUSED = (
    "UnsupportedError: [UNSUPPORTED_SPARK] a session of Spark Connect takes no catalog; use "
    "statestore.sql(path, query, spark=spark), or spark.read.format('arrow_statestore')"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a store in the folder ``w``."""
    monkeypatch.chdir(tmp_path)
    with statestore.connect("w").create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        store.put("curry", 1.0, timestamp=1000)
        store.commit()
    statestore.connect("w").create_store("users", "keyed", key={"item": "string"}, key_groups=4).close()
    with statestore.connect("w").open_store("users") as keyed, keyed.backend() as backend:
        counts = backend.value_state("count", "int")
        backend.set_current_key("curry")
        counts.update(3)
        keyed.commit([backend.snapshot().result()])
    Path("checkpoint").symlink_to(types_checkpoint())
    return tmp_path


OPENED: list[tuple[str, Callable[[], StateTable]]] = [
    ("a path", lambda: open_table("w/prices")),
    ("a file: path", lambda: open_table("file:w/prices")),
    ("an open store", lambda: statestore.connect("w").open_store("prices").table),
    ("a table", lambda: statestore.inspect("w").table("prices").table),
    ("a store's table", lambda: statestore.inspect("w/prices").table("prices").table),
    ("metadata", lambda: open_table("w/prices$versions")),
    ("a keyed state", lambda: open_table("w/users/count")),
    ("a checkpoint", lambda: open_table("checkpoint")),
    ("a join", lambda: make_request(["item", "t"], "w/prices", "item", "t", "inner", None, "", None).live),
]


@pytest.mark.parametrize("opening", [opening for _, opening in OPENED], ids=[name for name, _ in OPENED])
def test_a_table_that_travels_to_a_task_is_found_there(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, opening: Callable[[], Any]
) -> None:
    table = opening()
    splits = table.splits(Query())
    task = pickle.dumps((table, splits))
    monkeypatch.chdir(tmp_path_factory.mktemp("task"))
    for table_, splits_ in ((table, splits), pickle.loads(task)):
        assert sum(batch.num_rows for split in splits_ for batch in table_.read(split, Query())) >= 1


def test_reads_and_writes_after_a_change_of_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's JVM stays where it was started."""
    monkeypatch.chdir(tmp_path)
    statestore.connect("w").create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    rows = spark.sql("SELECT 'dal' AS item, 3.0D AS price, timestamp_millis(3000) AS timestamp")
    rows.write.format("statestore").mode("append").option("path", "w/prices").save()
    assert spark.read.format("statestore").load("w/prices").count() == 1
    assert "version" in spark.read.load(format="statestore", path="w/prices$versions").columns
    assert "item" in spark.read.format("statestore").option("path", "w/prices").load().columns
    stream = spark.readStream.format("statestore").option("readChangeFeed", True).load("w/prices")
    assert stream.isStreaming and stream.columns[0] == "item"


def connected_to(host: str) -> Any:
    return SimpleNamespace(client=SimpleNamespace(host=host))


def test_a_relative_path_is_the_client_s_only_where_the_server_is_on_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert client_path("w/prices", connected_to("localhost")) == f"{tmp_path}/w/prices"
    for given in ("/w/prices", "s3://bucket/w", "file:/w", "file:///w"):
        assert client_path(given, connected_to("spark.example")) == given
    for given in ("w/prices", "file:w"):
        with pytest.raises(statestore.InvalidInputError, match=r"INVALID_LOCATION.*server runs on spark\.example"):
            client_path(given, connected_to("spark.example"))


def test_a_relative_path_without_a_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(statestore.InvalidInputError, match=r"INVALID_LOCATION.*working directory of this process"):
        statestore.inspect("w")


def test_a_connect_server_without_this_package() -> None:
    """Said when the session is registered, with the interpreter to set."""

    def load() -> None:
        raise PySparkException("Traceback …\nModuleNotFoundError: No module named 'statestore'\n SQLSTATE: 38000\n")

    reader = SimpleNamespace(load=load)
    session: Any = SimpleNamespace(
        dataSource=SimpleNamespace(register=lambda source: None),
        read=SimpleNamespace(format=lambda name: reader),
    )
    with pytest.raises(statestore.UnsupportedError) as caught:
        check_workers(session)
    assert caught.value.code == "UNSUPPORTED_SPARK"
    assert "(ModuleNotFoundError: No module named 'statestore')" in caught.value.message
    assert f"set PYSPARK_PYTHON before the server starts, here to {sys.executable}" in caught.value.message


def answers(master: str, calls: list[str], folder: Path, **environment: str) -> Any:
    """What the calls answered in a process that works in ``folder``."""
    folder.mkdir()
    (folder / "checkpoint").symlink_to(checkpoint_path(NAME))
    done = subprocess.run(
        [sys.executable, str(PROCESSES / "spark_by_relative_paths.py"), master, *calls],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def calls_in_share(expected: dict[str, Any], first: int) -> dict[str, Any]:
    """The calls and their answers; each second one where a share of the slow cases is run, as the other test has the
    others."""
    return expected if SHARE == 1 else {name: expected[name] for name in list(expected)[first::2]}


@pytest.mark.slow
def test_tasks_in_other_processes_and_directories(tmp_path: Path) -> None:
    """A cluster of two executors. It keeps its files in SPARK_HOME, so that is a folder of links here."""
    home = linked_home(tmp_path)
    expected = calls_in_share(READS | WRITES, 0)
    assert answers(MASTER, [*expected], tmp_path / "here", SPARK_HOME=str(home)) == expected


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server that was started in another directory."""
    process = subprocess.Popen(
        [sys.executable, str(PROCESSES / "spark_connect_server.py")],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path_factory.mktemp("server"),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield f"sc://localhost:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
def test_spark_connect(server: str, tmp_path: Path) -> None:
    own = {"update_mode": UPDATE_REFUSED, "catalog": CATALOG_REFUSED, "explained": "Spark Connect"}
    expected = calls_in_share(READS | WRITES, 1) | own
    assert answers(server, [*expected], tmp_path / "here") == expected


# Spark reads a checkpoint in an object store, with a client in each executor, and one at a ``file:`` URI

NAME = "spark4.3.0-agg__rkcl"


@pytest.mark.slow
def test_a_checkpoint_in_an_object_store(spark: SparkSession) -> None:
    expected = multiset(truth(index()[NAME]["reads"]["op0~last"]))
    with object_store() as store:
        uri = store.upload(checkpoint_path(NAME), "a b%20ü/ck")
        before = store.contents("a b%20ü")
        assert multiset(spark.read.format("statestore").load(uri).toArrow()) == expected
        assert multiset(statestore.sql(uri, "SELECT * FROM state", spark).toArrow()) == expected
        assert store.contents("a b%20ü") == before
        with pytest.raises(PySparkException, match=r"\[READ_ONLY\] s3://states/a b%20ü/ck is read-only") as found:
            spark.range(1).write.format("statestore").mode("append").save(uri)
        assert "us:er" not in str(found.value)


@pytest.mark.slow
def test_settings_of_hadoops_client(spark: SparkSession) -> None:
    """Settings may be options of a read or of a registered session; those of one bucket come before those of all."""
    expected = multiset(truth(index()[NAME]["reads"]["op0~last"]))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    with object_store() as store:
        store.upload(checkpoint_path(NAME), "ck")
        path = f"s3a://{BUCKET}/ck"
        settings = {
            "fs.s3a.endpoint": f"http://{store.host}:{store.port}", "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "us+/=", "fs.s3a.secret.key": "s@e:c/r%et",
        }  # fmt: skip
        reader = spark.read.format("arrow_statestore").options(**settings)
        assert multiset(reader.load(path).toArrow()) == expected
        settings[f"fs.s3a.bucket.{BUCKET}.endpoint"] = settings["fs.s3a.endpoint"]
        settings["fs.s3a.endpoint"] = "nowhere.invalid"
        before = {name: hadoop.get(name) for name in settings}
        try:
            for name, value in settings.items():
                hadoop.set(name, value)
            assert multiset(spark.read.format("statestore").load(path).toArrow()) == expected
            assert multiset(statestore.sql(path, "SELECT * FROM state", spark).toArrow()) == expected
        finally:
            for name, value in before.items():
                hadoop.unset(name) if value is None else hadoop.set(name, value)


@pytest.mark.parametrize(
    ("settings", "uri"),
    [
        ({}, "s3a://b/x"),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, "s3a://b/x"),
        ({"fs.s3a.endpoint": "h:1", "fs.s3a.connection.ssl.enabled": "false"}, "s3a://b/x?endpoint_override=h%3A1&scheme=http"),
        ({"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b/", "fs.s3a.session.token": "t"}, "s3a://a:b%2F@b/x?session_token=t"),
        ({"fs.s3a.access.key": "a"}, "s3a://b/x"),
        ({"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, "s3a://b/x?anonymous=true"),
        ({"fs.s3a.endpoint": "https://s3.eu-central-1.amazonaws.com"}, "s3a://b/x?region=eu-central-1"),
        ({"fs.s3a.endpoint.region": "eu", "fs.s3a.bucket.b.endpoint.region": "us"}, "s3a://b/x?region=us"),
    ],
)  # fmt: skip
def test_settings_become_parts_of_the_uri(settings: dict[str, str], uri: str) -> None:
    assert with_settings("s3a://b/x", settings) == uri
    assert with_settings("/local", settings) == "/local"


def test_what_a_uri_says_comes_first() -> None:
    settings = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.s3a.endpoint.region": "us"}
    assert with_settings("s3://me:too@b/x?region=eu", settings) == "s3://me:too@b/x?region=eu"
    settings = {"fs.s3a.endpoint": "h:9000"}
    assert with_settings("s3://b/x?scheme=http", settings) == "s3://b/x?scheme=http&endpoint_override=h%3A9000"


def test_names_that_a_uri_would_encode(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b%20ü"
    shutil.copytree(checkpoint_path(NAME), path)
    for text in (f"{path}/", f"file:{path}", f"file://{path}", path.as_uri()):
        assert spark.read.format("statestore").load(text).count() == 57
