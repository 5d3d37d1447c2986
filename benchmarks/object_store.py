"""A store in an object store against plain Parquet of the same rows on the same server. Prints JSON lines.

    python benchmarks/object_store.py                   1.2M changes of 300k keys in 20 commits; 0, 10 and 50 ms
    python benchmarks/object_store.py --quick           60k changes of 15k keys in 5 commits; 0 and 10 ms
    python benchmarks/object_store.py --keys 3000000 --commits 40 --latencies 10
    python benchmarks/object_store.py --table           a table for people instead of JSON lines
    python benchmarks/object_store.py --no-spark        without Spark, whose client of S3 needs Maven

The server is versitygw on this machine, behind a proxy that delays each answer and counts; both are a process of their
own. Each answer is compared with the truth before it is timed. ``cold`` calls find no cache and nothing in this
process, but loaded code and open connections; ``warm`` ones repeat a call on the same handle. ``ratio`` is ours to
plain Parquet's, of the least times of all runs; ``bytes_ratio`` that of bytes received. Reads of plain Parquet open the
file. Those of ours are on an open handle; ``ratio_with_open`` adds what opening one cost. DuckDB's view and Spark open
the store themselves in each call; ``benchmarks/objects/spark_scans.py`` says what Spark's are compared with.

``state`` is the store as its commits left it, or after ``compact(full=True)``. A question is "all", every column, or
"sum", one number of one column. Commits are made with ``auto_compact=False``, one after the other, and compared with
writing their rows as Parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import statestore
from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.loads.stream import COLUMNS, KEY, VALUE, Shape, Stream
from benchmarks.objects.s3a_jars import NoSparkError
from benchmarks.objects.served import NoServerError, object_server
from benchmarks.objects.spark_scans import SparkScans, spark_scans
from benchmarks.objects.timed import CACHE, GOAL, MOMENTS, STORE, Bench, Call, Cost

SUM = "SELECT sum(price) AS price FROM {}"
ALL = f"SELECT {', '.join(COLUMNS)} FROM {{}}"
FEED = 10  # commits of which the changes are read


def write(bench: Bench, warehouse: str) -> None:
    """Commit the stream with the default settings, as its writer would."""
    catalog = statestore.connect(bench.server.warehouse(warehouse))
    catalog.create_store(STORE, key=KEY, value=VALUE).close()
    with catalog.open_store(STORE) as store:
        for number in range(bench.stream.shape.commits):
            store.put_all(bench.stream.commit(number))
            store.commit()


def compact(bench: Bench, warehouse: str) -> None:
    with bench.open(warehouse, read_only=False) as store:
        store.compact(full=True)


def check_reads(bench: Bench, warehouse: str) -> None:
    """Compare the answers of all moments with the truth, and write them as plain Parquet."""
    for label, share in MOMENTS.items():
        moment = None if share is None else bench.stream.moment(share)
        with bench.open(warehouse) as store:
            answer = store.scan(as_of=moment, columns=COLUMNS).read_all()
        check(bench.stream, answer, live_events(bench.stream, moment), f"{warehouse}, {label}")
        with statestore.attach(bench.server.warehouse(warehouse), as_of=moment) as connection:
            check(
                bench.stream,
                connection.sql(ALL.format(STORE)).to_arrow_table(),
                live_events(bench.stream, moment),
                label,
            )
        bench.plain.write(label, answer)
        check(bench.stream, bench.plain.read(label, None), live_events(bench.stream, moment), f"Parquet, {label}")


def scans(bench: Bench, warehouse: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Scans of all columns and sums of one, by our reader and through DuckDB, against plain Parquet."""
    opening = bench.cost(lambda: bench.open(warehouse), bench.forget, lambda store: store.close())
    yield {"measure": "open", **about, "temperature": "cold", **opening.fields}
    for label, share in MOMENTS.items():
        moment = None if share is None else bench.stream.moment(share)
        for question, columns in (("all", COLUMNS), ("sum", ["price"])):
            for side in ("reader", "DuckDB"):
                floor = bench.cost(_plain(bench, side, label, question, columns))
                yield from _compared(bench, warehouse, about, side, label, moment, question, columns, floor, opening)


def _plain(bench: Bench, side: str, label: str, question: str, columns: Sequence[str]) -> Call:
    if side == "DuckDB":
        return lambda: bench.plain.ask(label, ALL if question == "all" else SUM)
    return lambda: _answer(bench.plain.read(label, columns), question)


def _answer(table: pa.Table, question: str) -> Any:
    return table if question == "all" else pc.sum(table["price"]).as_py()


def _compared(
    bench: Bench, warehouse: str, about: dict[str, Any], side: str, label: str, moment: int | None, question: str,
    columns: Sequence[str], floor: Cost, opening: Cost,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Time one question of ours, cold on an open handle and then warm."""
    fields = {**about, "moment": label, "question": question, "side": side}
    opened: list[Any] = []

    def close() -> None:
        while opened:
            opened.pop().close()

    def begin() -> None:
        close()
        bench.forget()
        if side == "DuckDB":
            opened.append(statestore.attach(bench.server.warehouse(warehouse), as_of=moment))
        else:
            opened.append(bench.open(warehouse))

    def ask() -> Any:
        if side == "DuckDB":
            return opened[0].sql((ALL if question == "all" else SUM).format(STORE)).to_arrow_table()
        return _answer(opened[0].scan(as_of=moment, columns=list(columns)).read_all(), question)

    if question == "sum":
        begin()
        _check_sum(ask(), _plain(bench, side, label, question, columns)())
    cold = bench.cost(ask, begin)
    warm = bench.cost(ask)
    close()
    for temperature, found in (("cold", cold), ("warm", warm)):
        opens = temperature == "cold" and side == "reader"  # a view opens its store itself
        yield {
            "measure": "scan", **fields, "temperature": temperature, "ratio": round(found.ms / floor.ms, 2),
            "goal": GOAL, "ratio_with_open": round((found.ms + (opening.ms if opens else 0)) / floor.ms, 2),
            "bytes_ratio": round(found.seen.received / floor.seen.received, 2), **found.fields,
            **{f"plain_{name}": value for name, value in floor.fields.items()}, "kinds": found.seen.kinds,
        }  # fmt: skip


def _check_sum(ours: Any, plain: Any) -> None:
    found, expected = (x["price"][0].as_py() if isinstance(x, pa.Table) else x for x in (ours, plain))
    if abs(found - expected) > 1e-6 * abs(expected):
        raise WrongAnswerError(f"the sum is {found}, that of plain Parquet {expected}.")


def points(bench: Bench, warehouse: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One key as of the middle, cold and warm on an open handle."""
    moment = bench.stream.moment(MOMENTS["middle"] or 0)
    event = int(live_events(bench.stream, moment)[len(bench.stream.names) // 7])
    row = bench.stream.rows(pa.array([event]).to_numpy()).to_pylist()[0]
    opened: list[statestore.VersionedStore] = []

    def close() -> None:
        while opened:
            opened.pop().close()

    def begin() -> None:
        close()
        bench.forget()
        opened.append(bench.open(warehouse))

    def ask() -> Any:
        return opened[0].get(row["item"], as_of=moment)

    begin()
    found = ask()
    if found is None or found.value != {name: row[name] for name in VALUE}:
        raise WrongAnswerError(f"{row['item']!r} is {found}, expected {row}.")
    for temperature, cost in (("cold", bench.cost(ask, begin)), ("warm", bench.cost(ask))):
        yield {"measure": "point read", **about, "temperature": temperature, **cost.fields, "kinds": cost.seen.kinds}
    close()


def feeds(bench: Bench, warehouse: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The changes of the last commits."""
    opened: list[statestore.VersionedStore] = []

    def close() -> None:
        while opened:
            opened.pop().close()

    def begin() -> None:
        close()
        bench.forget()
        opened.append(bench.open(warehouse))

    begin()
    writes = [n for n in opened[0].versions().to_pylist() if n["operation"] == "write"][-FEED:]
    first = min(n["version"] for n in writes)

    def ask() -> int:
        return sum(batch.num_rows for batch in opened[0].changes(start_version=first))

    rows = ask()
    for temperature, cost in (("cold", bench.cost(ask, begin)), ("warm", bench.cost(ask))):
        yield {
            "measure": "change feed", **about, "commits": FEED, "rows": rows, "temperature": temperature, **cost.fields,
            "kinds": cost.seen.kinds,
        }  # fmt: skip
    close()


def commits(bench: Bench, latency: float) -> Iterator[dict[str, Any]]:
    """Commits of many and of few rows to a store that has some, against writing their rows as Parquet."""
    for rows in (100_000, 10):
        changes = Stream(Shape(max(bench.stream.shape.keys, 1_000), 1 + 100_000 // 1_000, rows), 2)
        name = f"written-{rows}-{latency:g}"
        catalog = statestore.connect(bench.server.warehouse(name))
        catalog.create_store(STORE, key=KEY, value=VALUE).close()
        number = [0]
        with catalog.open_store(STORE, auto_compact=False) as store:

            def put(store: Any = store, changes: Stream = changes, number: list[int] = number) -> None:
                store.put_all(changes.commit(number[0]))
                number[0] += 1

            put()
            store.commit()
            cost = bench.cost(store.commit, put)
        table = changes.raw(0)
        floor = bench.cost(lambda table=table: bench.plain.write("written", table))  # type: ignore[misc]
        yield {
            "measure": f"commit of {rows} rows", "latency_ms": latency, "ratio": round(cost.ms / floor.ms, 2),
            "bytes_ratio": round(cost.seen.sent / floor.seen.sent, 2), **cost.fields,
            **{f"plain_{name}": value for name, value in floor.fields.items()}, "kinds": cost.seen.kinds,
        }  # fmt: skip


def measure(bench: Bench, latencies: Sequence[float], spark: SparkScans | None) -> Iterator[dict[str, Any]]:
    for state in ("as delivered", "compacted"):
        bench.server.delay(0)
        warehouse = "warehouse"
        bench.forget()
        if state == "as delivered":
            write(bench, warehouse)
        else:
            compact(bench, warehouse)
        check_reads(bench, warehouse)
        if spark is not None:
            spark.check(warehouse)
        for latency in latencies:
            bench.server.delay(latency)
            about = {"state": state, "latency_ms": latency}
            yield from scans(bench, warehouse, about)
            if spark is not None:
                yield from spark.measure(warehouse, about)
            yield from points(bench, warehouse, about)
            yield from feeds(bench, warehouse, about)
    for latency in latencies:
        bench.server.delay(latency)
        yield from commits(bench, latency)


def as_row(found: dict[str, Any]) -> str:
    what = [found["measure"], *(str(found.get(name, "")) for name in ("state", "latency_ms", "moment", "question"))]
    what += [str(found.get(name, "")) for name in ("side", "temperature")]
    cells = [str(found.get(name, "")) for name in ("requests", "rounds", "mb_received", "mb_sent", "ms")]
    plain = [str(found.get(f"plain_{name}", "")) for name in ("requests", "mb_received", "ms")]
    ratios = [str(found.get(name, "")) for name in ("ratio", "ratio_with_open", "bytes_ratio")]
    return f"| {' | '.join([*what, *cells, *plain, *ratios])} |"


HEAD = (
    "| measure | state | latency, ms | moment | question | by | | requests | rounds | MB in | MB out | ms "
    "| Parquet: requests | MB in | ms | time ratio | with opening | bytes ratio |\n" + "| --- " * 18 + "|"
)


def _spark(sessions: ExitStack, bench: Bench, folder: Path) -> SparkScans | None:
    try:
        return sessions.enter_context(spark_scans(bench, folder))
    except NoSparkError as error:
        print(f"left out: reads by Spark: {error}", file=sys.stderr)
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="15k keys, five commits")
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--changes-per-key", type=int, default=4)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--latencies", type=float, nargs="+", default=[0, 10, 50], help="of each answer, milliseconds")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-spark", action="store_true", help="leave out reads by Spark")
    parser.add_argument("--table", action="store_true", help="print a table for people")
    given = parser.parse_args()
    if given.quick:
        given.keys, given.commits, given.latencies, given.runs = 15_000, 5, [0, 10], 2
    rows = given.keys * given.changes_per_key // given.commits
    stream = Stream(Shape(given.keys, given.changes_per_key, rows), 1)
    folder = Path(tempfile.mkdtemp(prefix="object-store-"))
    before = {name: os.environ.get(name) for name in (CACHE, "STATESTORE_LOCAL")}
    os.environ["STATESTORE_LOCAL"] = str(folder / "local")
    try:
        (folder / "server").mkdir()
        with object_server(folder / "server") as server:
            if given.table:
                print(HEAD, flush=True)
            bench = Bench(server, folder, stream, given.runs)
            with ExitStack() as sessions:
                spark = None if given.no_spark else _spark(sessions, bench, folder)
                for found in measure(bench, given.latencies, spark):
                    print(as_row(found) if given.table else json.dumps(found), flush=True)
    except NoServerError as error:
        print(f"left out: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


if __name__ == "__main__":
    main()
