"""Values that `export` writes and `load` reads are the same in every format, for every type that it can hold."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.command_line import run

import statestore

DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 5, 1, 9, 30, 0, 123456, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "string": ["", "NULL", "null", 'a "quote",\nline', "ünï\u2028", "=1+1", "\x1b[31m", " x ", None],
    "boolean": [True, False, None],
    "bigint": [0, -(2**63), 2**63 - 1, None],
    "double": [0.1, -0.0, 1e300, math.inf, -math.inf, math.nan, None],
    "decimal(38,5)": [Decimal("123456789012345678901234567890123.12345"), Decimal("-0.00001"), None],
    "date": [DAY, dt.date(1, 1, 1), None],
    "timestamp": [MOMENT, dt.datetime(1960, 1, 1, tzinfo=dt.UTC), None],
    "binary": [b"", b"\x00\xff", b"AP8=", None],
    "array<binary>": [[b"\x00", None], [], None],
    "struct<a:double,b:date>": [{"a": math.nan, "b": DAY}, {"a": None, "b": None}, None],
    "map<string,double>": [[("k", math.inf), ("l", None)], [], None],
}
NESTED = ("array<binary>", "struct<a:double,b:date>", "map<string,double>")
FLAT = ("string", "boolean", "bigint", "double", "decimal(38,5)", "date", "timestamp")


@pytest.mark.quick(
    "string-*", "double-csv", "decimal(38,5)-jsonl", "timestamp-*", "binary-tsv", "struct*-parquet", "*arr*-jsonl"
)
@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv", "tsv"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back(tmp_path: Path, kind: str, form: str) -> None:
    values = VALUES[kind]
    catalog = statestore.connect(tmp_path / "w")
    for name in ("a", "b"):
        store = catalog.create_store(name, key={"k": "bigint"}, value={"v": kind})
        if name == "a":
            column = pa.array(values, store.schema.field("v").type)
            store.put_all(pa.table({"k": range(len(values)), "v": column, "timestamp": [0] * len(values)}))
            store.commit()
        store.close()
    file = tmp_path / f"rows.{form}"
    code, _, err = run("export", tmp_path / "w", "a", "-o", file, "--columns", "k,v,valid_from")
    if form in ("csv", "tsv") and kind in NESTED:
        assert code == 0 and file.read_text().count("\n") > len(values)  # as texts of JSON, which are not read back
        return
    if form in ("csv", "tsv") and kind not in FLAT:
        assert code == 1 and "UNSUPPORTED_TYPE" in err and not file.exists()
        return
    assert code == 0, err
    plain = run("load", tmp_path / "w", "b", file)
    assert plain.code == 2 and "--columns k,v,valid_from --timestamp valid_from" in plain.err
    loaded = run("load", tmp_path / "w", "b", file, "--columns", "k,v,valid_from", "--timestamp", "valid_from")
    assert loaded.code == 0, loaded.err
    found, expected = (rows(catalog, name) for name in ("b", "a"))
    assert repr(found) == repr(expected) and len(found) == len(values)


def test_the_hint_for_an_exported_feed_keeps_the_deletes(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "w")
    with catalog.create_store("a", key={"k": "bigint"}, value={"v": "double"}) as store:
        store.put(1, 1.0, timestamp=0)
        store.put(2, 2.0, timestamp=0)
        store.delete(1, timestamp=5)
        store.commit()
    catalog.create_store("b", key={"k": "bigint"}, value={"v": "double"}).close()
    file = tmp_path / "feed.csv"
    assert run("export", tmp_path / "w", "a", "-o", file, "--changes").code == 0
    columns, timestamp = run("load", tmp_path / "w", "b", file).err.split("--columns ")[1].split(" --timestamp ")
    given = ["--columns", columns, "--timestamp", timestamp.strip()]
    assert run("load", tmp_path / "w", "b", file, *given).code == 0
    assert rows(catalog, "b") == rows(catalog, "a") and [row[0] for row in rows(catalog, "b")] == [2]


def rows(catalog: statestore.Catalog, name: str) -> list[tuple[Any, ...]]:
    with catalog.open_store(name) as store:
        return sorted((row["k"], row["v"], row["valid_from"]) for row in store.scan().to_arrow().to_pylist())


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_nulls_of_a_single_column_are_rows(tmp_path: Path, form: str) -> None:
    from statestore.connector.data_files import read_file, write_file

    schema = pa.schema([("v", pa.string())])
    batch = pa.record_batch({"v": ["a", None, "", None]})
    assert write_file(tmp_path / "x", form, schema, [batch]) == 4
    assert read_file(tmp_path / "x", form, schema).read_all()["v"].to_pylist() == ["a", None, "", None]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"k": 1, "v": "AP8"}', "line 1: column v"),
        ('{"k": 1}\n{"k": "x"}', "line 2: column k: found 'x'"),
        ('{"k": 1}\n[1]', "line 2: found list"),
        ('{"k": 1}\n\n{"k": ', "line 3: it is not JSON"),
        ('{"k": 1, "timestamp": [1]}', "nested"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: str, said: str) -> None:
    statestore.connect(tmp_path / "w").create_store("a", key={"k": "bigint"}, value={"v": "binary"}).close()
    (tmp_path / "x.jsonl").write_bytes(lines.encode("latin-1"))
    code, _, err = run("load", tmp_path / "w", "a", tmp_path / "x.jsonl")
    assert code == 2 and "WRONG_INPUT" in err and said in err
