"""States whose rows say when they were valid: moments, history and changes against a plain model of timelines."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import strategies as st
from support.engines import ages
from support.properties import few_or_many

import statestore

Timeline = list[tuple[int, int | None]]
"""The values of a key by their starts, ascending (milliseconds); None: a deletion."""
TIMELINES = st.dictionaries(
    st.sampled_from(["a", "aa", "b", "c"]),
    st.dictionaries(st.integers(1, 12), st.integers(0, 2) | st.none(), max_size=6).map(lambda d: sorted(d.items())),
)


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file = tmp_path_factory.mktemp("package") / "ages.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(ages.__file__, "ages_engine.py")
        archive.writestr("ages-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: ages\nVersion: 1.0\n")
        archive.writestr("ages-1.0.dist-info/entry_points.txt", "[statestore.engines]\nages = ages_engine\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file)
        yield


@contextmanager
def folder_of_its_own() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)


def written(folder: Path, timelines: dict[str, Timeline], since: int | None = None) -> Any:
    rows = [row for key, timeline in timelines.items() for row in intervals(key, timeline)]
    kept = [row for row in rows if since is None or row["to"] is None or row["to"] > since]
    folder.mkdir()
    (folder / "ages.json").write_text(json.dumps({"from": since, "rows": kept}))
    return statestore.inspect(folder).table("ages")


def intervals(key: str, timeline: Timeline) -> list[dict[str, Any]]:
    ends = [start for start, _ in [*timeline, (None, None)][1:]]
    return [
        {"k": key, "n": n, "from": start, "to": end}
        for (start, n), end in zip(timeline, ends, strict=True)
        if n is not None
    ]


def state_at(timelines: dict[str, Timeline], moment: int) -> dict[str, int]:
    newest = {key: [n for start, n in line if start <= moment][-1:] for key, line in timelines.items()}
    return {key: n[0] for key, n in newest.items() if n and n[0] is not None}


def values(reader: Any) -> dict[str, int]:
    rows = reader.read_all().to_pylist()
    assert len(rows) == len({row["k"] for row in rows})
    return {row["k"]: row["n"] for row in rows}


def moments_of(rows: list[dict[str, Any]], name: str) -> list[int | None]:
    return [None if row[name] is None else round(row[name].timestamp() * 1000) for row in rows]


@few_or_many(10, 60, timelines=TIMELINES, since=st.none() | st.integers(1, 8))
def test_moments_and_changes_are_those_of_the_timelines(timelines: dict[str, Timeline], since: int | None) -> None:
    with folder_of_its_own() as folder:
        table = written(folder / "ages", timelines, since)
        assert values(table.scan()) == state_at(timelines, 99)
        for moment in range(1 if since is None else since, 14):
            assert values(table.scan(as_of=moment)) == state_at(timelines, moment)
        state = Counter(state_at(timelines, 0 if since is None else since).items())
        changes = table.changes().read_all().to_pylist()
        for moment in range(14):
            now = [row for row in changes if row["valid_from"].timestamp() * 1000 == moment]
            kinds = Counter((row["k"], row["_change_type"]) for row in now)
            assert all(count == 1 for count in kinds.values())
            assert {key for key, kind in kinds if kind == "update_preimage"} == {
                key for key, kind in kinds if kind == "update_postimage"
            }
            for row in now:
                state[row["k"], row["n"]] += -1 if row["_change_type"] in ("delete", "update_preimage") else 1
            if since is None or moment >= since:
                assert dict(+state) == dict.fromkeys(state_at(timelines, moment).items(), 1)
                assert not -state


@few_or_many(6, 30, timelines=TIMELINES, first=st.integers(1, 13), last=st.integers(1, 13))
def test_history_has_every_row_with_its_interval(timelines: dict[str, Timeline], first: int, last: int) -> None:
    first, last = sorted((first, last))
    with folder_of_its_own() as folder:
        table = written(folder / "ages", timelines)
        expected = [row for key, line in timelines.items() for row in intervals(key, line)]
        between = [row for row in expected if row["from"] <= last and (row["to"] is None or row["to"] > first)]
        for asked, rows in (({}, expected), ({"start_time": first, "end_time": last}, between)):
            found = table.history(**asked).read_all().to_pylist()
            assert {row["_commit_version"] for row in found} <= {1}
            keys = [(row["k"], row["n"]) for row in found]
            intervals_found = zip(keys, moments_of(found, "valid_from"), moments_of(found, "valid_to"), strict=True)
            assert Counter(intervals_found) == Counter(((r["k"], r["n"]), r["from"], r["to"]) for r in rows)


def test_a_filter_on_values_makes_no_insert_of_an_update(tmp_path: Path) -> None:
    table = written(tmp_path / "ages", {"a": [(1, 1), (5, 2), (9, None)]})
    (row,) = table.changes(filter=("n", "=", 2), end_time=5).read_all().to_pylist()
    assert (row["_change_type"], row["n"], row["valid_from"].timestamp() * 1000) == ("update_postimage", 2, 5)
    (row,) = table.changes(filter=("valid_from", ">", row["valid_from"])).read_all().to_pylist()
    assert (row["_change_type"], row["n"]) == ("delete", 2)


def test_moments_before_the_past_are_refused(tmp_path: Path) -> None:
    table = written(tmp_path / "ages", {"a": [(1, 1), (5, 2), (9, 3)]}, since=5)
    assert values(table.scan(as_of=5)) == {"a": 2}
    for read, asked in (
        (table.scan, {"as_of": 4}),
        (table.history, {"start_time": 4}),
        (table.changes, {"end_time": 5}),
    ):
        with pytest.raises(statestore.NotFoundError, match=r"TIME_NOT_KEPT.*1970-01-01T00:00:00\.005Z"):
            read(**asked)
    with pytest.raises(statestore.NotFoundError, match="VERSION_NOT_FOUND"):
        table.scan(version=2, as_of=9)


def test_a_row_of_unknown_start_held_from_the_beginning_on(tmp_path: Path) -> None:
    folder = tmp_path / "ages"
    folder.mkdir()
    rows = [{"k": "a", "n": 1, "from": None, "to": 5}, {"k": "a", "n": 2, "from": 5, "to": None}]
    (folder / "ages.json").write_text(json.dumps({"from": 3, "rows": rows}))
    table = statestore.inspect(folder).table("ages")
    assert values(table.scan(as_of=3)) == {"a": 1}
    assert [row["_commit_version"] for row in table.history(key="a").read_all().to_pylist()] == [None, 1]
    kinds = [(row["_change_type"], row["n"]) for row in table.changes().read_all().to_pylist()]
    assert sorted(kinds) == [("update_postimage", 2), ("update_preimage", 1)]


def test_sql_and_duckdb_read_moments_of_rows(tmp_path: Path) -> None:
    written(tmp_path / "ages", {"a": [(1, 1), (5, 2)], "b": [(7, 9)]})
    statement = "SELECT k, n FROM ages TIMESTAMP AS OF '1970-01-01T00:00:00.006Z'"
    assert statestore.sql(str(tmp_path / "ages"), statement).to_pylist() == [{"k": "a", "n": 2}]
