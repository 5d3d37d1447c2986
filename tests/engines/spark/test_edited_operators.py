"""Sessions and states of users' functions go on from edited copies, as a plain model says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import LAYOUTS, conf, opened, rows_of, run
from support.edited_copies import write_copy
from support.spark_release import since, skip_unknown

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.spark.source import CheckpointSource

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Event = tuple[str, int]


def rows_like(table: pa.Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=table.schema)


def edit(source: CheckpointSource, state: str, erased: Sequence[str], put: Sequence[dict[str, Any]]) -> StateEdit:
    """All rows of these keys are removed, and others put in place of them and of those of the same key."""
    table = rows_of(source, state)
    gone = {*erased, *(row["key"]["k"] for row in put)}
    removed = table.filter(pa.array([key["k"] in gone for key in table["key"].to_pylist()], pa.bool_()))
    return StateEdit(state, source.info(state).row_key or ("key",), removed, rows_like(table, put))


def minutes(count: int) -> datetime:
    return BEGAN + timedelta(minutes=count)


# Sessions


def sessions(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import session_window

    return rows.withWatermark("t", "10 hours").groupBy(session_window("t", "10 minutes"), "k").count()


def session(key: str, begin: int, end: int, count: int) -> dict[str, Any]:
    window = {"start": minutes(begin), "end": minutes(end)}
    key_struct = {"k": key, "sessionStartTime": minutes(begin)}
    return {"key": key_struct, "value": {"session_window": window, "k": key, "count": count}}


def merged(events: Iterable[Event], before: Iterable[tuple[str, int, int, int]] = ()) -> set[tuple[str, int, int, int]]:
    """Sessions (key, begin, end, count) after events at minutes."""
    found = set(before)
    for key, at in events:
        begin, end, count = at, at + 10, 1
        for each in [each for each in found if each[0] == key and each[1] < end and begin < each[2]]:
            found.remove(each)
            begin, end, count = min(begin, each[1]), max(end, each[2]), count + each[3]
        found.add((key, begin, end, count))
    return found


@pytest.mark.parametrize("layout", ["deltas", "zips", "changelogs with checksums", "changelogs of format 2"])
def test_sessions_go_on(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    before = [("a", 0), ("a", 5), ("b", 0), ("c", 3), ("a", 60)]
    after = [("a", 14), ("b", 3), ("d", 9), ("c", 12)]

    def batches(events: list[Event]) -> list[list[dict[str, Any]]]:
        rows = [{"k": key, "t": minutes(at).isoformat()} for key, at in events]
        return [rows[:2], rows[2:]]

    def shown(path: Path) -> set[tuple[str, int, int, int]]:
        rows = rows_of(opened(path)).to_pylist()
        assert len({str(row["key"]) for row in rows}) == len(rows)
        return {
            (value["k"], *((value["session_window"][each] - BEGAN).seconds // 60 for each in ("start", "end")),
             value["count"])
            for value in (row["value"] for row in rows)
        }  # fmt: skip

    schema = "k string, t timestamp"
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        run(spark, tmp_path, tmp_path / "source", schema, batches(before), sessions, "append")
        assert shown(tmp_path / "source") == merged(before)
        source = opened(tmp_path / "source")
        put = [session("a", 0, 15, 100), session("a", 60, 70, 7), session("d", 0, 12, 5)]
        plan = source.edit_plan(source.newest("state"), [edit(source, "state", ["b"], put)], EditOptions())
        write_copy(plan, tmp_path / "target")
        edited = {("a", 0, 15, 100), ("a", 60, 70, 7), ("d", 0, 12, 5), ("c", 3, 13, 1)}
        assert shown(tmp_path / "target") == edited
        run(spark, tmp_path, tmp_path / "target", schema, batches(after), sessions, "append")
        assert shown(tmp_path / "target") == merged(after, edited)
        builtin = spark.read.format("statestore").option("provider", "builtin").load(str(tmp_path / "target"))
        assert builtin.count() == len(merged(after, edited))


# States of functions


def counted(rows: DataFrame) -> DataFrame:
    def count(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        total = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})

    return rows.groupBy("k").applyInPandasWithState(count, "k string, n bigint", "n bigint", "update", "NoTimeout")


def events(*texts: str) -> list[list[dict[str, Any]]]:
    return [[{"k": key} for key in text] for text in texts]


@pytest.mark.parametrize("layout", ["deltas", "changelogs with checksums"])
def test_states_of_functions_go_on(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    def shown(path: Path) -> dict[str, int]:
        rows = rows_of(opened(path)).to_pylist()
        return {row["key"]["k"]: row["value"]["groupState"]["n"] for row in rows}

    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        run(spark, tmp_path, tmp_path / "source", "k string", events("aab", "abc"), counted)
        assert shown(tmp_path / "source") == {"a": 3, "b": 2, "c": 1}
        source = opened(tmp_path / "source")
        like = rows_of(source).to_pylist()[0]
        put = [
            like | {"key": {"k": key}, "value": like["value"] | {"groupState": {"n": n}}}
            for key, n in (("b", 50), ("d", 70))
        ]
        plan = source.edit_plan(source.newest("state"), [edit(source, "state", ["a"], put)], EditOptions())
        write_copy(plan, tmp_path / "target")
        run(spark, tmp_path, tmp_path / "target", "k string", events("aab", "cd", "dd"), counted)
        assert shown(tmp_path / "target") == {"a": 2, "b": 51, "c": 2, "d": 73}


def remembered(rows: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Remember(StatefulProcessor):
        """Counts rows, in a value, by number in a map, and lists the numbers."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._count = handle.getValueState("count", "n bigint")
            self._of = handle.getMapState("of", "number bigint", "n bigint")
            self._listed = handle.getListState("listed", "number bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            count = (self._count.get() or (0,))[0]
            for frame in rows:
                for number in frame["number"].tolist():
                    count += 1
                    seen = (self._of.getValue((number,)) or (0,))[0]
                    self._of.updateValue((number,), (seen + 1,))
                    self._listed.appendValue((number,))
            self._count.update((count,))
            yield pd.DataFrame({"k": [key[0]], "n": [count]})

        def close(self) -> None:
            pass

    return rows.groupBy("k").transformWithStateInPandas(Remember(), "k string, n bigint", "Update", "None")


@since(4, 0, "transformWithStateInPandas")
@pytest.mark.parametrize(
    ("layout", "before"),
    [
        ("changelogs", ["a1 a2 b1", "a1 b3 c4"]),
        ("zips", ["a1 a2 b1", "a1 b3 c4"]),
        ("changelogs of format 2 with checksums", ["a1 a2 b1", "a1 b3 c4"]),
        # The first batch has a zip beside its changelog.
        ("changelogs", ["a1 a2 b1 a1 b3 c4"]),
        ("changelogs of format 2 with checksums", ["a1 a2 b1 a1 b3 c4"]),
    ],
)
def test_variables_go_on_after_their_source_has_gone(
    spark: SparkSession, tmp_path: Path, layout: str, before: list[str]
) -> None:
    def shown(path: Path) -> tuple[dict[str, int], dict[tuple[str, int], int], dict[str, list[int]]]:
        source = opened(path)
        counts, of, listed = (rows_of(source, state).to_pylist() for state in ("count", "of", "listed"))
        lists: dict[str, list[int]] = {}
        for row in listed:
            lists.setdefault(row["key"]["k"], []).append(row["list_element"]["number"])
        return (
            {row["key"]["k"]: row["value"]["n"] for row in counts},
            {(row["key"]["k"], row["user_map_key"]["number"]): row["user_map_value"]["n"] for row in of},
            lists,
        )

    def batches(*texts: str) -> list[list[dict[str, Any]]]:
        return [[{"k": pair[0], "number": int(pair[1])} for pair in text.split()] for text in texts]

    schema = "k string, number bigint"
    skip_unknown(layout)
    with conf(spark, LAYOUTS[layout]):
        run(spark, tmp_path, tmp_path / "source", schema, batches(*before), remembered)
        counts, of, lists = shown(tmp_path / "source")
        assert counts == {"a": 3, "b": 2, "c": 1} and lists == {"a": [1, 2, 1], "b": [1, 3], "c": [4]}
        source = opened(tmp_path / "source")
        files = {each.suffix for each in (tmp_path / "source/state/0/0").iterdir() if each.name.startswith("1")}
        assert len(before) > 1 or {".changelog", ".zip"} <= files
        key = {each: {"k": each} for each in "abcd"}
        edits = [
            edit(source, "count", ["a"], [{"key": key[each], "value": {"n": n}} for each, n in (("b", 90), ("d", 80))]),
            edit(source, "of", ["a"], [
                {"key": key[each], "user_map_key": {"number": number}, "user_map_value": {"n": n}}
                for each, number, n in (("b", 1, 10), ("b", 7, 70), ("d", 5, 50))
            ]),
        ]  # fmt: skip
        plan = source.edit_plan(source.newest("count"), edits, EditOptions())
        write_copy(plan, tmp_path / "target")
        (tmp_path / "source").rename(tmp_path / "moved away")
        counts, of, lists = shown(tmp_path / "target")
        assert counts == {"b": 90, "c": 1, "d": 80}
        assert of == {("b", 1): 10, ("b", 7): 70, ("c", 4): 1, ("d", 5): 50}
        assert lists == {"a": [1, 2, 1], "b": [1, 3], "c": [4]}
        run(spark, tmp_path, tmp_path / "target", schema, batches("a2 b7", "d5 d6", "b3"), remembered)
        counts, of, lists = shown(tmp_path / "target")
        assert counts == {"a": 1, "b": 92, "c": 1, "d": 82}
        assert of == {
            ("a", 2): 1, ("b", 1): 10, ("b", 7): 71, ("b", 3): 1, ("c", 4): 1, ("d", 5): 51, ("d", 6): 1,
        }  # fmt: skip
        assert lists == {"a": [1, 2, 1, 2], "b": [1, 3, 7, 3], "c": [4], "d": [5, 6]}
        assert not (tmp_path / "source").exists()
