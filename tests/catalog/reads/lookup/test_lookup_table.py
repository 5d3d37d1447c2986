"""Gets that one compiled call answers: every type of column, batches that come and go, commits of others, bad keys."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.reads.lookup import key_history, lookup_table, value_readers
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.stores.versioned import versioned_reads
from statestore.formats.errors import StateStoreError, StorageError
from statestore.formats.kernels import compiled_use
from statestore.formats.segments import segment_write
from statestore.formats.segments.decoded_columns import decoded
from statestore.formats.state_table import Query

TYPES: dict[str, tuple[Any, ...]] = {
    "tinyint": (-128, 127, 0, None),
    "smallint": (-(2**15), None, 2**15 - 1),
    "int": (-(2**31), 2**31 - 1, None),
    "bigint": (-(2**63), 2**63 - 1, None),
    "float": (0.5, None, float("-inf")),
    "double": (0.1, -1e300, None),
    "boolean": (True, False, None, False, True),
    "string": ("", "a", "é€😀", None, "x" * 300),
    "binary": (b"", None, b"\0\xff", b"a" * 99),
    "date": (date(1, 1, 1), date(9999, 12, 31), None),
    "timestamp": (datetime(1900, 1, 1, 0, 0, 0, 7, tzinfo=UTC), None, datetime(2024, 5, 1, 9, tzinfo=UTC)),
    "timestamp_ntz": (datetime(1, 1, 1), None, datetime(2024, 5, 1, 9)),
    "decimal(9, 2)": (Decimal("-9999999.99"), None, Decimal("0.00"), Decimal("1.50")),
    "decimal(38, 0)": (Decimal(-(10**37)), None, Decimal(10**37)),
}
ROWS = 60
END = 4 * ROWS


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_table, "WARM_READS", 0)
    monkeypatch.setattr(compiled_use, "_read_before", compiled_use._COLD_BYTES)
    monkeypatch.setattr(versioned_reads, "FEW_KEYS", 0)
    monkeypatch.setattr(segment_write, "COMPRESSED_BATCH_ROWS", 7)


def keys_of(kind: str) -> list[Any]:
    if kind == "string":
        return [f"key é {number}" for number in range(20)]
    if kind == "binary":
        return [b"\xff" * number for number in range(20)]
    return [number * 6 - 60 for number in range(20)]


def composite_keys(kinds: dict[str, str]) -> list[tuple[Any, ...]]:
    """Return keys of several columns, among them some whose bytes, one after the other, are the same."""
    columns = [keys_of(kind) for kind in kinds.values()]
    keys = [tuple(column[(number * (at + 1)) % 7] for at, column in enumerate(columns)) for number in range(14)]
    likes: dict[str, tuple[Any, Any]] = {"string": ("ab", "c"), "binary": (b"ab", b"c")}
    other: dict[Any, Any] = {"ab": "a", "c": "bc", b"ab": b"a", b"c": b"bc"}
    first = tuple(likes.get(kind, (1, 2))[at % 2] for at, kind in enumerate(kinds.values()))
    reverse = [first[::-1]] if len(set(kinds.values())) == 1 else []
    return list(dict.fromkeys([*keys, first, tuple(other.get(cell, cell) for cell in first), *reverse]))


class Filled:
    """A store of several segments with deletes, of which some rows are open, and what each key was at each moment."""

    def __init__(
        self, folder: Path, key: str | dict[str, str], value: dict[str, Any], value_of: Callable[[int], Any]
    ) -> None:
        self.catalog = statestore.connect(folder)
        kinds = {"k": key} if isinstance(key, str) else key
        self.catalog.create_store("s", key=kinds, value=value).close()
        self.store: Any = self.catalog.open_store("s", auto_compact=False)
        self.names = list(kinds)
        self.keys: list[Any] = keys_of(key) if isinstance(key, str) else composite_keys(kinds)
        self.changes: dict[Any, list[tuple[int, Any]]] = {key: [] for key in self.keys}
        for number in range(ROWS):
            name = self.keys[number * 7 % len(self.keys) if number % 3 else number % 5]
            row = None if number % 11 == 10 else value_of(number)
            if row is None:
                self.store.delete(name, 4 * number)
            else:
                self.store.put(name, row, 4 * number)
            self.changes[name].append((4 * number, row))
            if number % 13 == 12:
                self.store.commit()
        self.store.commit()

    def expected(self, key: Any, moment: int) -> tuple[Any, int, int | None] | None:
        changes = [*self.changes.get(key, ()), (sys.maxsize, None)]
        for (start, row), (end, _) in pairwise(changes):
            if start <= moment < end and row is not None:
                return row, start, None if end == sys.maxsize else end
        return None

    def check(self, answers: bool = True) -> None:
        """Compare gets of all keys at all moments; ``answers``: compiled code has to know the answers at last."""
        self.store._live.lookup.count_reads(1)
        assert self.store._live.lookup.is_compiled
        for moment in range(-1, END, 17):
            truth = [self.expected(key, moment) for key in self.keys]
            assert [self.store.get(key, as_of=moment) for key in self.keys] == truth
            assert self.store.get_many(self.keys, as_of=moment) == truth
        if answers:
            for key in self.keys:
                assert self.store._live.lookup.answer(key, 101_000) == self.expected(key, 101)

    def versions(self, key: Any, first: int, last: int) -> list[tuple[Any, ...]]:
        """(value, start, end, commit) of the versions of a key that are valid at a moment from first to last."""
        changes = [*((start, start // 52 + 1, row) for start, row in self.changes[key]), (None, 0, None)]
        return [
            (row, start, end, commit)
            for (start, commit, row), (end, _, _) in pairwise(changes)
            if row is not None and start is not None and start <= last and (end is None or end > first)
        ]

    def check_histories(self, answers: bool = True) -> None:
        """Compare histories of all keys in some windows; ``answers``: compiled code has to know them at last."""
        names = self.store.spec.value.names
        for first, last in [(None, None), (40, None), (None, 121), (41, 162), (100, 101)]:
            asked = {"start_time": first, "end_time": last}
            window = (-1 if first is None else first, 2 * END if last is None else last)
            for key in self.keys:
                expected = self.versions(key, *window)
                table = self.store.history(key=key, **asked).read_all()
                table.validate(full=True)
                assert table.schema == self.store.history().schema
                assert sorted(_rows_of(table, names), key=itemgetter(1)) == expected
                columns = ["_commit_version", "valid_to"]
                some = self.store.history(key=key, columns=columns, **asked).read_all()
                assert some.equals(table.select(columns))
                members = key if isinstance(key, tuple) else (key,)
                assert set(zip(*(table[name].to_pylist() for name in self.names), strict=True)) <= {members}
        if answers:
            lookup = self.store._live.lookup
            for key in self.keys:
                batches = lookup.versions(key, (-(2**63), 10**15), self.store.history().schema)
                assert batches is not None
                assert sum(map(len, batches)) == len(self.versions(key, -1, 2 * END))


def _rows_of(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    times = [
        [None if us is None else us // 1000 for us in table[name].cast(pa.int64()).to_pylist()]
        for name in ("valid_from", "valid_to")
    ]
    return list(zip(table.select(names).to_pylist(), *times, table["_commit_version"].to_pylist(), strict=True))


@pytest.fixture
def text_store(compiled: None, tmp_path: Path) -> Iterator[Filled]:
    filled = Filled(tmp_path, "string", {"a": "bigint", "b": "string"}, lambda n: {"a": n, "b": None if n % 4 else "é"})
    yield filled
    filled.store.close()


@pytest.mark.quick("string", "binary", "int")
@pytest.mark.parametrize("key", ["string", "binary", "tinyint", "smallint", "int", "bigint"])
def test_every_type(compiled: None, tmp_path: Path, key: str) -> None:
    value = {f"{kind} column": kind for kind in TYPES}

    def value_of(number: int) -> Any:
        return {f"{kind} column": cells[number % len(cells)] for kind, cells in TYPES.items()}

    filled = Filled(tmp_path, key, value, value_of)
    filled.check()
    filled.store.compact(full=True)
    filled.check()
    filled.check_histories()
    filled.store.close()


@pytest.mark.parametrize(
    "kinds", [("string", "bigint"), ("string", "string"), ("int", "tinyint"), ("binary", "string", "string", "int")]
)
def test_keys_of_several_columns(compiled: None, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    names = {f"k{number}": kind for number, kind in enumerate(kinds)}
    filled = Filled(tmp_path, names, {"a": "bigint", "b": "string"}, lambda n: {"a": n, "b": "é" * (n % 3) or None})
    filled.check()
    filled.store.compact(full=True)
    filled.check()
    filled.check_histories()
    lookup = filled.store._live.lookup
    for key in filled.keys:
        named = dict(zip(names, key, strict=True))
        backwards = dict(reversed(named.items()))
        assert lookup.answer(named, 101_000) == lookup.answer(backwards, 101_000) == filled.expected(key, 101)
        assert filled.store.get(named, as_of=101) == filled.expected(key, 101)
        assert filled.store.history(key=named).read_all().equals(filled.store.history(key=key).read_all())
        for wrong in (key[:-1], (*key, 1), {**named, "x": 1}, {"x": 1}, (None, *key[1:]), key[0], list(key)):
            assert lookup.answer(wrong, 101_000) is False
            with pytest.raises(StateStoreError, match=r"WRONG_KEY|NULL_KEY"):
                filled.store.get(wrong)
    filled.store.close()


@pytest.mark.quick("tinyint", "boolean", "string", "timestamp", "decimal(9, 2)")
@pytest.mark.parametrize("kind", TYPES)
def test_a_bare_value(compiled: None, tmp_path: Path, kind: str) -> None:
    cells = [cell for cell in TYPES[kind] if cell is not None]
    filled = Filled(tmp_path, "string", {"v": kind}, lambda number: cells[number % len(cells)])
    filled.check()
    filled.store.close()


def test_nested_values_are_read_without_compiled_code(compiled: None, tmp_path: Path) -> None:
    filled = Filled(tmp_path, "string", {"a": "array<int>", "b": "int"}, lambda number: {"a": [1, None], "b": number})
    filled.check(answers=False)
    assert filled.store._live.lookup.answer(filled.keys[0], 0) is False
    filled.store.close()


@pytest.mark.parametrize("kind", ["date", "boolean", "decimal(9, 2)", "timestamp"])
def test_keys_of_other_types_are_found_without_compiled_code(compiled: None, tmp_path: Path, kind: str) -> None:
    catalog = statestore.connect(tmp_path)
    store: Any = catalog.create_store("s", key={"k": kind}, value={"v": "int"})
    with store:
        keys = [cell for cell in TYPES[kind] if cell is not None]
        for number, key in enumerate(keys):
            store.put(key, number, number)
        store.commit()
        store._live.lookup.count_reads(1)
        expected = [max(number for number, other in enumerate(keys) if other == key) for key in keys]
        for _ in range(2):
            assert [store.get(key).value for key in keys] == expected
            assert [record.value for record in store.get_many(keys)] == expected


def test_batches_that_are_dropped_are_read_again(text_store: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = value_readers._KeptBatches()
    monkeypatch.setattr(value_readers, "kept_batches", kept)
    monkeypatch.setattr(value_readers, "BATCH_BYTES", 100)
    text_store.store.compact(full=True)
    text_store.check(answers=False)
    assert len(kept._kept) < 5  # of a dozen batches


@pytest.mark.parametrize("words", [1, 1 << 9])
def test_histories_of_text_keys(text_store: Filled, monkeypatch: pytest.MonkeyPatch, words: int) -> None:
    monkeypatch.setattr(lookup_table, "USUAL_WORDS", words)
    text_store.check()
    text_store.check_histories()
    text_store.store.compact(full=True)
    text_store.check()
    text_store.check_histories()
    assert text_store.store.history(key="none").read_all().num_rows == 0


def test_histories_of_batches_that_are_dropped(text_store: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_readers, "kept_batches", value_readers._KeptBatches())
    monkeypatch.setattr(value_readers, "BATCH_BYTES", 100)
    text_store.store.compact(full=True)
    text_store.check(answers=False)
    text_store.check_histories(answers=False)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_keys_of_many_versions_are_scanned(
    text_store: Filled, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    for module in (lookup_table, key_history):
        monkeypatch.setattr(module, "MOST_VERSIONS", 3)
    if is_compiled:
        text_store.check()
    found = [text_store.store._history_of(key, Query(mode="history")) for key in text_store.keys]
    counts = [len(text_store.versions(key, -1, 2 * END)) for key in text_store.keys]
    assert [rows is None for rows in found] == [count > 3 for count in counts] and max(counts) > 3 > min(counts)
    text_store.check_histories(answers=False)


def test_threads_that_drop_each_others_batches(text_store: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_readers, "kept_batches", value_readers._KeptBatches())
    monkeypatch.setattr(value_readers, "BATCH_BYTES", 200)
    text_store.store.compact(full=True)
    wrong: list[Any] = []

    def read() -> None:
        try:
            text_store.check(answers=False)
            text_store.check_histories(answers=False)
        except BaseException as error:
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


def test_reads_of_keys_keep_no_column_beside_their_batches(text_store: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of times would be 16 bytes a version, and decompressed batches would be kept twice."""
    text_store.store.compact(full=True)
    kept = value_readers._KeptBatches()
    monkeypatch.setattr(value_readers, "kept_batches", kept)
    with text_store.catalog.open_store("s", read_only=True) as text_store.store:
        before = decoded.bytes
        text_store.check()
        text_store.check_histories()
        segments = [text_store.store._files.open_segment(meta) for meta in text_store.store._log_state.segments]
        assert any(segment.is_compressed for segment in segments)
        assert decoded.bytes == before
        assert kept.bytes > 0 and not any(segment._numpy or segment._whole for segment in segments)


def test_a_table_that_another_thread_replaces_is_kept_while_it_is_read(
    text_store: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code has the address of its memory alone."""
    make, is_there = PointLookup._new_table, []

    def replaced(lookup: PointLookup) -> lookup_table.LookupTable:
        table = make(lookup)
        kept = weakref.ref(table)
        table.find = lambda key_hash, moment: is_there.append(kept() is not None) or 0  # type: ignore[func-returns-value]
        lookup._table = lookup._answering = None
        return table

    monkeypatch.setattr(PointLookup, "_new_table", replaced)
    lookup = text_store.store._live.lookup
    assert not lookup.is_compiled
    lookup.count_reads(1)
    assert is_there == [True]


def test_a_commit_of_another_handle_is_seen_at_once(text_store: Filled) -> None:
    text_store.check()
    with text_store.catalog.open_store("s", auto_compact=False) as other:
        for number in range(3):
            other.put(text_store.keys[0], {"a": number, "b": "new"}, END + number)
            other.commit()
            found = text_store.store.get(text_store.keys[0])
            assert found == ({"a": number, "b": "new"}, END + number, None)


def test_pending_puts_are_seen_before_the_commit(text_store: Filled) -> None:
    text_store.check()
    text_store.store.put(text_store.keys[0], {"a": 7, "b": "new"}, END)
    assert text_store.store.get(text_store.keys[0]).value["a"] == 7
    text_store.store.commit()
    assert text_store.store.get(text_store.keys[0]).value["a"] == 7


def test_a_disk_that_cannot_say_whether_there_is_a_commit(text_store: Filled, tmp_path: Path) -> None:
    text_store.check()
    following = tmp_path / f"s/log/{text_store.store.version + 1:020d}.json"
    following.symlink_to(following)  # a loop, which is no answer
    with pytest.raises(StorageError, match="DISK_FAILED"):
        text_store.store.get(text_store.keys[0])
    following.unlink()
    text_store.check()


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("string", [None, 7, b"key", "\ud800", ("a", "b"), {"wrong": "a"}]),
        ("binary", ["key", 7, None]),
        ("int", [2**31, -(2**31) - 1, 2**70, 1.5, True, "1", None]),
        ("bigint", [2**63, -(2**63) - 1, True, None]),
    ],
)
def test_keys_that_are_none(compiled: None, tmp_path: Path, kind: str, keys: list[Any]) -> None:
    filled = Filled(tmp_path, kind, {"v": "int"}, lambda number: number)
    filled.check()
    for key in keys:
        with pytest.raises(StateStoreError, match=r"WRONG_KEY|NULL_KEY"):
            filled.store.get(key)
    filled.store.close()


def test_a_key_in_another_form_is_the_same_key(text_store: Filled) -> None:
    text_store.check()
    key = text_store.keys[0]

    class Text(str):
        pass

    for form in (Text(key), (key,), {"k": key}):
        assert text_store.store.get(form, as_of=101) == text_store.expected(key, 101)


def test_reads_older_than_the_retention(compiled: None, tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    store: Any = catalog.create_store("s", key={"k": "string"}, value={"v": "int"}, history_retention=10)
    with store:
        for key, moment in (("closed", 0), ("open", 0), ("closed", 5), ("other", 100)):
            store.put(key, moment, moment)
        store.commit()
        store._live.lookup.count_reads(1)
        for _ in range(2):
            assert store.get("closed", as_of=2) is None
            assert store.get("open", as_of=2) == (0, 0, None)
            assert store.get_many(["closed", "open", "other"], as_of=2) == [None, (0, 0, None), None]


def test_no_object_is_left_behind(text_store: Filled) -> None:
    text_store.check()
    lookup, keys = text_store.store._live.lookup, [*text_store.keys, "no key"]

    def read() -> None:
        for key in keys:
            lookup.answer(key, 101_000)
        text_store.store.get_many(keys, as_of=101)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(None), sys.getrefcount("a"), sys.getallocatedblocks()]

    read()
    # Other threads of this process, and what earlier tests left for the collector, change the counts by some hundreds,
    # once. A reference that each read leaves, or takes too many, changes them by a thousand every time.
    for _ in range(5):
        before = counts()
        for _ in range(1_000):
            read()
        moved = [abs(after - start) for start, after in zip(before, counts(), strict=True)]
        if max(moved) < 500:
            return
    assert moved == [0, 0, 0]
