"""Lists, what expires, and timers of transformWithState go on from edited copies, as a plain model says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import LAYOUTS, conf, opened, rows_of
from support.checkpoints.running_queries import run as run_query
from support.checkpoints.variable_families import check_families
from support.edited_copies import write_copy
from support.parameters import mostly_slow
from support.spark_release import since, skip_unknown

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.spark.source import CheckpointSource

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_BEGAN = 1_780_000_000  # seconds
DAY = 86_400_000
FAR = 4_000_000_000_000  # in the year 2096, in milliseconds
AVRO = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}
FORMS = {
    "zips": LAYOUTS["zips"],
    "changelogs": LAYOUTS["changelogs"],
    "changelogs in Avro": LAYOUTS["changelogs"] | AVRO,
    "changelogs with checksums": LAYOUTS["changelogs with checksums"],
    "changelogs of format 2 with checksums": LAYOUTS["changelogs of format 2 with checksums"],
}
Batch = list[tuple[str, int]]
BEFORE: list[Batch] = [[("a", 1), ("a", 2), ("b", 3), ("c", 4)], [("a", 5), ("b", 6), ("b", 3), ("d", 7)]]
AFTER: list[Batch] = [[("a", 8), ("new", 9), ("b", 3)], [("c", 10), ("d", 7), ("new", 9), ("a", 8)]]


class Model:
    """What the query has, without the ends of what expires that it sets itself."""

    def __init__(self) -> None:
        self.plain: dict[str, list[int]] = {}
        self.listed: dict[str, list[int]] = {}
        self.last: dict[str, int] = {}
        self.seen: dict[tuple[str, int], int] = {}
        self.timers: set[tuple[str, int]] = set()
        self.fired: dict[str, int] = {}

    def run(self, batches: list[Batch]) -> None:
        for batch in batches:
            for key, number in batch:
                self.plain.setdefault(key, []).append(number)
                self.listed.setdefault(key, []).append(number)
                self.last[key] = number
                self.seen[key, number] = self.seen.get((key, number), 0) + 1
                self.timers.add((key, FAR + number))

    def fire(self) -> None:
        for key, time in [each for each in self.timers if each[1] < FAR]:
            self.fired[key] = self.fired.get(key, 0) + 1
            self.timers.remove((key, time))


def shown(checkpoint: Path) -> Model:
    source, found = opened(checkpoint), Model()
    check_families(source)

    def rows(state: str) -> list[dict[str, Any]]:
        found_rows: list[dict[str, Any]] = rows_of(source, state).to_pylist()
        return found_rows

    for row in rows("plain"):
        found.plain.setdefault(row["key"]["k"], []).append(row["list_element"]["n"])
    for row in rows("listed"):
        found.listed.setdefault(row["key"]["k"], []).append(row["list_element"]["value"]["n"])
    found.last = {row["key"]["k"]: row["value"]["value"]["n"] for row in rows("last")}
    for row in rows("seen"):
        found.seen[row["key"]["k"], row["user_map_key"]["n"]] = row["user_map_value"]["value"]["count"]
    found.timers = {(row["key"]["k"], row["expiration_timestamp_ms"]) for row in rows("timers")}
    found.fired = {row["key"]["k"]: row["value"]["count"] for row in rows("fired")}
    return found


def theirs(spark: SparkSession, checkpoint: Path) -> dict[str, dict[str, list[int]]]:
    """The lists that Spark's own reader finds."""
    found: dict[str, dict[str, list[int]]] = {"plain": {}, "listed": {}}
    for state, lists in found.items():
        reader = spark.read.format("statestore").option("provider", "builtin").option("stateVarName", state)
        for row in reader.load(str(checkpoint)).collect():
            element = row.list_element if state == "plain" else row.list_element.value
            lists.setdefault(row.key.k, []).append(element.n)
    return found


def edit_of(source: CheckpointSource, state: str, change: Any) -> StateEdit:
    table = rows_of(source, state)
    return StateEdit(state, ("key",), table, pa.Table.from_pylist(change(table.to_pylist()), table.schema))


def edits_of(source: CheckpointSource) -> list[StateEdit]:
    """The key ``a`` is erased, but for its map; ``b`` is repaired, ``new`` added, and some rows have expired."""

    def without(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
        return [row for row in rows if row["key"]["k"] not in keys]

    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        put = [("b", 30), ("b", 6), ("b", 33), ("b", 34), ("new", 90)]
        return [*without(rows, "a", "b"), *({"key": {"k": k}, "list_element": {"n": n}} for k, n in put)]

    def listed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        put = [("b", 30, FAR), ("b", 31, 5), ("b", 32, FAR - 1), ("new", 91, FAR), ("gone", 92, 1), ("gone", 93, 2)]
        return [
            *without(rows, "a", "b"),
            *({"key": {"k": k}, "list_element": {"value": {"n": n}, "ttlExpirationMs": end}} for k, n, end in put),
        ]

    def last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        put = [("b", -1, FAR), ("c", 4, 7), ("new", 90, FAR)]
        return [
            *without(rows, "a", "b", "c"),
            *({"key": {"k": k}, "value": {"value": {"n": n}, "ttlExpirationMs": end}} for k, n, end in put),
        ]

    def seen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        put = [("b", 3, 100, FAR), ("b", 40, 1, FAR), ("b", 41, 1, 9), ("new", 9, 50, FAR), ("d", 7, 1, 3)]
        return [
            *without(rows, "b", "d"),
            *(
                {
                    "key": {"k": k},
                    "user_map_key": {"n": n},
                    "user_map_value": {"value": {"count": count}, "ttlExpirationMs": end},
                }
                for k, n, count, end in put
            ),
        ]

    def timers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        put = [("b", FAR + 77), ("b", 11), ("new", 12), ("c", FAR)]
        return [*without(rows, "a", "b"), *({"key": {"k": k}, "expiration_timestamp_ms": time} for k, time in put)]

    changes = {"plain": plain, "listed": listed, "last": last, "seen": seen, "timers": timers}
    return [edit_of(source, state, change) for state, change in changes.items()]


def edit_model(model: Model) -> None:
    """The same as `edits_of`."""
    for values in (model.plain, model.listed, model.last):
        values.pop("a")
    model.plain |= {"b": [30, 6, 33, 34], "new": [90]}
    model.listed |= {"b": [30, 31, 32], "new": [91], "gone": [92, 93]}
    model.last |= {"b": -1, "new": 90}
    model.seen = {key: count for key, count in model.seen.items() if key[0] not in ("b", "d")}
    model.seen |= {("b", 3): 100, ("b", 40): 1, ("b", 41): 1, ("new", 9): 50, ("d", 7): 1}
    model.timers = {each for each in model.timers if each[0] not in ("a", "b")}
    model.timers |= {("b", FAR + 77), ("b", 11), ("new", 12), ("c", FAR)}


def expire(model: Model) -> None:
    """What has expired goes with the first batch, which does not see it."""
    model.listed["b"].remove(31)
    del model.listed["gone"], model.seen["b", 41], model.seen["d", 7]
    del model.last["c"]


def run(spark: SparkSession, folder: Path, checkpoint: Path, batches: list[Batch]) -> None:
    """Run one batch after the other: in processing time a query never has seen all that there is."""
    inputs = folder / "rows"
    inputs.mkdir(exist_ok=True)
    for batch in batches:
        number = len(list(inputs.iterdir()))
        (inputs / f"{number:03d}.json").write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in batch))
        os.utime(inputs / f"{number:03d}.json", (_BEGAN + number, _BEGAN + number))
        rows = spark.readStream.schema("k string, n bigint").json(str(inputs))
        schema, mode = "k string, fired bigint", "ProcessingTime"
        result = rows.groupBy("k").transformWithStateInPandas(processor(), schema, "Update", mode)
        writer = result.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
        _run_once(writer.trigger(once=True))


def _run_once(writer: DataStreamWriter) -> None:
    """Run one batch, again where a busy machine had no worker within Spark's ten seconds."""
    for left in reversed(range(5)):
        try:
            writer.start().awaitTermination()
            return
        except Exception as error:
            if not left or "failed to connect back" not in str(error):
                raise


def processor() -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    far, day = FAR, DAY  # the class goes to workers that do not know this module

    class Remember(StatefulProcessor):
        """Lists numbers, twice, has the last of them, counts them by number, and registers a timer for each."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._plain = handle.getListState("plain", "n bigint")
            self._listed = handle.getListState("listed", "n bigint", ttlDurationMs=day)
            self._last = handle.getValueState("last", "n bigint", ttlDurationMs=day)
            self._seen = handle.getMapState("seen", "n bigint", "count bigint", ttlDurationMs=day)
            self._fired = handle.getValueState("fired", "count bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            for frame in rows:
                for number in frame["n"].tolist():
                    self._plain.appendValue((number,))
                    self._listed.appendValue((number,))
                    self._last.update((number,))
                    (count,) = self._seen.getValue((number,)) or (0,)
                    self._seen.updateValue((number,), (count + 1,))
                    self._handle.registerTimer(far + number)
            yield pd.DataFrame({"k": [key[0]], "fired": [0]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            (count,) = self._fired.get() or (0,)
            self._fired.update((count + 1,))
            yield pd.DataFrame({"k": [key[0]], "fired": [count + 1]})

        def close(self) -> None:
            pass

    return Remember()


@since(4, 0, "transformWithStateInPandas")
@pytest.mark.parametrize("form", mostly_slow(list(FORMS), []))
def test_a_query_goes_on_from_edited_variables(spark: SparkSession, tmp_path: Path, form: str) -> None:
    skip_unknown(form)
    with conf(spark, FORMS[form]):
        model = Model()
        model.run(BEFORE)
        run(spark, tmp_path, tmp_path / "source", BEFORE)
        assert vars(shown(tmp_path / "source")) == vars(model)
        source = opened(tmp_path / "source")
        plan = source.edit_plan(source.newest("plain"), edits_of(source), EditOptions())
        write_copy(plan, tmp_path / "target")
        edit_model(model)
        assert vars(shown(tmp_path / "target")) == vars(model)
        assert theirs(spark, tmp_path / "target") == {"plain": model.plain, "listed": model.listed}

        expire(model)
        model.run(AFTER[:1])
        model.fire()
        run(spark, tmp_path, tmp_path / "target", AFTER[:1])
        assert vars(shown(tmp_path / "target")) == vars(model)
        model.run(AFTER[1:])
        run(spark, tmp_path, tmp_path / "target", AFTER[1:])
        assert vars(shown(tmp_path / "target")) == vars(model)
        assert theirs(spark, tmp_path / "target") == {"plain": model.plain, "listed": model.listed}


def alarms(rows: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    far = FAR  # the class goes to workers that do not know this module

    class Alarm(StatefulProcessor):
        """Registers a timer for each row, and counts those that fired."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._fired = handle.getValueState("fired", "count bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            for frame in rows:
                for number in frame["n"].tolist():
                    self._handle.registerTimer(far + number)
            yield pd.DataFrame({"k": [key[0]]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            (count,) = self._fired.get() or (0,)
            self._fired.update((count + 1,))
            yield pd.DataFrame({"k": [key[0]]})

        def close(self) -> None:
            pass

    timed = rows.withWatermark("t", "1 minute").groupBy("k")
    return timed.transformWithStateInPandas(Alarm(), "k string", "Update", "EventTime")


@since(4, 0, "transformWithStateInPandas")
@pytest.mark.slow
def test_timers_of_event_time_go_on(spark: SparkSession, tmp_path: Path) -> None:
    def found(name: str) -> tuple[set[tuple[str, int]], dict[str, int]]:
        source = opened(tmp_path / name)
        assert check_families(source)
        timers, fired = (rows_of(source, state).to_pylist() for state in ("timers", "fired"))
        return (
            {(row["key"]["k"], row["expiration_timestamp_ms"]) for row in timers},
            {row["key"]["k"]: row["value"]["count"] for row in fired},
        )

    def batches(*rows: tuple[str, int]) -> list[list[dict[str, Any]]]:
        return [[{"k": k, "n": n, "t": f"2026-01-01T00:{n:02d}:00Z"}] for k, n in rows]

    schema = "k string, n bigint, t timestamp"
    with conf(spark, LAYOUTS["changelogs"]):
        run_query(spark, tmp_path, tmp_path / "source", schema, batches(("a", 1), ("b", 2)), alarms)
        assert found("source") == ({("a", FAR + 1), ("b", FAR + 2)}, {})
        source = opened(tmp_path / "source")

        def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            put = [("a", FAR + 9), ("b", 11), ("new", 12)]
            kept = [row for row in rows if row["key"]["k"] != "a"]
            return [*kept, *({"key": {"k": k}, "expiration_timestamp_ms": time} for k, time in put)]

        plan = source.edit_plan(source.newest("timers"), [edit_of(source, "timers", change)], EditOptions())
        assert any("2 timers among the added rows are due" in note for note in plan.notes)
        write_copy(plan, tmp_path / "target")
        assert found("target") == ({("a", FAR + 9), ("b", FAR + 2), ("b", 11), ("new", 12)}, {})
        run_query(spark, tmp_path, tmp_path / "target", schema, batches(("c", 3)), alarms)
        assert found("target") == ({("a", FAR + 9), ("b", FAR + 2), ("c", FAR + 3)}, {"b": 1, "new": 1})
