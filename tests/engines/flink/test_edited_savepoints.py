"""Real jobs of Flink that go on from edited snapshots, compared with a plain model whose state was always so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.engines.toy_edits import tree
from support.flink.edited import planned, state_edit, written
from support.flink.running.java_project import class_path
from support.flink.running.job import OPENED, OPTIONS, PATIENCE_S, Job, run_job
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


def told_by(lines: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Known], dict[tuple[str, int], int]]:
    """What the job itself saw since its start: the state of keys, without timers, and those that fired.

    Lines that Flink's State Processor API has printed have the timers of each key, too.
    """
    found: dict[str, Known] = {}
    fired: dict[tuple[str, int], int] = {}
    for row in lines:
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
        elif row["state"] == "timers":
            found.setdefault(key, Known()).timers = set(row["value"])
    return found, fired


def read_by_flink(jars: str, snapshot: Path, start: Mapping[str, str]) -> dict[str, Known]:
    """The state of each key, read by Flink's State Processor API with the backend of a job that starts from it.

    That reader shows no timers of raw keyed state, not even in the snapshot that Flink itself has written.
    """
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    asked = (str(snapshot), start["backend"], start.get("timers", "ROCKSDB"), start.get("uid", "edited"))
    command = ["java", *OPTIONS, *opened, "-cp", jars, "ReadEdited", *asked]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return told_by(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{"))[0]


def without_timers(keys: Mapping[str, Known]) -> dict[str, Known]:
    """Return the keys as a reader shows them that does not restore timers, and as jobs tell of them."""
    return {name: Known(key.count, key.parts, key.ids) for name, key in keys.items()}


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
ROCKS, HEAP, WIDER = {"backend": "rocksdb"}, {"backend": "hashmap"}, {"parallelism": "3"}
LOGGED = {**ROCKS, "changelog": "never"}
"""The changelog backend, which materializes nothing: all state is in the changelog."""
LAYOUTS: tuple[tuple[str, str, dict[str, str], dict[str, str], dict[str, str]], ...] = (
    ("canonical", "canonical", ROCKS, {**ROCKS, **WIDER}, {**HEAP, **WIDER}),
    ("native", "native", ROCKS, ROCKS, {**ROCKS, **WIDER}),
    ("checkpoint", "chk", ROCKS, HEAP, {**ROCKS, **WIDER}),
    ("heap-timers", "chk", {**ROCKS, **ON_HEAP}, {**ROCKS, **ON_HEAP}, {**ROCKS, **ON_HEAP}),
    ("heap", "chk", {**HEAP, "spare": ""}, {**ROCKS, "spare": ""}, {**HEAP, "spare": "", **WIDER}),
    ("changelog", "wait:1500,chk", {**ROCKS, "changelog": "200"}, HEAP, {**HEAP, **WIDER}),
)
"""Names, and for each the step and the options of the job that leaves a snapshot, and the options with which jobs start
from an edit of it and from a copy without changes. Such a copy has the files of its backend."""


@pytest.mark.parametrize(
    ("version", "kind", "options", "settings", "then"),
    [
        pytest.param(
            NEWEST,
            "canonical",
            {"backend": "rocksdb", "spare": ""},
            {"max_parallelism": "300", **SETTINGS},
            {"backend": "rocksdb", "maxparallelism": "300", **OF_SETTINGS},
            id="settings",
        ),
        *(pytest.param(NEWEST, kind, options, {}, then, id=name) for name, kind, options, then, _ in LAYOUTS),
        pytest.param(
            OLDER,
            "chk",
            {"backend": "hashmap", "spare": "", "maxparallelism": "1024"},
            {"max_parallelism": "7", **SETTINGS},
            {"backend": "rocksdb", "maxparallelism": "7", **OF_SETTINGS},
            id="settings-1.20",
        ),
        *(
            pytest.param(NEWEST, kind, options, None, then, id=f"copied-{name}")
            for name, kind, options, _, then in LAYOUTS
        ),
        pytest.param(OLDER, "chk", ROCKS, None, ROCKS, id="copied-1.20"),
        pytest.param(
            NEWEST,
            "chk",
            {**LOGGED, "compress": "true"},
            None,
            {**LOGGED, **WIDER, "claim": "CLAIM"},
            id="copied-logged",
        ),
    ],
)
def test_a_job_goes_on_from_what_was_edited(
    version: str,
    kind: str,
    options: dict[str, str],
    settings: dict[str, str] | None,
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

    if settings is not None:
        target = written(planned(source, edits_of(source), settings=settings), tmp_path / "target")
        edited_model(keys)
        assert seen_by(target) == keys
    else:
        with statestore.edit(first.snapshots[-1].folder, tmp_path / "target"):
            pass  # a copy without changes
        assert seen_by(source_at(tmp_path / "target", uids)) == keys
        # The State Processor API of the older release cannot be had, and it reads no changelogs.
        if version == NEWEST and "changelog" not in then:
            read = read_by_flink(programs("processor", version), tmp_path / "target", then)
            assert read == (without_timers(keys) if "timers" in options else keys)

    start = (*then.items(), ("from", str(tmp_path / "target")))
    steps = f"emit:{BEFORE + AFTER},canonical"  # the source goes on behind its last event
    second = run_job(jars, tmp_path / "second", Job("Edited", steps, start))
    fired = model(range(BEFORE, BEFORE + AFTER), keys)
    assert seen_by(source_at(second.snapshots[-1].folder, uids), then.get("uid", "edited")) == keys
    told, told_fired = told_by(second.snapshots[-1].truth)
    assert told_fired == fired
    if settings is None:
        assert fired.keys() == {(f"k{number}", 60_000 + 10 * number) for number in range(KEYS)}
    else:
        assert {(INSERTED, OVERDUE), (ERASED, 60_000 + 10 * BEFORE)} <= set(fired)
        assert (ERASED, 60_000) not in fired
    assert told == without_timers(keys)


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


def ended_windows(until: int, statements: str) -> dict[tuple[str, str], list[int]]:
    """The windows that end before event 90, by operator, key and bounds, as if their state had always been edited."""
    found: dict[tuple[str, str], list[int]] = {}
    for number in range(KEYS):
        ids = [each for each in range(60) if each % KEYS == number]
        found["tumbling", f"k{number} 0-60000"] = ids
        ids = [each for each in ids if each < until]
        found["sessions", f"k{number} {1000 * ids[0]}-{1000 * (ids[-1] + GAP)}"] = ids
    if not statements:
        return found
    del found["sessions", "k0 0-55000"]
    found["tumbling", "k0 0-60000"] = [50]
    found["tumbling", "k1 0-60000"] = [1, 21, 41, 51]
    found["sessions", "k1 1000-56000"] = [1, 11, 1000, 31, 41]
    found["tumbling", "k99 0-60000"] = [7, 8]
    found["sessions", "k99 2000-17000"] = [8, 9]
    return found


def operator_state(until: int, statements: str) -> tuple[list[int], list[str], dict[str, int]]:
    """The elements of both lists and the rules, as if they had always been edited."""
    split, union = {*range(until)}, {f"t{each}" for each in range(0, until, 3)}
    rules = {f"rule-{number}": number for number in range(9)}
    if statements:
        split = split - {3, 4, 5, 17} | {777, 778, 5000}
        union = union - {"t9"} | {"new"}
        rules |= {"rule-2": 22, "rule-new": 33}
        del rules["rule-1"]
    return sorted(split), sorted(union), rules


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
    ("kind", "options", "then", "project", "statements"),
    [
        ("canonical", ROCKS, HEAP, "jobs", STATEMENTS),
        ("chk", {**HEAP, "compress": "true"}, {**HEAP, **WIDER}, "jobs", STATEMENTS),
        ("chk", ROCKS, {**ROCKS, **WIDER}, "object_stores", STATEMENTS),
        ("chk", {**HEAP, "compress": "true"}, {**HEAP, **WIDER}, "jobs", ""),
        ("native", ROCKS, {**ROCKS, **WIDER}, "jobs", ""),
        ("chk", ROCKS, {**ROCKS, **WIDER}, "object_stores", ""),
    ],
    ids=["canonical", "checkpoint", "checkpoint in S3", "copied checkpoint", "copied native", "copied from S3"],
)
def test_windows_and_operator_state_go_on(
    kind: str,
    options: dict[str, str],
    then: dict[str, str],
    project: str,
    statements: str,
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
        if statements:
            edit.sql(statements)
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
    assert ended == ended_windows(until, statements)
    elements, texts, rules = operator_state(until, statements)
    assert sorted(each for part in found["restored-split"] for each in part) == elements
    subtasks = int(then.get("parallelism", "2"))
    assert len(found["restored-union"]) == subtasks and all(sorted(each) == texts for each in found["restored-union"])
    assert all(dict(each["$map"] if isinstance(each, dict) else each) == rules for each in found["seen"])
    assert whole_windows(source_at(place.ours(second.snapshots[-1].folder)))["sessions"] == KEYS
