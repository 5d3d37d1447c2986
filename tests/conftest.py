"""One Spark session for all tests in a process, and few processes with one.

A session takes as long to start and warm up as a hundred small queries, and uses more than one core itself.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings
from support.object_stores.elsewhere import chosen
from support.parameters import SHARE, left_out, mark_slow, without_quick_cases
from support.quick_spark import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

gc.disable()  # until the tests are collected: millions of objects that stay, which each pass would look at again

# A shell that runs the tests in the background lets them, and what they start, ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.update(ENVIRONMENT)  # before a session starts; processes that tests start inherit it
for _name, _folder in (("STATESTORE_CACHE", "objects"), ("STATESTORE_LOCAL", "stores")):
    os.environ.setdefault(_name, str(Path(tempfile.gettempdir()) / "of-this-machine" / _folder))

# Properties try the same examples in every run, and no clock fails them. What another seed finds becomes an @example.
SEED_VARIABLE = "STATESTORE_HYPOTHESIS_SEED"
_SEED = os.environ.get(SEED_VARIABLE)
settings.register_profile(
    "repeatable",
    derandomize=_SEED is None,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
if _SEED is not None:
    hypothesis.core.global_force_seed = int(_SEED)  # type: ignore[assignment]

pytest_plugins = [
    "support.explorer.browsers",
    "support.explorer.page_sources",
    "support.kept_files",
    "support.object_stores.fixtures",
]

ZONE = "America/New_York"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": ZONE,
    "spark.log.level": "OFF",
    # Otherwise each session, and each query of a stream is one, starts Python workers of its own, seconds of work.
    "spark.sql.artifact.isolation.enabled": "false",
}


ASKS_FOR_A_SESSION = re.compile(r"\bspark: SparkSession")


LONGEST = "test_pages.py"  # of the files without a session; each of its pages runs in a process of its own
MASTER_VARIABLE = "STATESTORE_SPARK_MASTER"  # another master for the tests with Spark, such as local-cluster[2,1,1024]


@cache
def has_spark(file: Path) -> bool:
    return ASKS_FOR_A_SESSION.search(file.read_text()) is not None


def pytest_itemcollected(item: pytest.Item) -> None:
    mark_slow(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Leave out what is not to be run, begin with Spark, and ignore PySpark's warnings about its own sockets at exit.

    Some processes begin with Spark, the longest piece of work, and one with the longest file, so that none is left
    with these in the end. Tests that look at the files of a local store are left out where stores lie elsewhere, slow
    cases where a share was asked for.
    """
    whole = not config.getoption("lf") and not any("::" in argument for argument in config.args)
    if whole and (tests := without_quick_cases(items)):
        raise pytest.UsageError(f"the marker quick names no case of {', '.join(sorted(tests))}")
    others = left_out(items) if SHARE < 1 else set()
    if chosen() != "local":
        others |= {item for item in items if item.get_closest_marker("local_files")}
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]
    yield  # -m and -k
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not has_spark(item.path), item.path.name != LONGEST))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def pytest_collection_finish() -> None:
    """Leave the collected tests, millions of objects that stay, out of every pass of the garbage collector."""
    gc.freeze()  # without a collection, which takes a second in each process and finds little
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Keep the tests of a file together, as ``--dist loadfile`` does, and the files with Spark in few processes."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedSessions(LoadFileScheduling):  # type: ignore[misc]
        """Gives the files with Spark to one process of four, as what a session does first takes half a minute.

        Slow tests are mostly those with Spark: one process of two runs them.
        """

        def __init__(self) -> None:
            super().__init__(config, log)
            self._sessions: dict[str, str] = {}
            quick = config.option.markexpr == "not slow"
            self._processes = (self.numnodes + 3) // 4 if quick else (self.numnodes + 1) // 2

        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if not has_spark(config.rootpath / file):
                return file
            return self._sessions.setdefault(file, f"Spark {len(self._sessions) % self._processes}")

    return SharedSessions()


@pytest.fixture
def copy_for_spark(tmp_path: Path) -> Callable[[str | Path], str]:
    """Copy a checkpoint for one read of Spark's own state source, which may write into what it reads.

    Spark 4.1 leaves folders of operators and stores that it was asked for and did not find.
    """

    def copy(checkpoint: str | Path) -> str:
        number = len(list(tmp_path.glob("for_spark_*")))
        return str(shutil.copytree(checkpoint, tmp_path / f"for_spark_{number}"))

    return copy


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in a time zone that is not UTC, registered where statestore works in that release of Spark."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = tmp_path_factory.mktemp("spark")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(folder), "spark.local.dir": str(folder)}
    master = os.environ.get(MASTER_VARIABLE, "local[2]")
    if master.startswith("local-cluster"):
        from support.local_cluster import executor_settings, linked_home

        os.environ["SPARK_HOME"] = str(linked_home(folder))
        settings |= executor_settings()
    builder = SparkSession.builder.appName("statestore tests").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _ = session.streams.active  # Spark's own state source before 4.3 reads nothing without the manager of streams
    if session.version.startswith(
        ("3.", "4.0.")
    ):  # statestore reads and edits their checkpoints, and has no doors there
        yield session
    else:
        from statestore.connector.spark.session.register import register, unregister

        register(session)
        yield session
        unregister(session)
    session.stop()
