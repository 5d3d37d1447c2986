"""Real jobs of Flink that go on from edited snapshots, compared with a plain model whose state was always so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.engines.toy_edits import tree
from support.flink.edited import planned, state_edit, written
from support.flink.running.java_project import class_path
from support.flink.running.job import Job, Snapshot, run_job
from support.flink.snapshot_reads import rows_of, source_at
from support.object_stores.s3_server import BUCKET, S3Server

import statestore
from statestore.formats.edits import StateEdit
from statestore.formats.flink.source import FlinkSource

pytestmark = pytest.mark.slow

BEFORE, AFTER, KEYS = 50, 20, 10
ERASED, REPAIRED, INSERTED = "k0", "k1", "k99"
OVERDUE = 55_000


@dataclass
class Known:
    """The state of a key in the job ``Edited``."""

    count: int | None = None
    parts: dict[str, tuple[int, bool]] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    timers: set[int] = field(default_factory=set)


def model(events: Iterable[int], keys: dict[str, Known]) -> dict[tuple[str, int], int]:
    """What events make of the keys; return the count of each key and timer that fired."""
    last = 0
    for number in events:
        key = keys.setdefault(f"k{number % KEYS}", Known())
        if key.count is None:
            key.timers.add(60_000 + 10 * number)
        key.count = (key.count or 0) + 1
        part = f"p{number % 3}"
        key.parts[part] = (key.parts.get(part, (0, False))[0] + 1, number % 2 == 0)
        key.ids.append(number)
        last = number
    fired = {(name, time): key.count or 0 for name, key in keys.items() for time in key.timers if time <= last * 1000}
    for name, time in fired:
        keys[name].timers.remove(time)
    return fired


def edited_model(keys: dict[str, Known]) -> None:
    del keys[ERASED]
    keys[REPAIRED].count = 1000
    keys[REPAIRED].ids = [7]
    keys[REPAIRED].parts["p1"] = (500, True)
    keys[REPAIRED].parts["extra"] = (9, False)
    keys[INSERTED] = Known(5, {"p0": (3, True)}, [1, 2], {OVERDUE})


def edits_of(source: FlinkSource) -> list[StateEdit]:
    """The edit of `edited_model`, as rows that go and rows that come."""

    def edit(state: str, added: list[dict[str, Any]]) -> StateEdit:
        name = f"edited.{state}"
        rows = rows_of(source, name)
        keys = rows.column("key").to_pylist()
        new = {tuple(row[each] for each in source.info(name).row_key) for row in added if row["key"] == REPAIRED}
        place = [tuple(row[each] for each in source.info(name).row_key) for row in rows.to_pylist()]
        whole = state == "ids"  # all elements of a list
        gone = [
            key == ERASED or (key == REPAIRED and (whole or at in new)) for key, at in zip(keys, place, strict=True)
        ]
        schema = pa.schema([each for each in rows.schema if each.name not in source.info(name).placement])
        return state_edit(source, name, rows.filter(pa.array(gone)), pa.Table.from_pylist(added, schema))

    moment = {"timestamp": OVERDUE * 1000, "timestamp_ms": OVERDUE}
    return [
        edit("count", [{"key": REPAIRED, "value": 1000}, {"key": INSERTED, "value": 5}]),
        edit(
            "ids",
            [
                {"key": REPAIRED, "position": 0, "value": 7},
                {"key": INSERTED, "position": 0, "value": 1},
                {"key": INSERTED, "position": 1, "value": 2},
            ],
        ),
        edit(
            "parts",
            [
                {"key": REPAIRED, "map_key": "p1", "map_value": {"f0": 500, "f1": True}},
                {"key": REPAIRED, "map_key": "extra", "map_value": {"f0": 9, "f1": False}},
                {"key": INSERTED, "map_key": "p0", "map_value": {"f0": 3, "f1": True}},
            ],
        ),
        edit("event_user-timers", [{"key": INSERTED, **moment}]),
    ]


def seen_by(source: FlinkSource, operator: str = "edited") -> dict[str, Known]:
    """The state of each key, read from a snapshot."""
    found: dict[str, Known] = {}
    for row in rows_of(source, f"{operator}.count").to_pylist():
        found.setdefault(row["key"], Known()).count = row["value"]
    for row in rows_of(source, f"{operator}.parts").to_pylist():
        value = row["map_value"]
        found.setdefault(row["key"], Known()).parts[row["map_key"]] = (value["f0"], value["f1"])
    for row in sorted(rows_of(source, f"{operator}.ids").to_pylist(), key=lambda each: each["position"]):
        found.setdefault(row["key"], Known()).ids.append(row["value"])
    for row in rows_of(source, f"{operator}.event_user-timers").to_pylist():
        found.setdefault(row["key"], Known()).timers.add(row["timestamp_ms"])
    return found


def told_by(snapshot: Snapshot) -> tuple[dict[str, Known], dict[tuple[str, int], int]]:
    """What the job itself saw since its start: the state of keys, without timers, and those that fired."""
    found: dict[str, Known] = {}
    fired: dict[tuple[str, int], int] = {}
    for row in snapshot.truth:
        key = row["key"]
        if row["state"].startswith("fired-"):
            fired[key, int(row["state"].removeprefix("fired-"))] = row["value"]
        elif row["state"] == "count":
            found.setdefault(key, Known()).count = row["value"]
        elif row["state"] == "ids":
            found.setdefault(key, Known()).ids = row["value"]
        elif row["state"] == "parts":
            pairs = row["value"]["$map"] if isinstance(row["value"], dict) else row["value"]
            found.setdefault(key, Known()).parts = {part: (value[0], value[1]) for part, value in pairs}
    return found, fired


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """The class path of the jobs with a release of Flink, and with the jars of a project."""
    return cache(lambda project, version: class_path(project, tmp_path_factory.mktemp("programs"), version))


NEWEST, OLDER = "2.3.0", "1.20.3"
SETTINGS = {"rename_operator": "edited=elsewhere", "drop": "spare"}
"""Of a job with an operator more, which goes on without it and with another uid. With its state it would not start."""
ON_HEAP = {"timers": "HEAP"}
"""Timers that a checkpoint of RocksDB has in raw keyed state."""
OF_SETTINGS = {"uid": "elsewhere", "parallelism": "3"}


@pytest.mark.parametrize(
    ("version", "kind", "options", "settings", "then"),
    [
        (
            NEWEST,
            "canonical",
            {"backend": "rocksdb", "spare": ""},
            {"max_parallelism": "300", **SETTINGS},
            {"backend": "rocksdb", "maxparallelism": "300", **OF_SETTINGS},
        ),
        (NEWEST, "canonical", {"backend": "rocksdb"}, {}, {"backend": "rocksdb", "parallelism": "3"}),
        (NEWEST, "native", {"backend": "rocksdb"}, {}, {"backend": "rocksdb"}),
        (NEWEST, "chk", {"backend": "rocksdb"}, {}, {"backend": "hashmap"}),
        (NEWEST, "chk", {"backend": "rocksdb", **ON_HEAP}, {}, {"backend": "rocksdb", **ON_HEAP}),
        (NEWEST, "chk", {"backend": "hashmap", "spare": ""}, {}, {"backend": "rocksdb", "spare": ""}),
        (NEWEST, "wait:1500,chk", {"backend": "rocksdb", "changelog": "200"}, {}, {"backend": "hashmap"}),
        (
            OLDER,
            "chk",
            {"backend": "hashmap", "spare": "", "maxparallelism": "1024"},
            {"max_parallelism": "7", **SETTINGS},
            {"backend": "rocksdb", "maxparallelism": "7", **OF_SETTINGS},
        ),
    ],
    ids=["settings", "canonical", "native", "checkpoint", "heap-timers", "heap", "changelog", "settings-1.20"],
)
def test_a_job_goes_on_from_what_was_edited(
    version: str,
    kind: str,
    options: dict[str, str],
    settings: dict[str, str],
    then: dict[str, str],
    programs: Callable[[str, str], str],
    tmp_path: Path,
) -> None:
    jars = programs("async" if "changelog" in options else "jobs", version)
    first = run_job(jars, tmp_path / "first", Job("Edited", f"emit:{BEFORE},{kind}", tuple(options.items())))
    uids = {"uids": "edited,elsewhere,spare"}  # which snapshots of Flink 1.x do not have
    source = source_at(first.snapshots[-1].folder, uids)
    keys: dict[str, Known] = {}
    assert not model(range(BEFORE), keys)
    assert seen_by(source) == keys

    target = written(planned(source, edits_of(source), settings=settings), tmp_path / "target")
    edited_model(keys)
    assert seen_by(target) == keys

    start = (*then.items(), ("from", str(tmp_path / "target")))
    steps = f"emit:{BEFORE + AFTER},canonical"  # the source goes on behind its last event
    second = run_job(jars, tmp_path / "second", Job("Edited", steps, start))
    fired = model(range(BEFORE, BEFORE + AFTER), keys)
    assert seen_by(source_at(second.snapshots[-1].folder, uids), then.get("uid", "edited")) == keys
    told, told_fired = told_by(second.snapshots[-1])
    assert told_fired == fired
    assert {(INSERTED, OVERDUE), (ERASED, 60_000 + 10 * BEFORE)} <= set(fired)
    assert (ERASED, 60_000) not in fired
    assert {name: Known(key.count, key.parts, key.ids) for name, key in keys.items()} == told


# Windows and operator state, by the statements that users write

STATEMENTS = """
    DELETE FROM "tumbling.window-contents" WHERE key = 'k0';
    DELETE FROM "sessions.window-contents" WHERE key = 'k0';
    DELETE FROM "tumbling.window-contents" WHERE key = 'k1' AND value IN (11, 31);
    UPDATE "sessions.window-contents" SET value = 1000 WHERE key = 'k1' AND value = 21;
    INSERT INTO "tumbling.window-contents" SELECT 'k99', namespace, position, position + 7
        FROM "tumbling.window-contents" WHERE key = 'k2' AND position < 2;
    INSERT INTO "sessions.window-contents" SELECT 'k99', namespace, position, position + 8
        FROM "sessions.window-contents" WHERE key = 'k2' AND position < 2;
    DELETE FROM "buffers.split" WHERE value IN (3, 4, 17);
    UPDATE "buffers.split" SET value = 5000 WHERE value = 5;
    INSERT INTO "buffers.split" (subtask, position, value) VALUES (0, 1000, 777), (1, NULL, 778);
    DELETE FROM "buffers.union" WHERE value = 't9';
    INSERT INTO "buffers.union" (subtask, position, value) VALUES (1, 1000, 'new');
    DELETE FROM "rules.rules" WHERE map_key = 'rule-1';
    UPDATE "rules.rules" SET map_value = 22 WHERE map_key = 'rule-2';
    INSERT INTO "rules.rules" VALUES ('rule-new', 33);
"""
GAP = 15


def ended_windows(until: int) -> dict[tuple[str, str], list[int]]:
    """The windows that end before event 90, by operator, key and bounds, as if their state had always been edited."""
    found: dict[tuple[str, str], list[int]] = {}
    for number in range(KEYS):
        ids = [each for each in range(60) if each % KEYS == number]
        found["tumbling", f"k{number} 0-60000"] = ids
        ids = [each for each in ids if each < until]
        found["sessions", f"k{number} {1000 * ids[0]}-{1000 * (ids[-1] + GAP)}"] = ids
    del found["sessions", "k0 0-55000"]
    found["tumbling", "k0 0-60000"] = [50]
    found["tumbling", "k1 0-60000"] = [1, 21, 41, 51]
    found["sessions", "k1 1000-56000"] = [1, 11, 1000, 31, 41]
    found["tumbling", "k99 0-60000"] = [7, 8]
    found["sessions", "k99 2000-17000"] = [8, 9]
    return found


def whole_windows(source: FlinkSource) -> dict[str, int]:
    """The number of windows of each operator, of which each must have contents and timers, a session an entry too."""
    counts = {}
    for operator in ("tumbling", "sessions"):
        contents = {
            (row["key"], str(row["namespace"])) for row in rows_of(source, f"{operator}.window-contents").to_pylist()
        }
        windows = contents
        if operator == "sessions":
            entries = rows_of(source, "sessions.merging-window-set").to_pylist()
            assert {(row["key"], str(row["value"]["f1"])) for row in entries} == contents
            windows = {(row["key"], str(row["value"]["f0"])) for row in entries}
        timers = rows_of(source, f"{operator}.event_window-timers").to_pylist()
        assert {(row["key"], str(row["namespace"])) for row in timers} == windows and len(timers) == len(windows)
        counts[operator] = len(windows)
    return counts


@dataclass(frozen=True)
class Place:
    """A folder for runs and targets; ``server``: of S3, which keeps its objects there, as jobs of Flink find them."""

    folder: Path
    server: S3Server | None = None

    def options(self, name: str) -> dict[str, str]:
        """Options of a job by which its snapshots are put below the folder of a run."""
        if self.server is None:
            return {}
        found = {"endpoint": self.server.endpoint, "path.style.access": "true", "access-key": self.server.access_key}
        found["secret-key"] = self.server.secret_key
        found["directory.marker.retention"] = "keep"  # the gateway does not remove a folder in which something is
        return {
            "url": self.of_flink(self.folder / name / "state"),
            "extra": "#".join(f"s3.{option}={value}" for option, value in found.items()),
        }

    def of_flink(self, path: Path) -> str:
        return str(path) if self.server is None else f"s3://{path.relative_to(self.server.folder)}"

    def ours(self, path: Path) -> str:
        if self.server is None:
            return str(path)
        bucket, *names = path.relative_to(self.server.folder).parts
        return self.server.warehouse("/".join(names), bucket)


@pytest.mark.parametrize(
    ("kind", "options", "then", "project"),
    [
        ("canonical", {"backend": "rocksdb"}, {"backend": "hashmap"}, "jobs"),
        ("chk", {"backend": "hashmap", "compress": "true"}, {"backend": "hashmap", "parallelism": "3"}, "jobs"),
        ("chk", {"backend": "rocksdb"}, {"backend": "rocksdb", "parallelism": "3"}, "object_stores"),
    ],
    ids=["canonical", "checkpoint", "checkpoint in S3"],
)
def test_windows_and_operator_state_go_on(
    kind: str,
    options: dict[str, str],
    then: dict[str, str],
    project: str,
    programs: Callable[[str, str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    until, jars, place = 45, programs(project, NEWEST), Place(tmp_path)
    if project == "object_stores":
        server: S3Server = request.getfixturevalue("s3_server")
        place = Place(server.folder / BUCKET / "edited-savepoints", server)
        place.folder.mkdir()
    start = (*options.items(), *place.options("first").items())
    first = run_job(jars, place.folder / "first", Job("EditedParts", f"emit:{until},{kind}", start))
    before, target = tree(first.snapshots[-1].folder.parent), place.folder / "target"
    with statestore.edit(place.ours(first.snapshots[-1].folder), place.ours(target)) as edit:
        edit.sql(STATEMENTS)
    assert whole_windows(source_at(place.ours(target))) == {"tumbling": KEYS, "sessions": KEYS}

    start = (*then.items(), *place.options("second").items(), ("from", place.of_flink(target)))
    second = run_job(jars, place.folder / "second", Job("EditedParts", "emit:90,canonical", start))
    assert tree(first.snapshots[-1].folder.parent) == before
    ended: dict[tuple[str, str], list[int]] = {}
    found: dict[str, list[Any]] = {}
    for row in second.snapshots[-1].truth:
        if row["state"].startswith("ended-"):
            ended[row["operator"], f"{row['key']} {row['state'].removeprefix('ended-')}"] = row["value"]
        else:
            found.setdefault(row["state"], []).append(row["value"])
    assert ended == ended_windows(until)
    split = sorted(each for part in found["restored-split"] for each in part)
    assert split == sorted({*range(until), 777, 778, 5000} - {3, 4, 5, 17})
    texts = sorted({f"t{each}" for each in range(0, until, 3)} - {"t9"} | {"new"})
    subtasks = int(then.get("parallelism", "2"))
    assert len(found["restored-union"]) == subtasks and all(sorted(each) == texts for each in found["restored-union"])
    rules = {f"rule-{number}": number for number in range(9)} | {"rule-2": 22, "rule-new": 33}
    del rules["rule-1"]
    assert all(dict(each["$map"] if isinstance(each, dict) else each) == rules for each in found["seen"])
    assert whole_windows(source_at(place.ours(second.snapshots[-1].folder)))["sessions"] == KEYS
