"""`Rows`: what a read returns has the same rows whenever it is read, in every library that takes Arrow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import statestore
from statestore.catalog.reads.rows import SHOWN_PIECES, SHOWN_ROWS, Rows
from statestore.formats.errors import NotFoundError

READS: dict[str, Callable[[Any], Rows]] = {
    "scan": lambda store: store.scan(),
    "scan of the past": lambda store: store.scan(as_of="2024-05-01T09:00Z", columns="price"),
    "history": lambda store: store.history(),
    "history of a key": lambda store: store.history("curry"),
    "changes": lambda store: store.changes(),
    "changes by time": lambda store: store.changes(start_time="2024-05-01T00:00Z"),
    "diff": lambda store: store.diff(1),
    "diff of moments": lambda store: store.diff(start_time="2024-05-01T09:00Z"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with statestore.connect(tmp_path).create_store(
        "prices", key={"item": "string"}, value={"price": "double"}
    ) as opened:
        opened.put("curry", 8.0, "2024-05-01T08:00Z")
        opened.put("naan", 2.0, "2024-05-01T08:00Z")
        opened.commit()
        opened.put("curry", 9.0, "2024-05-01T10:00Z")
        opened.commit()
        yield opened


def later(store: Any) -> None:
    """Commits that change the answer of every read that is asked anew."""
    store.put("curry", 8.5, "2024-05-01T08:30Z")
    store.put("dal", 3.0, "2024-05-01T08:30Z")
    store.delete("naan", "2024-05-01T08:45Z")
    store.commit()
    store.put("curry", 1.0, "2024-05-02T08:00Z")
    store.commit()


@pytest.mark.parametrize("name", READS)
def test_rows_are_read_again_as_they_were(store: Any, name: str) -> None:
    """Also when commits, and a compaction, come before the first reading or between two."""
    rows, before = READS[name](store), READS[name](store).read_all()
    waiting = READS[name](store)
    assert rows.read_all() == rows.read_all() == before
    later(store)
    assert rows.to_arrow() == waiting.to_arrow() == before
    assert READS[name](store).to_arrow() != before
    if name != "changes by time":
        store.compact(full=True)
    assert rows.reader().read_all().num_rows == before.num_rows
    assert sorted(map(str, rows.to_arrow().to_pylist())) == sorted(map(str, before.to_pylist()))


def test_tables_are_read_again_as_they_were(store: Any, tmp_path: Path) -> None:
    warehouse = statestore.inspect(tmp_path)
    found = [warehouse["prices"].scan(), warehouse["prices$versions"].scan(), store.compare(warehouse["prices"])]
    before = [rows.to_arrow() for rows in found]
    later(store)
    assert [rows.to_arrow() for rows in found] == before


def test_history_that_has_expired_is_refused_and_not_shortened(store: Any) -> None:
    rows, changes = store.history(), store.changes()
    assert rows.to_arrow().num_rows == 3
    store.put("curry", 1.0, "2024-05-03T08:00Z")
    store.commit()
    store.expire(before="2024-05-02T00:00Z")
    for each in (rows, changes):
        with pytest.raises(NotFoundError) as caught:
            for _ in range(2):
                each.to_arrow()
        assert caught.value.code in ("TIME_NOT_KEPT", "VERSION_NOT_FOUND", "FILES_REPLACED")


def test_changes_by_time_say_that_their_files_are_gone(store: Any) -> None:
    rows = store.changes(start_time="2024-05-01T00:00Z")
    rows.to_arrow()
    store.compact(full=True)
    store.vacuum(older_than=0)
    with pytest.raises(NotFoundError) as caught:
        rows.to_arrow()
    assert caught.value.code == "FILES_REPLACED"


def test_wrong_columns_are_refused_at_the_call(store: Any) -> None:
    for read in (store.scan, store.history, store.changes):
        with pytest.raises(NotFoundError):
            read(columns="prize")
    assert store.scan(columns="item").schema.names == ["item"]
    assert store.diff(1, columns="price").to_arrow().num_rows == 1
    empty = store.scan(columns=[])
    assert empty.to_arrow().num_rows == empty.read_all().num_rows == 2


def test_every_library_takes_rows(store: Any, tmp_path: Path) -> None:
    rows = store.scan(columns=["item", "price"])
    expected = rows.to_arrow()
    listed = sorted(map(tuple, map(dict.values, expected.to_pylist())))
    assert polars.DataFrame(rows).equals(rows.to_polars())
    assert rows.to_polars().to_arrow().num_rows == polars.from_arrow(rows.reader()).shape[0] == 2
    assert rows.to_pandas().equals(rows.read_pandas())
    for _ in range(2):
        found = duckdb.query("SELECT * FROM rows")
        assert found is not None and sorted(found.fetchall()) == listed
    relation = rows.to_duckdb(duckdb.connect())
    assert sorted(relation.fetchall()) == sorted(relation.fetchall()) == listed
    pyarrow.dataset.write_dataset(rows, tmp_path / "out", format="parquet")
    assert pyarrow.dataset.dataset(tmp_path / "out").to_table().num_rows == 2
    with pyarrow.parquet.ParquetWriter(tmp_path / "out.parquet", rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet") == expected
    assert pa.table(rows) == pa.Table.from_batches(list(rows)) == pa.RecordBatchReader.from_stream(rows).read_all()


def test_a_begun_reading_is_read_on_like_that_of_a_reader() -> None:
    batches = [pa.record_batch({"n": [n]}) for n in range(3)]
    with Rows("numbers", batches[0].schema, iter([iter(batches)]), lambda: iter([iter(batches)])) as rows:
        assert next(rows).column("n").to_pylist() == [0]
        assert rows.read_all()["n"].to_pylist() == [1, 2]
        assert rows.read_all()["n"].to_pylist() == [0, 1, 2]
        for _ in range(3):
            rows.read_next_batch()
        for _ in range(2):
            with pytest.raises(StopIteration):
                rows.read_next_batch()
        assert rows.to_arrow().num_rows == 3
    assert [batch.num_rows for batch in rows] == [1, 1, 1]


def test_a_page_shows_the_first_rows_and_reads_no_more() -> None:
    read: list[int] = []

    def piece(number: int) -> Iterator[pa.RecordBatch]:
        for _ in range(100):
            read.append(number)
            yield pa.record_batch({"<i>": ["<script>"] * 7})

    def pieces() -> Iterator[Iterator[pa.RecordBatch]]:
        return (piece(number) for number in range(3))

    rows = Rows("<b>", pa.schema([("<i>", pa.string())]), pieces(), pieces)
    assert "<i>" in repr(rows) and not read
    page = rows._repr_html_()
    assert page.count("&lt;script&gt;") == SHOWN_ROWS and "<script>" not in page and "<i>" not in page
    assert f"the first {SHOWN_ROWS} rows" in page and len(read) == SHOWN_ROWS // 7 + 1
    assert rows.to_arrow().num_rows == 3 * 100 * 7 and len(read) == 300 + SHOWN_ROWS // 7 + 1
    assert rows._repr_html_() == page and len(read) == 300 + SHOWN_ROWS // 7 + 1
    hostile = Rows("\x1b[31m\ud800", pa.schema([("\x1b]0;x\x07", pa.string())]), iter([]), lambda: iter([]))
    assert repr(hostile) == "Rows of \\x1b[31m\\ud800\n\\x1b]0;x\\x07 string"
    assert hostile._repr_html_().encode()
    assert rows.to_arrow().num_rows == 3 * 100 * 7


def test_a_page_of_a_read_that_finds_nothing_stops() -> None:
    read: list[int] = []

    def pieces() -> Iterator[Iterator[pa.RecordBatch]]:
        return (iter(read.append(number) or []) for number in range(1000))  # type: ignore[func-returns-value]

    page = Rows("r", pa.schema([("n", pa.int64())]), pieces(), pieces)._repr_html_()
    assert "no rows in the first part" in page and len(read) == SHOWN_PIECES


def test_a_page_that_fails_says_why_and_loses_no_rows() -> None:
    def pieces(fails: bool) -> Iterator[Iterator[pa.RecordBatch]]:
        def piece() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"n": [1]})
            if fails:
                raise OSError("<gone>")

        return iter([piece()])

    rows = Rows("r", pa.schema([("n", pa.int64())]), pieces(True), lambda: pieces(False))
    assert "&lt;gone&gt;" in rows._repr_html_()
    assert rows.to_arrow()["n"].to_pylist() == [1]


def test_changes_that_an_expiry_has_thinned_are_not_read_again(tmp_path: Path) -> None:
    """The expiry removes changes of versions that it keeps; whoever asks anew gets the rest."""
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    for number in range(3):
        store.put("a", number, timestamp=1_000 + 10 * number)
    store.commit()
    read, unread = store.changes(start_version=1), store.changes(start_version=1)
    assert read.to_arrow().num_rows == 5
    store.expire(before=1_015)
    for rows in (read, unread):
        for _ in range(2):
            try:
                assert rows.to_arrow().num_rows == 5  # the first reading of one that holds its files
            except statestore.NotFoundError as error:
                assert error.code == "TIME_NOT_KEPT"
    with pytest.raises(statestore.NotFoundError, match="TIME_NOT_KEPT"):
        read.to_arrow()
    again = store.changes(start_version=1)
    assert again.to_arrow().num_rows == again.to_arrow().num_rows == 2


def test_rows_that_were_shown_hold_no_files(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    for number in range(3):
        store.put(f"k{number}", number, timestamp=1_000 + number)
        store.commit()
    shown = [store.scan(), store.history(), store.changes()]
    expected = [rows.to_arrow() for rows in (store.scan(), store.history(), store.changes())]
    assert all("<td>k1</td>" in rows._repr_html_() for rows in shown)
    store.compact(full=True)
    store.vacuum(older_than=0)
    assert sum(1 for _ in (tmp_path / "s" / "segments").glob("*.arrow")) <= 2
    for rows, table in zip(shown, expected, strict=True):
        assert sorted(map(repr, rows.to_arrow().to_pylist())) == sorted(map(repr, table.to_pylist()))


def test_values_that_python_has_no_object_for_are_no_error_of_the_page(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"d": "date"})
    far = pa.array([1 << 30], pa.int32()).view(pa.date32())
    store.put_all(pa.table({"k": ["a"], "d": far, "timestamp": [1]}))
    store.commit()
    assert "2941775-04-07" in store.scan()._repr_html_() and store.scan().to_arrow()["d"].combine_chunks() == far


def test_a_reading_that_has_ended_has_nothing_left(tmp_path: Path) -> None:
    """Reading on returns nothing, as with a reader; the next call begins anew. A copy is a read of its own."""
    store = statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "bigint"})
    store.put("a", 1, timestamp=1)
    store.commit()
    rows = store.scan()
    assert rows.read_next_batch().num_rows == 1
    with pytest.raises(StopIteration):
        rows.read_next_batch()
    assert rows.read_all().num_rows == 0
    assert [rows.read_all().num_rows for _ in range(2)] == [1, 1]
    rows = store.scan()
    copied = copy.copy(rows)
    assert (rows.to_arrow().num_rows, copied.to_arrow().num_rows) == (1, 1)
