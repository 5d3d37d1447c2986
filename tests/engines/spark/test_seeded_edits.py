"""Queries go on from edits that a seed draws as a plain model says: rows, keys, statements, layout and way of the copy.

Each case runs three batches, edits the checkpoint by statements, and runs the query twice from the copy, three batches
and one. What the query keeps is compared with the model after each step, by our reader and by Spark's own, and what it
has put out after each run.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support.checkpoints.running_queries import LAYOUTS, ROCKSDB, conf, content, opened, rows_of, run
from support.parameters import mostly_slow
from support.spark_release import RELEASE

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
DELAY = 600
"""Seconds by which watermarks are late."""
KEYS = ["ann", "bøb", "", "a-very-long-key-" * 3, "d", "e", "f", "g"]
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def moment(seconds: int) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def seconds(time: datetime) -> int:
    return round((time.replace(tzinfo=UTC) - BEGAN).total_seconds())


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case Decimal():
            return f"CAST('{value}' AS DECIMAL(25, 4))"
        case datetime():
            return f"TIMESTAMPTZ '{value.isoformat()}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case dict():
            return "{" + ", ".join(f"'{name}': {literal(each)}" for name, each in value.items()) + "}"
    return repr(value)


def is_key(key: Row) -> str:
    """The condition of the rows with a key."""
    return "(" + " AND ".join(f'key."{name}" IS NOT DISTINCT FROM {literal(each)}' for name, each in key.items()) + ")"


def merge(rows: Sequence[tuple[Row, Row]]) -> str:
    """Put rows (key, value) in the place of those of the same keys."""
    come = " UNION ALL ".join(f"SELECT {literal(key)} AS key, {literal(value)} AS value" for key, value in rows)
    return (
        f"MERGE INTO state USING ({come}) AS come ON state.key IS NOT DISTINCT FROM come.key "
        "WHEN MATCHED THEN UPDATE SET value = come.value WHEN NOT MATCHED THEN INSERT VALUES (come.key, come.value)"
    )


class Model(ABC):
    """A query, the rows that it is given, and what it keeps and has put out."""

    schema: ClassVar[str]
    mode = "append"
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state: Any = {}
        self.out = Counter[Any]()
        self.watermark = self.clock = 0

    @abstractmethod
    def query(self, rows: DataFrame) -> DataFrame: ...

    @abstractmethod
    def batch(self) -> list[Row]: ...

    @abstractmethod
    def feed(self, rows: Sequence[Row]) -> None: ...

    def finish(self) -> None:  # noqa: B027 - not all have a watermark
        """Pass the watermark, as Spark does in a last batch without rows."""

    @abstractmethod
    def edit(self) -> list[str]:
        """Statements that change the state, which is changed so."""

    @abstractmethod
    def found(self, tables: dict[str, list[Row]]) -> Any: ...

    def some(self, keys: Any, most: int) -> list[Any]:
        """A few keys."""
        ordered = sorted(keys, key=repr)
        return self.random.sample(ordered, min(len(ordered), self.random.randint(1, most)))

    def times(self, count: int) -> list[int]:
        """Seconds of rows; each batch is later than the one before, and no row is late."""
        self.clock += 200
        return [self.clock + self.random.randrange(400) for _ in range(count)]

    def pass_rows(self, rows: Sequence[Row]) -> None:
        latest = max(seconds(datetime.fromisoformat(row["t"])) for row in rows)
        self.watermark = max(self.watermark, latest - DELAY)


class Totals(Model):
    """Counts, sums and maxima by keys of several types."""

    schema, mode = "m string, d string, a int, b string, f boolean, n bigint", "update"

    def query(self, rows: DataFrame) -> DataFrame:
        names = ("cast(m as decimal(25, 4)) m", "cast(d as date) d", "struct(a, b) t", "f", "n")
        return rows.selectExpr(*names).groupBy("m", "d", "t", "f").agg({"*": "count", "n": "max"})

    def key(self, *, new: bool = False) -> tuple[Any, ...]:
        draw = self.random.choice
        amounts = ["3.1416"] if new else ["0.0000", "-12345678901234567890.1234", "99.9999"]
        struct = draw([0, 1]), draw(["x", "ü", None])
        return Decimal(draw(amounts)), date(2020, 1, draw([1, 2])), struct, draw([True, False, None])

    def batch(self) -> list[Row]:
        keys = [self.key(new=self.random.random() < 0.1) for _ in range(12)]
        return [
            {"m": str(m), "d": str(d), "a": a, "b": b, "f": f, "n": self.random.randrange(1 << 40)}
            for m, d, (a, b), f in keys
        ]

    def feed(self, rows: Sequence[Row]) -> None:
        changed = set()
        for row in rows:
            key = Decimal(row["m"]), date.fromisoformat(row["d"]), (row["a"], row["b"]), row["f"]
            count, most = self.state.get(key, (0, -1))
            self.state[key] = count + 1, max(most, row["n"])
            changed.add(key)
        self.out.update((*key, *self.state[key]) for key in changed)

    def edit(self) -> list[str]:
        def of(key: Any) -> Row:
            m, d, (a, b), f = key
            return {"m": m, "d": d, "t": {"a": a, "b": b}, "f": f}

        gone = self.some(self.state, 3)
        for key in gone:
            del self.state[key]
        put = {key: (self.random.randrange(99), self.random.randrange(1 << 50)) for key in self.some(self.state, 2)}
        put |= {self.key(new=True): (7, -self.random.randrange(9)) for _ in range(2)}
        self.state |= put
        self.state = {key: (count + key[2][0], most) for key, (count, most) in self.state.items()}
        return [
            f"DELETE FROM state WHERE {' OR '.join(is_key(of(key)) for key in gone)}",
            merge([(of(key), {"count": count, "max": most}) for key, (count, most) in put.items()]),
            "UPDATE state SET value.count = value.count + 1 WHERE key.t.a = 1",
        ]

    def found(self, tables: dict[str, list[Row]]) -> Any:
        def plain(key: Row) -> tuple[Any, ...]:
            return tuple(tuple(each.values()) if isinstance(each, dict) else each for each in key.values())

        return {plain(row["key"]): tuple(row["value"].values()) for row in tables["state"]}


class Windows(Model):
    """Counts and sums by windows and keys, which the watermark closes."""

    schema = "k string, t timestamp, n int"

    def query(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql.functions import expr, window

        windows = rows.withWatermark("t", f"{DELAY} seconds").groupBy(window("t", "300 seconds"), "k")
        return windows.agg(expr("count(*) c"), expr("sum(n) s")).select("window.start", "k", "c", "s")

    def batch(self) -> list[Row]:
        draw = self.random
        return [
            {"k": draw.choice([*KEYS[:4], None]), "t": moment(time).isoformat(), "n": draw.randrange(9)}
            for time in self.times(10)
        ]

    def feed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = seconds(datetime.fromisoformat(row["t"])) // 300 * 300, row["k"]
            count, total = self.state.get(key, (0, 0))
            self.state[key] = count + 1, total + row["n"]
        self.pass_rows(rows)

    def finish(self) -> None:
        for key in [key for key in self.state if key[0] + 300 <= self.watermark]:
            self.out[moment(key[0]), key[1], *self.state.pop(key)] += 1

    def edit(self) -> list[str]:
        def of(key: Any) -> Row:
            return {"window": {"start": moment(key[0]), "end": moment(key[0] + 300)}, "k": key[1]}

        gone = self.some(self.state, 2)
        for key in gone:
            del self.state[key]
        put = {key: (40, -self.random.randrange(9)) for key in self.some(self.state, 2)}
        put[max(time for time, _ in [*self.state, *gone]) + 600, "new"] = 7, 8
        self.state |= put
        rows = [(of(key), {"count": count, "sum": total}) for key, (count, total) in put.items()]
        return [f"DELETE FROM state WHERE {' OR '.join(is_key(of(key)) for key in gone)}", merge(rows)]

    def found(self, tables: dict[str, list[Row]]) -> Any:
        rows = tables["state"]
        return {(seconds(row["key"]["window"]["start"]), row["key"]["k"]): tuple(row["value"].values()) for row in rows}


class Within(Model):
    """The first row of each key within the delay of the watermark."""

    schema = "k string, t timestamp"

    def query(self, rows: DataFrame) -> DataFrame:
        return rows.withWatermark("t", f"{DELAY} seconds").dropDuplicatesWithinWatermark(["k"]).select("k")

    def batch(self) -> list[Row]:
        time = moment(self.times(1)[0]).isoformat()
        return [{"k": key, "t": time} for key in self.random.sample([*KEYS, None, "new"], 6)]

    def feed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row["k"] not in self.state:
                self.state[row["k"]] = seconds(datetime.fromisoformat(row["t"])) + DELAY
                self.out[row["k"],] += 1
        self.finish()
        self.pass_rows(rows)

    def finish(self) -> None:
        self.state = {key: end for key, end in self.state.items() if end > self.watermark}

    def edit(self) -> list[str]:
        gone = self.some(self.state, 2)
        for key in gone:
            del self.state[key]
        put = {key: self.state[key] + 5000 for key in self.some(self.state, 2)} | {"other": self.clock + 10**6}
        self.state |= put
        rows = [({"k": key}, {"expiresAtMicros": round(moment(end).timestamp()) * 10**6}) for key, end in put.items()]
        return [f"DELETE FROM state WHERE {' OR '.join(is_key({'k': key}) for key in gone)}", merge(rows)]

    def found(self, tables: dict[str, list[Row]]) -> Any:
        origin = BEGAN.timestamp()
        return {row["key"]["k"]: round(row["value"]["expiresAtMicros"] / 10**6 - origin) for row in tables["state"]}


class Joined(Model):
    """The rows of two sides within 305 seconds of each other, and those of the left that found none."""

    schema = "side string, k string, t timestamp, n int"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.state = {"left": [], "right": []}  # [key, number, time, whether it was matched]

    def query(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql.functions import expr

        rows = rows.withWatermark("t", f"{DELAY} seconds")
        left = rows.where("side = 'left'").selectExpr("k lk", "n ln", "t lt")
        right = rows.where("side = 'right'").selectExpr("k rk", "n rn", "t rt")
        near = "rt BETWEEN lt - interval 305 seconds AND lt + interval 305 seconds"
        return left.join(right, expr(f"lk = rk AND {near}"), "left_outer").select("lk", "ln", "lt", "rn", "rt")

    def batch(self) -> list[Row]:
        draw = self.random
        sides = [(side, time) for side in ("left", "right") for time in self.times(5)]
        keys = KEYS[:4] + ["fresh"] * any(row[0] == "fresh" for row in self.state["left"])
        return [
            {"side": side, "k": draw.choice(keys), "t": moment(time // 10 * 10).isoformat(), "n": number}
            for number, (side, time) in enumerate(sides, draw.randrange(1000))
        ]

    def feed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            mine = [row["k"], row["n"], seconds(datetime.fromisoformat(row["t"])), False]
            is_left = row["side"] == "left"
            for other in self.state["right" if is_left else "left"]:
                if other[0] == mine[0] and abs(other[2] - mine[2]) <= 305:
                    mine[3] = other[3] = True
                    left, right = (mine, other) if is_left else (other, mine)
                    self.out[(*left[:2], moment(left[2]), right[1], moment(right[2]))] += 1
            self.state[row["side"]].append(mine)
        self.pass_rows(rows)

    def finish(self) -> None:
        for side, rows in self.state.items():
            for row in [row for row in rows if row[2] + 305 <= self.watermark]:
                rows.remove(row)
                if side == "left" and not row[3]:
                    self.out[row[0], row[1], moment(row[2]), None, None] += 1

    def edit(self) -> list[str]:
        """Statements of each side, whose columns begin with its first letter."""
        made = []
        for side, rows in self.state.items():
            first = side[0]
            k, n, t = (f"{first}{name}" for name in "knt")
            gone = self.random.choice(rows)
            changed = self.random.choice([row for row in rows if row[0] != gone[0]])
            conditions = [
                f"value.{k} = {literal(row[0])} AND value.{n} = {row[1]} AND value.{t} = {literal(moment(row[2]))}"
                for row in (gone, changed)
            ]
            rows.remove(gone)
            changed[1] += 5000
            new: list[Any] = ["fresh", 9999, self.clock + 300, False]
            rows.append(new)
            made += [
                f'DELETE FROM "{side}" WHERE {conditions[0]}',
                f'UPDATE "{side}" SET value.{n} = value.{n} + 5000 WHERE {conditions[1]}',
                f'INSERT INTO "{side}" SELECT {literal(self._key(new))}, '
                f"{literal({k: new[0], n: new[1], t: moment(new[2])})}",
            ]
        return made

    def _key(self, row: list[Any]) -> Row:
        more = {"index": 0, "__event_time": round(moment(row[2]).timestamp()) * 10**6}
        return {name: more.get(name, row[0]) for name in self._columns}

    def found(self, tables: dict[str, list[Row]]) -> Any:
        self._columns = list(tables["left"][0]["key"])
        rows = {side: [tuple(row["value"].values()) for row in tables[side]] for side in ("left", "right")}
        return {side: Counter((k, n, seconds(t)) for k, n, t in each) for side, each in rows.items()}


JOBS: tuple[type[Model], ...] = (Totals, Windows, Within, Joined)
WAYS: dict[str, dict[str, str]] = {
    "amended": {},
    "a batch": {},
    "compact": {"compact": "true"},
    "five partitions": {"partitions": "5"},
    "RocksDB": {"provider": "rocksdb", "changelogs": "true"},
}
SEEDS = range(48)


def drawn(seed: int) -> tuple[type[Model], str, str, dict[str, str]]:
    """The query of a seed, its layout, the way of its edit, and the settings of its session."""
    draw = random.Random(f"layout {seed}")
    job, way = JOBS[seed % len(JOBS)], draw.choice(list(WAYS))
    layout = draw.choice(list(LAYOUTS)) if seed else "deltas"
    settings = {**LAYOUTS[layout], "spark.sql.shuffle.partitions": "3"}
    if job is Joined:
        formats = ["2", "3", "4"][: 3 if RELEASE >= (4, 3) else 2 if RELEASE >= (4, 1) else 1]
        settings[JOIN_FORMAT] = draw.choice(formats if ROCKSDB.items() <= settings.items() else ["2"])
    return job, layout, way if seed else "amended", settings


def check(spark: SparkSession, checkpoint: Path, model: Model, expected: Any) -> None:
    """Compare the state with that of the model, and our reader with Spark's own."""
    source = opened(checkpoint)
    tables = {name: rows_of(source, name) for name in source.states()}
    assert model.found({name: rows.to_pylist() for name, rows in tables.items()}) == expected
    if RELEASE < (4, 1) and source.checkpoint.batch.uids:
        return  # the source of Spark 4.0 does not know this format
    for name, rows in tables.items():
        reader = spark.read.format("statestore").option("provider", "builtin")
        reader = reader.option("joinSide", name) if name in ("left", "right") else reader
        assert reader.load(str(checkpoint)).count() == rows.num_rows


def kept(model: Model) -> Any:
    """Return the rows that the tables of a model's state show."""
    if isinstance(model, Joined):
        return {side: Counter((row[0], row[1], row[2]) for row in rows) for side, rows in model.state.items()}
    return model.state


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def collector(into: Counter[Any]) -> Callable[[DataFrame, int], None]:
    def collect(batch: DataFrame, number: int) -> None:
        into.update(plain(tuple(row)) for row in batch.collect())

    return collect


def name_of(seed: int) -> str:
    job, layout, way, settings = drawn(seed)
    return f"{seed} {job.__name__}{settings.get(JOIN_FORMAT, '')}, {layout}, {way}"


NAMED = {name_of(seed): seed for seed in SEEDS}


@pytest.mark.parametrize("name", mostly_slow(list(NAMED), []))
def test_a_query_goes_on_from_what_a_seed_draws(spark: SparkSession, tmp_path: Path, name: str) -> None:
    seed = NAMED[name]
    job, _, way, settings = drawn(seed)
    model, source, target = job(seed), tmp_path / "source", tmp_path / "target"

    def go(checkpoint: Path, count: int) -> None:
        out = Counter[Any]()
        batches = [model.batch() for _ in range(count)]
        for rows in batches:
            model.feed(rows)
        model.finish()
        run(spark, tmp_path, checkpoint, model.schema, batches, model.query, model.mode, collector(out))
        check(spark, checkpoint, model, kept(model))
        assert out == model.out
        model.out.clear()

    with conf(spark, {**settings, "spark.sql.session.timeZone": "UTC"}):
        go(source, 3)
        was = content(source)
        statements = model.edit()
        with statestore.edit(source, target, as_batch=way == "a batch", settings=WAYS[way]) as edit:
            for statement in statements:
                edit.sql(statement)
        check(spark, target, model, kept(model))
        assert was.items() <= content(source).items()  # Spark may still add files of its own to batches that it ran
        source.rename(tmp_path / "moved away")
        go(target, 3)
        go(target, 1)
