"""Reading each form of an engine's state beside the form that it is like, through the public door. Prints JSON lines.

    python benchmarks/engine_forms.py                 300,000 rows in each form
    python benchmarks/engine_forms.py --quick         a fiftieth of them
    python benchmarks/engine_forms.py --only kafka    of one engine, or whose name has this text
    python benchmarks/engine_forms.py --table         a table in Markdown instead

The files are written here, in the bytes of the engines, and hold the same kind of rows in both forms: hot keys,
deletes and nulls, where a form has them. Both sides take turns in one process. ``ratio`` is the processor time of a
cell over that of the other form's, by medians; it is judged against ``goal``. A cell is a value without parts, such as
a number, a text or a null, so a list of three texts has three. ``ns`` has nanoseconds of a cell, of both.

Exports stand beside DuckDB and pyarrow, too, which read the same file into Arrow and neither check nor replay it:
there, and for ``verify``, ``ratio`` is by whole calls, which are ``ms``. ``verify`` stands beside a checksum of all
bytes, with ``deep`` beside scans of all tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a script has neither of these among its modules
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.checkpoints.large_checkpoints import write_checkpoint

import statestore
from benchmarks.engines import flink_changelogs, flink_forms, kafka_forms
from benchmarks.engines.flink_forms import FORMS
from benchmarks.engines.kafka_forms import CONNECT, CSV, Records
from benchmarks.results.costs import Costs

ROOT = Path(__file__).resolve().parents[1]
ROWS, RUNS = 300_000, 3
GOAL = 1.5
FEW = 10  # the part of the rows that RocksDB gets, which are written one by one


@dataclass(frozen=True)
class Side:
    """A form: how it is read, which returns the cells that were found. ``cells`` counts in their place."""

    name: str
    read: Callable[[], int]
    cells: int | None = None


@dataclass(frozen=True)
class Pair:
    """A form and the one that it is compared with. ``calls``: by whole calls, not by cells."""

    engine: str
    ours: Side
    other: Side
    calls: bool = False
    goal: float | None = GOAL

    @property
    def name(self) -> str:
        return f"{self.engine}: {self.ours.name} / {self.other.name}"


def cells_of(column: pa.Array) -> int:
    """The number of values without parts in a column."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(cells_of, column.flatten()))
    if pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return sum(cells_of(each.slice(first, last - first)) for each in (column.keys, column.items))
    return cells_of(column.flatten()) if pa.types.is_list(kind) else len(column)


def scanned(place: Path, options: Mapping[str, str]) -> int:
    """Open a place and read all of its tables; return the number of cells."""
    opened = statestore.inspect(place, **options)
    tables = [opened.table(name) for name in opened.tables()]
    return sum(cells_of(column) for table in tables for batch in table.scan() for column in batch.columns)


def read_of(place: Path, **options: str) -> Callable[[], int]:
    return partial(scanned, place, options)


# Flink

PAIRS_OF_FLINK = (
    ("case class of Scala", "POJO"),
    ("row of PyFlink", "Row"),
    ("list of Kryo", "list"),
    ("map of Kryo", "map"),
    ("objects of Kryo", "list of POJOs"),
    ("decimal of Kryo", "decimal"),
    ("UUID of Kryo", "text of a UUID"),
    ("FiniteDuration of Kryo", "Duration of Kryo"),
    ("Enumeration of Kryo", "text of a name"),
    ("InetSocketAddress of Kryo", "text of an address"),
)


def flink(folder: Path, rows: int) -> Iterator[Pair]:
    @cache
    def side(name: str) -> Side:
        place = flink_forms.savepoint(folder / name.replace(" ", "-"), FORMS[name], rows)
        return Side(name, read_of(place, **FORMS[name].options))

    for ours, other in PAIRS_OF_FLINK:
        yield Pair("Flink", side(ours), side(other))
    kryo = side("list of Kryo")
    yield Pair("Flink", Side("list of Kryo as JSON", side("list of Kryo as JSON").read, kryo.read()), kryo)
    pojo, typical = side("POJO"), FORMS["POJO"]
    old = flink_forms.savepoint(folder / "old", typical, rows, version=2)
    yield Pair("Flink", Side("metadata of version 2", read_of(old)), Side("version 4", pojo.read))
    second = flink_forms.savepoint(folder / "second", typical, rows, second=True)
    yield Pair("Flink", Side("state of the second API", read_of(second)), Side("of the first", pojo.read))
    for what, ours, other in (
        ("POJO", "second API, ForSt", "first, RocksDB"),
        ("row of SQL", "SQL's async state, ForSt", "SQL's state, RocksDB"),
    ):
        in_forst, in_rocks = (
            read_of(flink_forms.native(folder / name.replace(" ", "-"), FORMS[what], rows // FEW, second=each))
            for name, each in ((ours, True), (other, False))
        )
        yield Pair("Flink", Side(ours, in_forst), Side(other, in_rocks))
    changes = rows // flink_forms.DISTINCT * flink_forms.DISTINCT
    logged = read_of(flink_forms.logged(folder / "logged", typical, rows))
    each = pojo.read() // changes
    yield Pair("Flink", Side("changes of a changelog", logged, changes * each), Side("rows of a savepoint", pojo.read))
    yield from changelogs(folder / "changelogs", rows)
    yield from connectors(folder)


def changelogs(folder: Path, rows: int) -> Iterator[Pair]:
    """Pairs of a changelog and a savepoint.

    The changelog has as many changes as materialized entries, and half of them meet one. Both are counted.
    """
    for name, form in flink_changelogs.LOGGED.items():
        place = folder / name.replace(" ", "-").replace(",", "")
        plain = read_of(flink_changelogs.savepoint(place / "savepoint", form, rows))
        logged = read_of(flink_changelogs.checkpoint(place / "checkpoint", form, rows, rows, rows // 2))
        entries = rows + rows * len(form.changes(1))
        ours = Side(f"changelog, {name}", logged, plain() * entries // rows)
        yield Pair("Flink", ours, Side("savepoint of such entries", plain))


def connectors(folder: Path) -> Iterator[Pair]:
    """Small states: what counts is how long it takes to open them."""
    with tarfile.open(ROOT / "tests" / "data" / "flink" / "connectors.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    place = next(folder.rglob("kafka-1.20"))
    plain = read_of(place, uids="events", type="events.SourceReaderState=binary")
    yield Pair("Flink", Side("splits of a source", read_of(place, uids="events")), Side("as bytes", plain), calls=True)


# Kafka


def kafka(folder: Path, rows: int) -> Iterator[Pair]:
    yield from serdes(folder, rows)
    yield from exports(folder, rows)


def serdes(folder: Path, rows: int) -> Iterator[Pair]:
    schemas = folder / "schemas"
    schemas.mkdir(parents=True)
    for number, schema in ((5, kafka_forms.SCHEMA), (6, kafka_forms.NEWER)):
        (schemas / f"{number}.avsc").write_text(json.dumps(schema))
    kafka_forms.write_descriptor(schemas / "shop.desc")

    def side(name: str, value: Callable[[int], bytes], serde: str) -> Side:
        place = folder / name.replace(" ", "-")
        kafka_forms.parquet(place, Records(rows, value))
        return Side(name, read_of(place, key_serde="string", value_serde=serde))

    one = side("Avro", kafka_forms.avro_5, f"avro:{schemas / '5.avsc'}")
    two = side("Avro of two ids", kafka_forms.avro_5_or_6, f"avro:{schemas}")
    yield Pair("Kafka", two, one)
    messages = side("Protobuf", kafka_forms.protobuf, f"protobuf:{schemas / 'shop.desc'}#shop.Item")
    yield Pair("Kafka", messages, one)
    plain = side("JSON", kafka_forms.json_text, "json")
    yield Pair("Kafka", side("JSON Schema", kafka_forms.json_schema, "json-schema"), plain)


def exports(folder: Path, rows: int) -> Iterator[Pair]:
    text = {"key_serde": "string", "value_serde": "string"}
    whole, kept = Records(rows, kafka_forms.json_text), Records(rows, kafka_forms.json_text, deletes=False)
    made: dict[str, tuple[Path, Side]] = {}
    for name, write, records, options in (
        ("own Parquet", kafka_forms.parquet, whole, {}),
        ("own JSON lines", kafka_forms.json_lines, whole, {}),
        ("kcat -J", kafka_forms.kcat, whole, {}),
        ("console consumer", kafka_forms.console, whole, {}),
        ("CSV", kafka_forms.csv, kept, CSV),
        ("Connect's JSON", kafka_forms.connect_json, kept, CONNECT),
        ("Connect's Avro", kafka_forms.connect_avro, kept, CONNECT),
        ("Connect's Parquet", kafka_forms.connect_parquet, kept, CONNECT),
    ):
        place = folder / name.replace(" ", "-").replace("'", "")
        file = write(place, records)
        made[name] = file, Side(name, read_of(place, **{**text, **options}))
    columns, lines = made["own Parquet"][1], made["own JSON lines"][1]
    yield Pair("Kafka", lines, columns, goal=None)
    for name in ("kcat -J", "console consumer", "CSV", "Connect's JSON"):
        yield Pair("Kafka", made[name][1], lines)
    for name in ("Connect's Avro", "Connect's Parquet"):
        yield Pair("Kafka", made[name][1], columns)
    for name, (file, side) in made.items():
        if name not in ("own JSON lines", "Connect's Avro"):
            yield Pair("Kafka", side, Side("DuckDB", partial(by_duckdb, file)), calls=True, goal=None)
    for name in ("own Parquet", "Connect's Parquet"):
        yield Pair("Kafka", made[name][1], Side("pyarrow", partial(by_pyarrow, made[name][0])), calls=True, goal=None)


def by_duckdb(file: Path) -> int:
    reader = {".jsonl": "read_json", ".json": "read_json", ".parquet": "read_parquet"}.get(file.suffix, "read_csv")
    options = ", delim='\t', quote='', header=false" if file.suffix == ".txt" else ""
    with duckdb.connect() as connection:
        return int(connection.sql(f"FROM {reader}('{file}'{options})").to_arrow_table().num_rows)


def by_pyarrow(file: Path) -> int:
    return int(pq.read_table(file).num_rows)


# Spark


def spark(folder: Path, rows: int) -> Iterator[Pair]:
    known = write_checkpoint(folder / "known", rows, 3, snapshots=3)
    untold = Path(shutil.copytree(known, folder / "untold"))
    for schema in untold.rglob("schema"):
        schema.unlink()
    given = read_of(untold, key_type="word string", value_type="count bigint")
    yield Pair("Spark", Side("types that are given", given), Side("a schema file", read_of(known)))


# Verification


def verification(folder: Path, rows: int) -> Iterator[Pair]:
    topic = folder / "topic"
    kafka_forms.parquet(topic, Records(rows, kafka_forms.json_text))
    places = {
        "savepoint of Flink": flink_forms.savepoint(folder / "savepoint", FORMS["POJO"], rows),
        "checkpoint of Flink in RocksDB": flink_forms.native(folder / "native", FORMS["POJO"], rows // FEW),
        "checkpoint of Spark": write_checkpoint(folder / "spark", rows, 3, snapshots=3),
        "topic of Kafka": topic,
    }
    for name, place in places.items():
        plain, deep = (Side(f"verify{word}, {name}", partial(verified, place, each)) for word, each in WAYS)
        yield Pair("All", plain, Side("a checksum of all bytes", partial(checksum, place)), calls=True, goal=None)
        yield Pair("All", deep, Side("a scan", read_of(place)), calls=True)


WAYS = (("", False), (" --deep", True))


def verified(place: Path, deep: bool) -> int:
    problems = [problem for found in statestore.verify(str(place), deep=deep) for problem in found.problems]
    if problems:
        raise ValueError(f"{place}: {problems[:3]}")
    return 1


def checksum(place: Path) -> int:
    return sum(zlib.crc32(file.read_bytes()) for file in place.rglob("*") if file.is_file())


# Measurement

ENGINES = {"flink": flink, "kafka": kafka, "spark": spark, "verification": verification}


def measured(pair: Pair, runs: int) -> dict[str, Any]:
    """Figures of a pair, after each side has been read twice: the first read may compile loops."""
    sides = (pair.ours, pair.other)
    for side in sides:
        side.read()
    found_cells = [side.read() for side in sides]
    cells = [side.cells or count for side, count in zip(sides, found_cells, strict=True)]
    costs = Costs(), Costs()
    for _ in range(runs):
        for side, cost in zip(sides, costs, strict=True):
            cost.add(side.read)
    medians = [cost.summary()["cpu_median"] for cost in costs]
    by = (1, 1) if pair.calls else cells
    found = {
        "measure": pair.name,
        "ratio": round(medians[0] / by[0] / max(medians[1] / by[1], 1e-9), 2),
        **({} if pair.goal is None else {"goal": pair.goal}),
        "minima": round(min(costs[0].cpu) / by[0] / max(min(costs[1].cpu) / by[1], 1e-9), 2),
        "ms": [round(each, 1) for each in medians],
    }
    if not pair.calls:
        found |= {"ns": [round(each / n * 1e6, 1) for each, n in zip(medians, cells, strict=True)], "cells": cells}
    return found


def row_of(found: dict[str, Any]) -> str:
    ours, other = found.get("ns", found["ms"])
    unit = "ns a cell" if "ns" in found else "ms"
    return f"| {found['measure']} | {found['ratio']:.2f} | {ours:,} | {other:,} | {unit} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the rows, one run")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--only", default="", help=f"of {', '.join(ENGINES)}, or a text in the name of a measure")
    parser.add_argument("--table", action="store_true", help="print a table in Markdown")
    given = parser.parse_args()
    rows, runs = (given.rows // 50, 1) if given.quick else (given.rows, given.runs)
    if given.table:
        print("| measure | ratio | ours | the other | |\n| --- | --- | --- | --- | --- |")
    warnings.simplefilter("ignore")  # notices about what an export does not say
    chosen = [given.only] if given.only in ENGINES else list(ENGINES)
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="statestore-forms-") as folder:
            for pair in ENGINES[name](Path(folder), rows):
                if given.only in ENGINES or given.only in pair.name:
                    found = measured(pair, runs)
                    print(row_of(found) if given.table else json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
