"""Arguments of the wrong type or size, in every position of the public interface: a result or an error of the tree."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.command_line import in_encoding

import statestore
from statestore import StateStoreError, UnsupportedError

HOSTILE: dict[str, Any] = {
    "None": None,
    "True": True,
    "empty": "",
    "blank": "  ",
    "dot": ".",
    "up": "..",
    "quote": "a'\"`b",
    "surrogate": "\ud800",
    "name with surrogate": "a\udcffb",
    "NUL": "a\0b",
    "long": "x" * 100_000,
    "long path": "x/" * 5_000,
    "slashes": "a/b",
    "zero": 0,
    "minus one": -1,
    "huge": 10**30,
    "digits": 10**5000,
    "most": 2**63 - 1,
    "least": -(2**63),
    "beyond": 2**64,
    "NaN": math.nan,
    "infinity": math.inf,
    "fraction": 1.5,
    "numpy int": np.int64(7),
    "numpy uint": np.uint64(2**64 - 1),
    "numpy float": np.float64("nan"),
    "numpy bool": np.bool_(True),
    "numpy array": np.array([1, 2]),
    "numpy time": np.datetime64("2020-01-01"),
    "no time": np.datetime64("NaT"),
    "decimal": Decimal("1.5"),
    "decimal NaN": Decimal("NaN"),
    "decimal sNaN": Decimal("sNaN"),
    "naive": datetime(2020, 1, 1),
    "first moment": datetime.min.replace(tzinfo=UTC),
    "last moment": datetime.max.replace(tzinfo=UTC),
    "date": date(2020, 1, 1),
    "span": timedelta.max,
    "negative span": timedelta(-1),
    "bytes": b"\xff",
    "empty list": [],
    "list": [1, "a", None],
    "list of surrogates": ["\ud800"],
    "empty tuple": (),
    "tuple": ("\ud800", 1),
    "dict": {"k": "\ud800"},
    "dict of types": {"\ud800": "bigint"},
    "dict of wrong types": {"x": "\ud800"},
    "dict of numbers": {1: 2},
    "nested dict": {"k": {"k": {}}},
    "set": {1},
    "object": object(),
    "class": int,
    "function": len,
    "scalar": pa.scalar("a"),
    "array": pa.array([1]),
    "table": pa.table({"a": [1]}),
    "schema": pa.schema([]),
    "type": pa.uint64(),
}


OPTIONS = {
    "window": ("retention", "window_size", "segment_interval", "retain_duplicates", "time_ordered"),
    "join_window": ("window_before", "window_after", "retention", "num_segments", "batched_changelog"),
    "session": ("retention", "segment_interval"),
}
_OURS = re.compile(r"\[[A-Z]+(_[A-Z]+)+\] ")
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = statestore.connect(tmp_path / "wh")
    with catalog.create_store("s", **COLUMNS) as store:
        store.put("a", 1, timestamp=1_000)
        store.put("b", 2, timestamp=2_000)
        store.commit()
    with catalog.create_store("kv", kind="key_value", **COLUMNS) as live:
        live.put("a", 1)
        live.commit()
    with catalog.create_store("w", kind="window", retention="1 day", window_size="1 hour", **COLUMNS) as windows:
        windows.put("a", 1, 0)
        windows.commit()
    return tmp_path / "wh"


def _calls(root: Path, x: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each public call with ``x`` in one position, by the name of that position."""
    catalog = statestore.connect(root)
    path = str(root)
    numbers = itertools.count()

    def new(*, name: Any = None, key: Any = COLUMNS["key"], value: Any = COLUMNS["value"], **how: Any) -> object:
        name = f"new{next(numbers)}" if name is None else name
        return catalog.create_store(name, key=key, value=value, **how).close()

    def on(name: str, ask: Callable[[Any], object], **how: Any) -> Callable[[], object]:
        def run() -> object:
            with catalog.open_store(name, **how) as store:
                return _taken(ask(store))

        return run

    yield "connect", lambda: statestore.connect(x)
    yield "create_store name", lambda: catalog.create_store(x, **COLUMNS)
    yield "create_store key", lambda: new(key=x)
    yield "create_store value", lambda: new(value=x)
    yield "create_store type", lambda: new(value={"v": x})
    yield "create_store key type", lambda: new(key={"k": x})
    for option in ("kind", "history_retention", "segment_interval", "serde", "key_groups", "retention"):
        yield f"create_store {option}", partial(new, **{option: x})
    for kind, options in OPTIONS.items():
        given = {"retention": "1 day", **({"window_size": "1 hour"} if kind == "window" else {})}
        for option in options:
            yield f"create_store {kind} {option}", partial(new, kind=kind, **given | {option: x})
    yield "open_store", lambda: catalog.open_store(x)
    yield "drop_store", lambda: catalog.drop_store(x)
    yield "rebuild", lambda: catalog.rebuild(x)
    yield "catalog.verify", lambda: catalog.verify(x)
    yield "put key", on("s", lambda s: s.put(x, 1, timestamp=3_000))
    yield "put value", on("s", lambda s: s.put("a", x, timestamp=3_000))
    yield "put timestamp", on("s", lambda s: s.put("a", 1, timestamp=x))
    yield "delete", on("s", lambda s: s.delete(x, timestamp=x))
    yield "put_all", on("s", lambda s: s.put_all(x))
    yield "write", on("s", lambda s: s.write(x))
    yield "write mode", on("s", lambda s: s.write(pa.table({"k": ["a"], "v": [1], "timestamp": [1]}), mode=x))
    yield "commit", on("s", lambda s: (s.put("a", 1, timestamp=9_000), s.commit(transaction=x)))
    yield "transaction", on("s", lambda s: (s.put("a", 1, timestamp=9_000), s.commit(transaction=(x, 1))))
    yield "batch", on("s", lambda s: (s.put("a", 1, timestamp=9_000), s.commit(transaction=("a", x))))
    yield "get", on("s", lambda s: s.get(x))
    yield "get as_of", on("s", lambda s: s.get("a", as_of=x))
    yield "get_versions", on("s", lambda s: list(s.get_versions("a", x, x)))
    for what in ("as_of", "version", "columns", "filter"):
        yield f"scan {what}", on("s", partial(_asked, "scan", what, x))
    for what in ("key", "start_time", "end_time", "version", "columns", "filter"):
        yield f"history {what}", on("s", partial(_asked, "history", what, x))
    for what in ("start_version", "end_version", "start_time", "end_time", "columns", "filter"):
        yield f"changes {what}", on("s", partial(_asked, "changes", what, x))
    for what in ("start_version", "end_version", "start_time", "end_time", "columns"):
        yield f"diff {what}", on("s", partial(_asked, "diff", what, x))
    for column in ("k", "v", "valid_from"):
        for op in ("=", ">", "in", "starts_with"):
            yield f"filter {column} {op}", on("s", partial(_asked, "scan", "filter", (column, op, x)))
    yield "filter column", on("s", lambda s: s.scan(filter=(x, "=", 1)))
    yield "filter operator", on("s", lambda s: s.scan(filter=("v", x, 1)))
    yield "column name", on("s", lambda s: s.scan(columns=[x]))
    yield "expire", on("s", lambda s: s.expire(before=x))
    yield "vacuum", on("s", lambda s: s.vacuum(older_than=x, dry_run=True))
    yield "live put", on("kv", lambda s: s.put(x, 1))
    yield "live value", on("kv", lambda s: s.put("a", x))
    yield "live get", on("kv", lambda s: s.get(x))
    yield "live range", on("kv", lambda s: list(s.range(x, x)))
    yield "live delete", on("kv", lambda s: s.delete(x))
    yield "window put", on("w", lambda s: s.put("a", 1, x))
    yield "window fetch", on("w", lambda s: list(s.fetch("a", x, x)))
    yield "window key", on("w", lambda s: s.put(x, 1, 0))
    yield "sql path", lambda: statestore.sql(x, "SELECT 1")
    yield "sql", lambda: statestore.sql(path, x)
    if isinstance(x, str | int):
        quoted = str(x)[:2000].replace("'", "''") if not isinstance(x, int) or abs(x) < 10**4000 else "9" * 5000
        yield "sql text", lambda: statestore.sql(path, f"SELECT * FROM s WHERE k = '{quoted}'")
        yield "sql time", lambda: statestore.sql(path, f"SELECT * FROM s TIMESTAMP AS OF '{quoted}'")
        yield "sql version", lambda: statestore.sql(path, f"SELECT * FROM s VERSION AS OF {quoted}")
        yield "sql number", lambda: statestore.sql(path, f"SELECT * FROM s TIMESTAMP AS OF {quoted}")
        yield "sql history", lambda: statestore.sql(path, f"SELECT * FROM history('{quoted}', '{quoted}')")
        yield "sql table", lambda: statestore.sql(path, f'SELECT * FROM "{quoted}"')
    yield "attach", lambda: statestore.attach(x)
    yield "attach as_of", lambda: _taken(statestore.attach(path, as_of=x))
    yield "attach version", lambda: _taken(statestore.attach(path, version=x))
    yield "inspect", lambda: statestore.inspect(x)
    yield "table", lambda: statestore.inspect(path).table(x)
    yield "verify", lambda: statestore.verify(x)
    yield "verify store", lambda: statestore.verify(path, x)
    table = pa.table({"k": ["a"], "t": pa.array([1_500_000], pa.timestamp("us", "UTC"))})
    how = {"left": table, "store": str(root / "s"), "on": "k", "left_time": "t", "engine": "arrow"}
    for what in (*how, "how", "columns", "prefix", "version", "grace"):
        yield f"asof_join {what}", partial(_joined, {**how, what: x})


def _asked(method: str, argument: str, value: Any, store: Any) -> object:
    """Do a read with one argument; a diff needs a start."""
    given = {"start_version": 0} if method == "diff" else {}
    return getattr(store, method)(**{**given, argument: value})


def _joined(how: dict[str, Any]) -> object:
    return _taken(statestore.asof_join(how.pop("left"), how.pop("store"), **how))


def _taken(found: object) -> object:
    if isinstance(found, duckdb.DuckDBPyConnection):
        with found:
            return found.sql("SELECT * FROM s").fetchall()
    return found.read_all() if isinstance(found, pa.RecordBatchReader) else found


QUICK = ("None", "surrogate", "NUL", "digits", "numpy array", "last moment", "class")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in HOSTILE])
def test_every_outcome_is_right_or_ours(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else than an answer, a StateStoreError, or a TypeError for a call that no signature has."""
    monkeypatch.chdir(root.parent)
    raw = []
    for what, call in _calls(root, HOSTILE[name]):
        try:
            call()
        except StateStoreError as error:
            str(error).encode()  # a terminal or log could not take half a surrogate pair
        except duckdb.Error as error:  # of a connection that is the user's: DuckDB wraps what a scan of ours raised
            if what != "attach version" or not _OURS.search(str(error)):
                raw.append(f"{what}: {error}")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raw.append(f"{what}: {type(error).__name__}: {str(error)[:200]} ({place.filename}:{place.lineno})")
    assert not raw, "\n".join(raw)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sqlite_scan('a.db', 't')",
        "SELECT * FROM delta_scan('x')",
        "SELECT * FROM read_xlsx('x')",
        "PRAGMA create_fts_index('s', 'k')",
        "CALL dsdgen(sf=1)",
        "SELECT * FROM query('SELECT * FROM sqlite_query(''a'', ''b'')')",
    ],
)
def test_sql_loads_no_extension(root: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of an extension is refused with its name; nothing is looked for, made or fetched."""
    home = root.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(UnsupportedError, match="EXTERNAL_ACCESS_OFF.*extension") as found:  # noqa: RUF043
        statestore.sql(str(root), query)
    assert "allow_external_access=True" in found.value.message
    assert not list(home.iterdir())


def _command(root: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    script = "from statestore.connector.cli.program import main; main()"
    given = [argument.format(root) for argument in arguments]
    return subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True)


def test_bytes_that_are_no_text_on_a_command_line(root: Path) -> None:
    """Python hands them over as halves of surrogate pairs."""
    for arguments in (("get", root, "s", "\udcff"), ("inspect", "\udcff"), ("sql", root, "SELECT '\udcff'")):
        code, _, err = in_encoding("utf-8", *arguments)
        assert code in (1, 2) and err.startswith(b"statestore: "), (arguments, err)


@pytest.mark.slow
def test_times_at_both_ends_of_the_calendar_in_every_door(tmp_path: Path) -> None:
    """The first and last moments that state time can have are written, read and shown."""
    first, last = -62_135_596_800_000, 253_402_300_799_999
    with statestore.connect(tmp_path).create_store("s", **COLUMNS) as store:
        store.put("a", 1, timestamp=first)
        store.put("b", 2, timestamp=last)
        store.commit()
        assert [(r["k"], r["valid_from"]) for r in store.scan(as_of=last).read_all().sort_by("k").to_pylist()] == [
            ("a", datetime(1, 1, 1, tzinfo=UTC)),
            ("b", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ]
    assert statestore.sql(str(tmp_path), f"SELECT count(*) c FROM s TIMESTAMP AS OF {last}").to_pylist() == [{"c": 2}]
    for command in (["scan", "{}", "s"], ["inspect", "{}"], ["versions", "{}", "s"], ["history", "{}", "s", "b"]):
        done = _command(tmp_path, command)
        assert done.returncode == 0, (command, done.stderr)
