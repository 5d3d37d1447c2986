"""Rows of an attached store, in both ways in which DuckDB can scan them, against a model without any storage."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.stores.versioned_checks import as_table, create
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.reads import scan
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.connector.duckdb import attach, kept_rows, reading

SECOND = 1000


@pytest.fixture(params=["source", "dataset"])
def scanned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """DuckDB's own sources, or the dataset that every release can scan."""
    if request.param == "dataset":
        monkeypatch.setattr(attach, "ScanSource", None)
    yield request.param


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Model]:
    """Twelve commits with hot keys, deletes and late rows, so that pieces are whole, mostly live and mostly dead."""
    folder = str(tmp_path_factory.mktemp("warehouse"))
    random, model = np.random.default_rng(11), Model()
    with create(statestore.connect(folder)) as store:
        for commit in range(1, 13):
            keys = np.where(random.random(60) < 0.4, random.integers(0, 4, 60), random.integers(0, 90, 60))
            times = commit * SECOND + np.arange(60) * 10 - np.where(random.random(60) < 0.1, 1500, 0)
            values = [None if dead else int(v) for dead, v in zip(random.random(60) < 0.1, keys * commit, strict=True)]
            rows = [(f"k{k}", v, int(t)) for k, v, t in zip(keys, values, times, strict=True) if t >= 0]
            for row in rows:
                model.put(*row)
            store.put_all(as_table(rows))
            store.commit()
            model.commit()
            if commit in (5, 9):
                store.compact(full=commit == 5)
            while len(model.states) <= store.version:
                model.same_again()
    return folder, model


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_ROWS", 16)
    monkeypatch.setattr(scan, "SPARSE", 4)
    monkeypatch.setattr(reading, "SMALL_ROWS", 8)


MOMENTS: list[dict[str, int]] = [
    {},
    *({"as_of": as_of} for as_of in (0, 2 * SECOND, 6_300, 12 * SECOND)),
    *({"version": version} for version in (0, 3, 8)),
    {"version": 7, "as_of": 4 * SECOND},
]


@pytest.fixture(params=["files", "columns", "few columns"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are read again: in mapped files at first, or in columns of live rows, as of compressed segments."""
    if request.param != "files":
        monkeypatch.setattr(VersionedTable, "is_mapped", lambda *_: False)
        monkeypatch.setattr(reading, "BATCH_ROWS", 16)
    if request.param == "few columns":
        monkeypatch.setattr(kept_rows, "COPIED_BYTES", 600)


@pytest.mark.quick("*-source-{}", "columns-dataset-*as_of*4000}", "columns-dataset-{'version': 8}")
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_every_query_has_the_rows_of_the_model(
    scanned: str, history: tuple[str, Model], moment: dict[str, int]
) -> None:
    folder, model = history
    true = model.state_at(moment.get("version", len(model.states) - 1), moment.get("as_of"))
    connection = statestore.attach(folder, **moment)

    def ask(question: str) -> list[tuple[Any, ...]]:
        return connection.execute(question).fetchall()

    for _ in range(3):  # first from files, then from copies
        rows = ask("SELECT k, v, epoch_ms(valid_from), epoch_ms(valid_to) FROM s")
        assert (len(rows), set(rows)) == (len(true), true)
        assert ask("SELECT count(*) FROM s") == [(len(true),)]
        assert ask("SELECT coalesce(sum(v), 0) FROM s") == [(sum(v for _, v, _, _ in true),)]
        assert ask("SELECT sum(v) FROM s WHERE k IN ('k1', 'k2', 'none')") == [
            (sum(v for k, v, _, _ in true if k in ("k1", "k2")) if {"k1", "k2"} & {k for k, *_ in true} else None,)
        ]
        assert ask("SELECT count(*) FROM s WHERE v > 100 AND k >= 'k3'") == [
            (sum(v > 100 and k >= "k3" for k, v, _, _ in true),)
        ]
        assert ask("SELECT count(*) FROM s a JOIN s b USING (k, v)") == [(len(true),)]
        assert ask("SELECT count(*) FROM s WHERE valid_to IS NULL") == [(sum(e is None for *_, e in true),)]


def test_marks_and_pin_are_no_columns(scanned: str, history: tuple[str, Model]) -> None:
    columns = [column[0] for column in statestore.attach(history[0]).execute("FROM s LIMIT 1").description]
    assert columns == ["k", "v", "valid_from", "valid_to"]


@pytest.fixture
def codes(tmp_path: Path) -> VersionedStore:
    """Ten items with a code that is a number, of which nine had a code that is none."""
    store: VersionedStore = statestore.connect(tmp_path).create_store(
        "s", key={"k": "bigint"}, value={"code": "string"}
    )
    for commit, code in ((0, "none"), (1, "7")):
        keys = range(10) if commit == 0 else range(1, 10)
        codes = ["7" if k == 0 else code for k in keys]
        store.put_all(pa.table({"k": keys, "code": codes, "timestamp": [commit * SECOND + k for k in keys]}))
        store.commit()
    return store


@pytest.mark.quick("source-*", "dataset-SELECT count*")
@pytest.mark.parametrize(
    "question",
    [
        "SELECT count(*) FROM s WHERE code::INT > 0",
        "SELECT count(*) FROM s WHERE k >= 0 AND code::INT = 7 AND valid_to IS NULL",
        "SELECT sum(code::INT) // 7 FROM s",
        "SELECT count(*) FROM s a JOIN s b ON a.code::INT + a.k = b.code::INT + b.k",
        "SELECT count(*) FROM (SELECT code::INT AS n FROM s ORDER BY n) WHERE n > 1",
        "SELECT count(*) FILTER (WHERE code::INT > 0) FROM s",
        "SELECT count(*) FROM s WHERE CASE WHEN code = 'none' THEN error('a dead row') ELSE true END",
    ],
)
def test_an_expression_is_never_evaluated_on_a_dead_row(
    scanned: str, codes: VersionedStore, tmp_path: Path, question: str
) -> None:
    assert statestore.attach(str(tmp_path)).execute(question).fetchall() == [(10,)]


@pytest.mark.quick("source")
def test_kept_batches_are_given_up_with_the_next_commit(scanned: str, codes: VersionedStore, tmp_path: Path) -> None:
    connection = statestore.attach(str(tmp_path))
    for key in range(10, 14):
        codes.put(key, {"code": "1"}, timestamp=5 * SECOND)
        codes.commit()
        codes.compact(full=key % 2 == 0)
        for _ in range(2):
            assert connection.execute("SELECT count(*), count(code) FROM s").fetchall() == [(key + 1, key + 1)]
            assert connection.execute("SELECT max(k) FROM s").fetchall() == [(key,)]


def test_a_transaction_reads_its_version_while_the_store_is_written_and_compacted(
    scanned: str, codes: VersionedStore, tmp_path: Path
) -> None:
    connection = statestore.attach(str(tmp_path))
    other = connection.cursor()
    connection.execute("BEGIN")
    assert connection.execute("SELECT sum(k) FROM s").fetchall() == [(45,)]
    codes.delete(9, timestamp=9 * SECOND)
    codes.commit()
    codes.compact(full=True)
    assert other.execute("SELECT sum(k), count(*) FROM s").fetchall() == [(36, 9)]
    assert connection.execute("SELECT sum(k), count(code) FROM s").fetchall() == [(45, 10)]
    connection.execute("COMMIT")
    assert connection.execute("SELECT sum(k) FROM s").fetchall() == [(36,)]


def test_a_file_that_was_shortened_is_an_error_also_after_its_columns_were_read(scanned: str, tmp_path: Path) -> None:
    """Columns of texts are views of the file each time."""
    with statestore.connect(tmp_path).create_store("s", key={"k": "bigint"}, value={"code": "string"}) as store:
        store.put_all(pa.table({"k": range(10), "code": ["7"] * 10, "timestamp": range(10)}))
        store.commit()
    connection = statestore.attach(str(tmp_path))
    for _ in range(2):
        assert connection.execute("SELECT count(code) FROM s").fetchall() == [(10,)]
    for file in tmp_path.glob("s/segments/*.arrow"):
        if ".index" not in file.name and ".closures" not in file.name:
            os.truncate(file, file.stat().st_size - 8)
    with pytest.raises(duckdb.Error, match="SEGMENT_TRUNCATED"):
        connection.execute("SELECT count(code) FROM s").fetchall()


@pytest.mark.quick("source")
def test_threads_read_one_version_each_while_a_writer_commits(
    scanned: str, codes: VersionedStore, tmp_path: Path
) -> None:
    connection = statestore.attach(str(tmp_path))
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        cursor, seen = connection.cursor(), 0
        while not done.is_set():
            rows, joined, keys = cursor.execute(
                "SELECT (SELECT count(*) FROM s), (SELECT count(*) FROM s a JOIN s b USING (k)), count(k) FROM s"
            ).fetchall()[0]
            if not rows == joined == keys or rows < seen:
                wrong.append((rows, joined, keys, seen))
            seen = rows

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for key in range(10, 22):
        codes.put(key, {"code": "1"}, timestamp=5 * SECOND)
        codes.commit()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert connection.execute("SELECT count(*) FROM s").fetchall() == [(22,)]
