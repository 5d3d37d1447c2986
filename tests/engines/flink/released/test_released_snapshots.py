"""Snapshots that each release of Flink since 1.8 took of the jobs in its own tests, out of its jars of tests.

All states of all of them are read whole. The releases and backends ran the same jobs, so a state of a job has the same
rows in all. What it has to have in truth is said for some states, as the sources of the jobs say it.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink.running.java_project import jars_of
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.source import FlinkSource

pytestmark = pytest.mark.slow

SNAPSHOTS = 197


@dataclass(frozen=True)
class Job:
    """Snapshots of a job of Flink's tests: the ``folders`` of each backend, and how many these are.

    ``known`` are the rows of some of its states, by the end of the state's name.
    """

    name: str
    folders: tuple[tuple[str, int], ...]
    known: tuple[tuple[str, Sequence[Mapping[str, Any]]], ...] = ()


_ITCASE = "-migration-itcase-flink"
_OF_JAVA = (
    ("1.[89]-savepoint 1.1[0-4]-savepoint", 7),
    ("*-hashmap-checkpoint", 5),
    ("*-hashmap-savepoint", 5),
    ("*-hashmap-savepoint-native", 5),
    ("*-rocksdb-checkpoint", 5),
    ("*-rocksdb-savepoint", 12),
    ("*-rocksdb-savepoint-native", 5),
)
_OF_SCALA = (
    ("*-jobmanager-savepoint", 6),
    ("*-hashmap-checkpoint", 5),
    ("*-hashmap-savepoint", 6),
    ("*-hashmap-savepoint-native", 5),
    ("*-rocksdb-checkpoint", 5),
    ("*-rocksdb-savepoint", 5),
    ("*-rocksdb-savepoint-native", 5),
)
_FOUR = range(4)
_DRAGONS = [{"value": f"Here be {more}dragons!"} for more in ("", "more ", "yet more ", "the mostest ")]
_TYPED = [{"key": {"f0": each}, "value": each} for each in _FOUR]


def _case(each: int, times: int) -> dict[str, Any]:
    return {"f0": str(each), "f1": times * each}


def _folders(start: str, ends: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    return tuple((" ".join(f"{start}{each}" for each in end.split()), number) for end, number in ends)


JOBS = (
    Job(
        "java",
        _folders(f"new-stateful-udf{_ITCASE}", _OF_JAVA),
        (("source-state", _DRAGONS), ("d5c8b168c6cbfe8c507a10f88b325243.state-name", _TYPED)),
    ),
    Job(
        "java-broadcast",
        _folders(f"new-stateful-broadcast-udf{_ITCASE}", _OF_JAVA),
        (
            ("source-state", _DRAGONS),
            ("broadcast-state-1", [{"map_key": each, "map_value": each} for each in _FOUR]),
            ("broadcast-state-2", [{"map_key": str(each), "map_value": each} for each in _FOUR]),
            ("broadcast-state-3", [{"map_key": each, "map_value": str(each)} for each in _FOUR]),
        ),
    ),
    Job(
        "scala",
        _folders(f"stateful-scala-udf{_ITCASE}", _OF_SCALA),
        (
            ("sourceState", [{"value": {"f0": "Here be dragons!", "f1": 123}}]),
            ("caseClassState", [{"value": _case(each, 2)} for each in _FOUR]),
            ("caseClassWithNestingState", [{"value": {"f0": each, "f1": _case(each, 2)}} for each in _FOUR]),
            ("collectionState", [{"value": [_case(each, 2)]} for each in _FOUR]),
            ("tryState", [{"value": {"success": _case(each, 5), "failure": None}} for each in _FOUR]),
            ("optionState", [{"value": _case(each, 2)} for each in _FOUR]),
            ("eitherLeftState", [{"value": {"left": _case(each, 2), "right": None}} for each in _FOUR]),
            ("eitherRightState", [{"value": {"left": None, "right": str(3 * each)}} for each in _FOUR]),
            ("optionNoneState", 4 * [{"value": None}]),
            ("enumOneState", 4 * [{"value": "THREE"}]),  # the job writes ONE, and then THREE
        ),
    ),
    Job(
        "scala-broadcast",
        _folders(f"stateful-scala-with-broadcast-udf{_ITCASE}", _OF_SCALA),
        (("broadcast-state-1", [{"map_key": each, "map_value": each} for each in _FOUR]),),
    ),
    Job("keyed-operators", (("operatorstate/complexKeyed-flink*", 12),)),
    Job("operators", (("operatorstate/nonKeyed-flink*", 12),)),
    Job(
        "own-serializer",
        ((f"type-serializer-snapshot{_ITCASE}*", 6),),
        (("testState", _TYPED), ("source-state", _DRAGONS)),
    ),
    Job("state-processor", (("table-state*", 3),)),
    Job("timers-and-sinks", (("legacy-raw-state-heap-timers-rocks-db-*", 1), ("unified-sink-migration-test/*", 1))),
)
CASES = [pytest.param(job, at, id=f"{job.name}-{at}") for job in JOBS for at in range(len(job.folders))]

KEYS_WITHOUT_TYPE = (
    "new-stateful-udf-*-flink1.17-hashmap-checkpoint",
    "stateful-scala-udf-*-flink1.16-rocksdb-checkpoint",
    "stateful-scala-with-broadcast-*-flink1.16-hashmap-checkpoint",
    "stateful-scala-*-flink1.19-hashmap-checkpoint",
)
"""Snapshots of the changelog backend with nothing materialized: some keys are bytes, as no file says their type."""

TYPES = {"own-serializer": "20ba6b65f97481d5570070de90e4e791.testState=bigint"}
"""Types that a user gives for serializers of a job's own, of whose values nothing else says the end on the heap."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the jars but their classes."""
    folder = tmp_path_factory.mktemp("released")
    for jar in jars_of("released/snapshots", folder / "maven").split(os.pathsep):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(folder / "files", [each for each in archive.namelist() if not each.endswith(".class")])
    return folder / "files"


def taken(unpacked: Path, patterns: str) -> list[Path]:
    """The snapshots whose folders match one of the patterns."""
    found = sorted(each.parent for each in unpacked.rglob("_metadata"))
    names = {each: str(each.relative_to(unpacked)) for each in found}
    return [each for each in found if any(fnmatchcase(names[each], pattern) for pattern in patterns.split())]


def opened(folder: Path, job: Job) -> FlinkSource:
    return source_at(folder, {"type": TYPES[job.name]} if job.name in TYPES else {})


def states_of(folder: Path, job: Job) -> dict[str, pa.Table]:
    """The rows of each state of a snapshot."""
    source = opened(folder, job)
    return {each.name: rows_of(source, each.name) for each in source.opened(source.refs[-1][0]).states().values()}


def lines(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    """The rows as sorted texts. What a Try has thrown is only that: its stack trace is that of a release."""
    found = rows.select(columns).to_pylist()
    for row in found:
        value = row.get("value")
        if isinstance(value, dict) and isinstance(value.get("failure"), bytes):
            value["failure"] = "thrown"
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def has_key_of_a_changelog(rows: pa.Table) -> bool:
    """Whether keys are bytes because a changelog does not say their type."""
    if "key" not in rows.column_names:
        return False
    metadata: Mapping[bytes, bytes] = rows.schema.field("key").metadata or {}
    return metadata.get(b"statestore.serializer", b"").startswith(b" of a changelog")


def test_the_cases_are_all_snapshots(unpacked: Path) -> None:
    seen = []
    for job in JOBS:
        for patterns, number in job.folders:
            found = taken(unpacked, patterns)
            assert len(found) == number, (job.name, patterns)
            seen += found
    assert len(seen) == len(set(seen)) == SNAPSHOTS
    assert set(seen) == set(taken(unpacked, "*"))


@pytest.mark.parametrize(("job", "at"), CASES)
def test_every_state_is_read_whole_and_has_the_rows_of_all_releases(job: Job, at: int, unpacked: Path) -> None:
    reference = states_of(taken(unpacked, job.folders[-1][0])[0], job)
    for folder in taken(unpacked, job.folders[at][0]):
        states = states_of(folder, job)
        assert states
        without = any(map(has_key_of_a_changelog, states.values()))
        name = str(folder.relative_to(unpacked))
        assert without == any(fnmatchcase(name, pattern) for pattern in KEYS_WITHOUT_TYPE), name
        check_known(job, states)
        if job.name == "timers-and-sinks" or job.name == "state-processor":
            continue  # jobs of their own
        # A state without rows may be missing: an operator without keyed state, or changes that do not name it.
        assert not [each for each, rows in reference.items() if each not in states and rows.num_rows], folder.name
        assert {*states} <= {*reference}, folder.name
        for each, rows in states.items():
            check_same(folder, each, rows, reference[each])


def check_same(folder: Path, name: str, rows: pa.Table, reference: pa.Table) -> None:
    """Compare the rows of both, as far as a job decides them: not how many bytes are stored and in which key group or
    subtask, and not the time of the machine.
    """
    if re.search(r"\.processing_", name):
        return
    left_out = ["stored_bytes", "key_group", "subtask", "position", *(["key"] if has_key_of_a_changelog(rows) else [])]
    columns = [each for each in rows.column_names if each in reference.column_names and each not in left_out]
    assert rows.select(columns).schema.equals(reference.select(columns).schema), (folder.name, name)
    assert lines(rows, columns) == lines(reference, columns), (folder.name, name)


def check_known(job: Job, states: Mapping[str, pa.Table]) -> None:
    for end, rows in job.known:
        found = [read for name, read in states.items() if name.endswith(f".{end}") or name == end]
        assert found, (job.name, end)
        for read in found:
            columns = [each for each in rows[0] if each != "key" or not has_key_of_a_changelog(read)]
            expected = sorted(json.dumps({each: row[each] for each in columns}, sort_keys=True) for row in rows)
            assert lines(read, columns) == expected, (job.name, end)


def test_a_serializer_of_the_test_itself_is_refused_by_name_on_the_heap(unpacked: Path) -> None:
    """Nothing says where its values end; RocksDB and canonical savepoints have frames."""
    for folder in taken(unpacked, JOBS[6].folders[0][0]):
        source = source_at(folder)
        framed = "rocksdb" in folder.name or folder.name.endswith("hashmap-savepoint")
        name = TYPES["own-serializer"].partition("=")[0]
        if framed:
            field = rows_of(source, name).schema.field("value")
            assert field.metadata[b"statestore.serializer"].endswith(b"TestSerializerSnapshot")
        else:
            with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*TestSerializerSnapshot"):
                rows_of(source, name)
