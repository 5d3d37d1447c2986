"""An edit of a job's state is cut short at any of many moments: its source is as it was, its target absent or whole.

The process is killed, or a disk fails: it is full, a quota is used up, a device breaks.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest
from faults.children import Ended, children
from faults.library import CHANGING, DOING
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.engines.toy_edits import tree
from support.flink.fixtures import fixture, manifest
from support.kafka.applications import unpacked
from support.kafka.unpacked import stores_file
from support.object_stores.clients import client
from support.object_stores.s3_server import BUCKET, S3Server
from support.parameters import mostly_slow

import statestore
from statestore.formats.edits import UNFINISHED_FILE
from statestore.formats.errors import InvalidInputError, NotFoundError

TRIALS = "faults.trials.job_edit_trials"
QUICK, SLOW = 2, 100
"""The moments of a test."""
Rows = dict[str, list[str]]


@dataclass(frozen=True)
class Case:
    """An edit of a state that is made in a folder; ``place`` returns the path below it, and what is copied there."""

    place: Callable[[], tuple[str, Path, str]]
    text: str
    settings: dict[str, str] = field(default_factory=dict)
    options: Callable[[Path], dict[str, Any]] = lambda folder: {}

    def make(self, folder: Path) -> str:
        """Make the state in a folder and return its path there."""
        name, origin, place = self.place()
        shutil.copytree(origin, folder / name)
        return place

    def given(self, folder: Path) -> dict[str, Any]:
        return {**self.options(folder), **({"settings": self.settings} if self.settings else {})}


def job() -> tuple[str, Path, str]:
    place = next(str(each["path"]) for each in manifest("unaligned")["snapshots"] if "chk-" in each["path"])
    name = Path(place).parent.name
    return name, fixture("unaligned") / name, place


def of_spark(name: str, text: str, **settings: str) -> Case:
    return Case(lambda: ("source", checkpoint_path(name), "source"), text, settings)


OF_SPARK = "DELETE FROM state WHERE key.k = 'key-06-éé'"
CASES = {
    "flink": Case(job, 'DELETE FROM "kv-long.history"'),
    "spark": of_spark("spark4.3.0-agg__hdfs", OF_SPARK),
    "kafka": Case(
        lambda: ("source", unpacked("ledger") / "state/ledger", "source"),
        "DELETE FROM owners",
        options=lambda folder: {"stores_file": str(stores_file("ledger", folder / "stores.toml"))},
    ),
    "spark-tables": of_spark("spark4.3.0-agg__rkcl", OF_SPARK),
    "compact": of_spark("spark4.3.0-agg__rkv2", OF_SPARK, compact="true"),
    "rescale": of_spark("spark4.3.0-agg__hdfs", "", partitions="3", provider="rocksdb"),
}


def run(function: str, **arguments: Any) -> Ended:
    return children().run(f"{TRIALS}:{function}", **arguments)


def content(at: str | Path) -> Rows:
    """The rows at a place, or of an edit of Kafka Streams the number of records in each file."""
    if not str(at).startswith("s3") and (files_there := list(Path(at).glob("*.jsonl"))):
        return {path.name: [str(len(path.read_bytes().splitlines()))] for path in files_there}
    warehouse = statestore.inspect(at)
    return {name: sorted(map(repr, warehouse.table(name).scan().read_all().to_pylist())) for name in warehouse.tables()}


def moments(total: int, wanted: int) -> list[int]:
    """Numbers from 1 to the total, evenly spread, the last ones among them."""
    return sorted({total - total * number // wanted for number in range(min(wanted, total))})


@dataclass(frozen=True)
class OnDisk:
    """A case below ``root``: a source as it was ``before``, and ``expected`` rows of the target."""

    root: Path
    edit: Callable[..., Ended]
    before: dict[str, tuple[int, str]]
    beside: set[str]
    expected: Rows
    counts: dict[str, int]

    def check(self, where: object) -> str:
        """Return whether the target is absent or whole; it is removed then."""
        assert tree(self.root / "source") == self.before, where
        target = self.root / "target"
        if not target.exists():
            return "absent"
        assert (target / "edit.json").exists() and content(target) == self.expected, where
        shutil.rmtree(target)
        return "whole"

    def end(self) -> None:
        """Edit once more, which removes what others have left."""
        again = self.edit(way="never", at=1)
        assert again.bad is None and again.value["error"] is None, again
        assert {path.name for path in self.root.iterdir()} == self.beside | {"target"}
        assert self.check("at the end") == "whole"


def on_disk(name: str, root: Path) -> OnDisk:
    case = CASES[name]
    (root / "source").mkdir()
    (root / "tmp").mkdir()
    place = case.make(root / "source")
    edit = partial(run, "on_disk", root=str(root), source=f"source/{place}", text=case.text, given=case.given(root))
    before, beside = tree(root / "source"), {path.name for path in root.iterdir()}
    counted = edit(way="never", at=1)
    assert counted.bad is None and counted.value["error"] is None, counted
    expected = content(root / "target")
    shutil.rmtree(root / "target")
    assert expected
    return OnDisk(root, edit, before, beside, expected, counted.value["counts"])


@pytest.mark.parametrize(
    ("name", "wanted"),
    mostly_slow([(name, wanted) for wanted in (QUICK, SLOW) for name in CASES], [("flink", QUICK), ("kafka", QUICK)]),
)
def test_a_killed_edit_on_a_disk(tmp_path: Path, name: str, wanted: int) -> None:
    made, deaths = on_disk(name, tmp_path), 0
    for at in moments(sum(made.counts[kind] for kind in CHANGING), wanted):
        ended = made.edit(way="kill", at=at)
        found = made.check(at)
        # An edit makes now and then some calls less, and is done before the last moments.
        assert ended.signal is not None or found == "whole", (at, ended)
        deaths += ended.signal is not None
    assert deaths
    made.end()


FULL = ["write", "open to write", "mkdir", "link", "rename", "sync"]
MODES = {
    "full": (FULL, "from then on", errno.ENOSPC),
    "quota": (FULL, "from then on", errno.EDQUOT),
    "once": (list(CHANGING), "once", errno.ENOSPC),
    "read-only": (list(CHANGING), "from then on", errno.EROFS),
}


@pytest.mark.parametrize(
    ("name", "mode", "wanted"),
    mostly_slow(
        [(name, mode, wanted) for wanted in (QUICK, SLOW // 4) for mode in MODES for name in CASES],
        [("spark", "full", QUICK), ("kafka", "quota", QUICK)],
    ),
)
def test_a_disk_that_fails(tmp_path: Path, name: str, mode: str, wanted: int) -> None:
    """The folder of temporary files is on it, too. An edit that ends has removed what it had made."""
    kinds, way, number = MODES[mode]
    made, errors = on_disk(name, tmp_path), 0
    for at in moments(sum(made.counts[kind] for kind in kinds), wanted):
        ended = made.edit(kinds=kinds, way=way, at=at, errno=number)
        assert ended.bad is None, (at, ended)
        told = ended.value["error"]
        assert told is None or told.startswith("DISK_FAILED"), (at, told)
        found = made.check((at, told))
        assert found == "whole" or told is not None, at
        errors += told is not None
        if mode not in ("read-only", "once"):  # nothing can be removed there
            assert {path.name for path in tmp_path.iterdir()} == made.beside, at
    assert errors or mode == "once"  # a single call may be one that removes a file
    made.end()


@pytest.mark.parametrize("name", mostly_slow(CASES, ["flink", "spark-tables"]))
def test_no_call_of_an_edit_changes_a_file_of_its_source(tmp_path: Path, name: str) -> None:
    """Only table files of RocksDB, which no engine changes, get another name."""
    made = on_disk(name, tmp_path)
    ended = made.edit(kinds=list(DOING), way="never", at=1, below=str(tmp_path / "source"))
    assert ended.bad is None and ended.value["error"] is None, ended
    counts = ended.value["counts"]
    assert counts["open to read"] > 1
    linked = [path for path in (tmp_path / "source").rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert {kind for kind in CHANGING if counts[kind]} <= {"link"}
    assert {path.suffix for path in linked} <= {".sst"}
    # A store of Kafka Streams is read through links, which are gone by then.
    assert counts["link"] == len(linked) or name == "kafka"
    assert linked or name != "spark-tables"


# In an object store

STORED = ("spark", "flink", "kafka")


@pytest.mark.parametrize(
    ("name", "wanted"),
    mostly_slow(
        [(name, wanted) for wanted in (QUICK, SLOW) for name in ("spark", "flink", "kafka")], [("spark", QUICK)]
    ),
)
def test_a_killed_edit_in_an_object_store(s3_server: S3Server, tmp_path: Path, name: str, wanted: int) -> None:
    """The next edit to the same target says what there is; once it is removed, the edit succeeds."""
    case, bucket, prefix = CASES[name], s3_server.folder / BUCKET, f"killed-{name}-{wanted}"
    place = case.make(tmp_path / "source")
    for path in [path for path in (tmp_path / "source").rglob("*") if path.is_file()]:
        key = f"{prefix}/{path.relative_to(tmp_path).as_posix()}"
        obstore.put(client(s3_server), key, path.read_bytes())
    source, uri = (s3_server.warehouse(f"{prefix}/{path}") for path in (f"source/{place}", "target"))
    before, target = tree(bucket / prefix / "source"), bucket / prefix / "target"
    edit = partial(run, "in_store", source=source, target=uri, text=case.text, given=case.given(tmp_path))
    counted = edit(at=0)
    assert counted.bad is None, counted.bad
    whole = files(target)
    expected = content(target if name == "kafka" else uri)
    shutil.rmtree(target)
    seen = set()
    for at in moments(counted.value, wanted):
        ended = edit(at=at)
        assert ended.signal is not None, (at, ended)
        assert tree(bucket / prefix / "source") == before, at
        found = files(target) if target.exists() else {}
        if name == "spark":
            newest = max(int(path.removeprefix("offsets/")) for path in whole if path.startswith("offsets/"))
            if {f"offsets/{newest}", f"offsets/{newest - 1}"} <= found.keys():
                assert whole.keys() <= found.keys(), "from both a query goes on, so all must be there"
        elif name == "flink" and "_metadata" in found:
            assert whole.keys() <= found.keys(), "a job starts from it"
        seen.add(check_what_is_left(uri, found))
        if found and UNFINISHED_FILE not in found:
            assert "edit.json" in found and content(target if name == "kafka" else uri) == expected
        if target.exists():
            shutil.rmtree(target)
    assert "unfinished" in seen and ("whole" in seen or wanted < 100)
    again = edit(at=0)
    assert again.bad is None and content(target if name == "kafka" else uri) == expected
    assert files(target).keys() == whole.keys()


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_what_is_left(uri: str, found: dict[str, bytes]) -> str:
    if not found or UNFINISHED_FILE not in found:
        return "whole" if found else "absent"
    with pytest.raises((NotFoundError, InvalidInputError), match="NOTHING_HERE"):
        statestore.inspect(uri)
    with pytest.raises(InvalidInputError, match=r"was begun by process \d+ .* has ended: remove all objects below"):
        statestore.edit(checkpoint_path("spark4.3.0-agg__hdfs"), uri)
    return "unfinished"
