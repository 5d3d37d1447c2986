"""A Spark that is absent, too old or not Spark at all: one error at every door to Spark, and everything else works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import types_checkpoint

import statestore
from statestore.connector import supported_spark
from statestore.connector.supported_spark import check_frame, check_session, check_spark, unknown_release

WORK: Any = None  # the rows are looked at first
SESSION: Any = object()
HIDDEN = """
import importlib.machinery, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hiding())
"""
FOLDER = """
import sys, tempfile
from importlib.machinery import PathFinder
from pathlib import Path

folder = tempfile.TemporaryDirectory()
(Path(folder.name) / "pyspark").mkdir()

class OnlyTheFolder:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [folder.name]) if name == "pyspark" else None

sys.meta_path.insert(0, OnlyTheFolder())
"""
OLD = """
import sys, types
sys.modules["pyspark"] = types.ModuleType("pyspark")
sys.modules["pyspark"].__version__ = {version!r}
"""
DOORS = """
import importlib, sys
import statestore
from statestore import register, run_keyed, run_keyed_stream, track_state_by_key, unregister

path = sys.argv[1]
Frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe", "columns": ["k"]})
calls = {
    "register": lambda: register(object()),
    "unregister": lambda: unregister(object()),
    "run_keyed": lambda: run_keyed(object(), None, key="k", store=path, output="n int"),
    "run_keyed_stream": lambda: run_keyed_stream(object(), None, key="k", store=path, output="n int", checkpoint=path),
    "track": lambda: track_state_by_key(object(), key="k", spec=None, store=path, state_type="int", output_type="int"),
    "sql": lambda: statestore.sql(path, "SELECT 1", spark=object()),
    "asof_join": lambda: statestore.asof_join(Frame(), path, on="k", left_time="t"),
}
for name, call in calls.items():
    try:
        call()
    except statestore.UnsupportedError as error:
        print(name, error.code, error.message)
print("entry", hasattr(importlib.import_module("pyspark_statestore"), "DefaultSource"))
print("python", statestore.inspect(path).table("state").scan().read_all().num_rows)
print("duckdb", statestore.sql(path, "SELECT count(*) AS n FROM state").to_pylist())
print("complete", all(hasattr(statestore, name) for name in statestore.__all__))
"""


@pytest.mark.parametrize(
    ("prepared", "found"),
    [
        pytest.param(HIDDEN.format(package="pyspark"), "no pyspark", marks=pytest.mark.slow),
        pytest.param(
            HIDDEN.format(package="py4j"),
            "a pyspark that cannot be imported (No module named 'py4j')",
            marks=pytest.mark.slow,
        ),
        pytest.param(FOLDER, "a folder named pyspark that is no PySpark", marks=pytest.mark.slow),
        pytest.param(OLD.format(version="3.5.7"), "PySpark 3.5.7", marks=pytest.mark.slow),
        pytest.param(OLD.format(version="4.0.1"), "PySpark 4.0.1", marks=pytest.mark.slow),
    ],
    ids=["absent", "without py4j", "an empty folder", "3.5", "4.0"],
)
def test_every_door_says_which_spark_it_needs_and_what_works_without(prepared: str, found: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", prepared + DOORS, types_checkpoint()], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    said = (
        f"UNSUPPORTED_SPARK found {found}; reads and writes in Spark need 4.1 or later: type: pip install "
        "'pyspark>=4.1'; without Spark, read the same tables in Python (statestore.inspect), in DuckDB "
        "(statestore.attach, statestore.sql) or on the command line (statestore --help)"
    )
    doors = ["register", "unregister", "run_keyed", "run_keyed_stream", "track", "sql", "asof_join"]
    assert lines[:7] == [f"{name} {said}" for name in doors]
    assert lines[7:] == ["entry False", "python 4", "duckdb [{'n': 4}]", "complete True"]


@pytest.mark.parametrize(
    ("version", "enough"),
    [("3.5.9", False), ("4.0.1", False), ("4.0.0.dev1", False), ("4.1.0", True), ("4.3.0", True), ("10.0", True)],
)
def test_releases_from_4_1_on_are_enough(monkeypatch: pytest.MonkeyPatch, version: str, enough: bool) -> None:
    module = ModuleType("pyspark")
    monkeypatch.setattr(module, "__version__", version, raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", module)
    if enough:
        check_spark()
    else:
        with pytest.raises(statestore.UnsupportedError, match=f"found PySpark {version}; .* need 4.1 or later"):
            check_spark()


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("4.1.4", None),
        ("4.2.0-SNAPSHOT", None),
        ("4.3.0.dev1", None),
        ("4.4.0", "Spark 4.4.0 is none of 4.1, 4.2 and 4.3"),
        ("14.1.0", "Spark 14.1.0 is none of 4.1, 4.2 and 4.3"),
        ("custom", "Spark custom is none of 4.1, 4.2 and 4.3"),
    ],
)
def test_each_minor_release_is_known_or_not(version: str, reason: str | None) -> None:
    assert unknown_release(session_of("classic.", version)) == reason


def test_a_folder_that_an_uninstalled_pyspark_left_is_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    with pytest.raises(statestore.UnsupportedError, match=r"found a folder named pyspark that is no PySpark; .*pip"):
        statestore.register(SESSION)


@pytest.mark.parametrize("given", [None, "local[2]", 7, object()], ids=["none", "text", "number", "object"])
@pytest.mark.parametrize(
    "call", ["register", "unregister", "sql", "run_keyed", "run_keyed_stream", "track_state_by_key"]
)
def test_what_is_no_session_or_dataframe_is_said_to_be_none(tmp_path: Path, call: str, given: Any) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "register": lambda: statestore.register(given),
        "unregister": lambda: statestore.unregister(given),
        "sql": lambda: statestore.sql(types_checkpoint(), "SELECT 1 AS n", spark=given),
        "run_keyed": lambda: statestore.run_keyed(given, WORK, key="k", store=tmp_path, output="n int"),
        "run_keyed_stream": lambda: statestore.run_keyed_stream(
            given, WORK, key="k", store=tmp_path, output="n int", checkpoint=str(tmp_path)
        ),
        "track_state_by_key": lambda: statestore.track_state_by_key(
            given,
            key="k",
            spec=statestore.tracked.StateSpec.function(lambda value, state: None),
            store=tmp_path,
            state_type="int",
            output_type="int",
        ),
    }
    if call == "sql" and given is None:
        assert calls[call]().to_pylist() == [{"n": 1}]
        return
    wanted = "a SparkSession" if call in ("register", "unregister", "sql") else "a DataFrame of Spark"
    with pytest.raises(statestore.InvalidInputError, match=f"is (None|of type .*); expected {wanted}"):
        calls[call]()


def session_of(kind: str, version: Any, **more: Any) -> Any:
    """A stand-in for a session of ``pyspark.sql`` or ``pyspark.sql.connect``."""

    def told(self: Any) -> str:
        if isinstance(version, Exception):
            raise version
        return str(version)

    made = type("SparkSession", (), {"__module__": f"pyspark.sql.{kind}session", "version": property(told)})
    session = made()
    for name, value in more.items():
        setattr(session, name, value)
    return session


def test_the_server_of_a_connect_session_has_to_be_new_enough_too() -> None:
    check_session(session_of("connect.", "4.1.0"))
    with pytest.raises(
        statestore.UnsupportedError, match=r"found a session of Spark 4\.0\.2; .*run it with Spark 4\.1"
    ):
        check_session(session_of("connect.", "4.0.2"))
    with pytest.raises(statestore.InvalidInputError, match=r"does not answer \(ConnectionError\); make a new one"):
        check_session(session_of("connect.", ConnectionError("gone")))


def test_a_stopped_session_is_said_to_be_one() -> None:
    class Context:
        _jsc = None

    with pytest.raises(statestore.InvalidInputError, match="the SparkSession was stopped; make a new one"):
        check_session(session_of("", "4.3.0", _sc=Context()))


def test_subclasses_of_spark_s_classes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supported_spark, "check_spark", lambda: None)
    base = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})
    check_frame(type("Mine", (base,), {})())
    with pytest.raises(statestore.InvalidInputError):
        check_frame(type("DataFrame", (), {"__module__": "pandas"})())
